import { isRecord, parseRecord } from "./json.ts";

/** One JSON log line of a service. */
export interface ServiceEvent {
  event: string;
  level: string;
  /** All members of the line. */
  fields: Readonly<Record<string, unknown>>;
}

/** The events the launcher acts on; all other lines only go to the log file. */
const INTERESTING =
  /"level"\s*:\s*"(?:warn|error)"|"event"\s*:\s*"(?:ready|setup_link)"/;

/**
 * Picks what matters out of complete lines of a service's standard output. At
 * thousands of requests per second most text holds nothing of interest, so it is
 * searched as a whole before any line is parsed.
 */
export function findEvents(lines: string): ServiceEvent[] {
  if (!INTERESTING.test(lines)) return [];
  return lines.split("\n")
    .filter((line) => INTERESTING.test(line))
    .flatMap((line) => parseEvent(line) ?? []);
}

function parseEvent(line: string): ServiceEvent | undefined {
  const fields = parseRecord(line);
  if (!fields || typeof fields.event !== "string") return undefined;
  const level = typeof fields.level === "string" ? fields.level : "info";
  return { event: fields.event, level, fields };
}

/** Members that say where and when, which the reader knows. */
const OBVIOUS = new Set(["time", "level", "service", "event", "stack"]);
const TEXT_CHARS_MAX = 300;

/** An event for human eyes: `redis_down: address=127.0.0.1:6379 error=refused`. */
export function describeEvent(event: ServiceEvent): string {
  const details = Object.entries(event.fields)
    .filter(([name]) => !OBVIOUS.has(name))
    .map(([name, value]) => `${name}=${describeValue(value)}`)
    .join(" ");
  const text = details === "" ? event.event : `${event.event}: ${details}`;
  return text.length <= TEXT_CHARS_MAX
    ? text
    : `${text.slice(0, TEXT_CHARS_MAX)}…`;
}

function describeValue(value: unknown): string {
  if (typeof value === "string") return value;
  // An error, as the log writes it: its message says enough.
  if (isRecord(value) && typeof value.message === "string") {
    return value.message;
  }
  return JSON.stringify(value) ?? String(value);
}
