import { isObject } from "../schema/json.ts";
import type { ToolResult } from "./conversation.ts";

const RESULTS_MAX = 4;
const ENTRIES_MAX = 8;
const TEXT_CHARS_MAX = 300;
const DEPTH_MAX = 2;
/** A longer result is quoted from as it stands. */
const PARSED_CHARS_MAX = 20_000;

/**
 * What tools answered, in a sentence each:
 * `{"temp":21,"sky":"clear"}` of `get_weather` is
 * `Here is what get_weather found: temp: 21, sky: clear.`
 */
export function describeResults(results: readonly ToolResult[]): string {
  return results.slice(-RESULTS_MAX).map(({ name, content }) => {
    const said = cut(describe(parsed(content), 0)).trim();
    if (said === "") return `${name} gave no result.`;
    const end = /[.!?。！？]$/.test(said) ? "" : ".";
    return `Here is what ${name} found: ${said}${end}`;
  }).join(" ");
}

function parsed(content: string): unknown {
  if (content.length > PARSED_CHARS_MAX) return content;
  try {
    return JSON.parse(content);
  } catch {
    // Most tools answer in JSON; what is not is already text.
    return content;
  }
}

function describe(value: unknown, depth: number): string {
  if (typeof value !== "object" || value === null) return String(value);
  if (depth > DEPTH_MAX) return "and more";
  if (Array.isArray(value)) {
    return value.slice(0, ENTRIES_MAX)
      .map((item) => describe(item, depth + 1)).join(", ");
  }
  if (!isObject(value)) return "";
  return Object.entries(value).slice(0, ENTRIES_MAX)
    .map(([key, item]) => `${key}: ${describe(item, depth + 1)}`).join(", ");
}

function cut(text: string): string {
  if (text.length <= TEXT_CHARS_MAX) return text;
  const characters = [...text.slice(0, TEXT_CHARS_MAX * 2)];
  return `${characters.slice(0, TEXT_CHARS_MAX).join("").trimEnd()}…`;
}
