/**
 * Takes tools out of a body whose types a server does not know. Agents offer some that
 * only their own makers have, and most servers refuse the whole request for one of
 * them.
 */
import { elementsOf, membersOf, replaced, withoutMembers } from "./members.ts";
import { isJsonObject } from "../process/error_text.ts";

/** A body, and which types of tools it has lost, each once. */
export interface WithoutTools {
  readonly text: string;
  readonly dropped: readonly string[];
}

/** Servers refuse an empty list of tools, and these members where there is none. */
const OF_TOOLS = ["tools", "tool_choice", "parallel_tool_calls"];

/**
 * The body without tools of these types, which may end with `*`: Anthropic's end with a
 * date, as in `web_search_20250305`. The others stay as they are, to the byte; if none
 * is left, the body says nothing of tools.
 */
export function withoutTools(
  text: string,
  types: readonly string[],
): WithoutTools {
  const unchanged = { text, dropped: [] };
  const tools = membersOf(text)?.findLast(({ name }) => name === "tools");
  if (tools === undefined) return unchanged;
  const all = (elementsOf(text, tools.from) ?? []).map(({ from, to }) => {
    const json = text.slice(from, to);
    return { json, type: typeOf(json) };
  });
  const dropped = all.filter(({ type }) =>
    types.some((each) => isOfType(type, each))
  );
  if (dropped.length === 0) return unchanged;
  const rest = all.filter((each) => !dropped.includes(each));
  const list = `[${rest.map(({ json }) => json).join(",")}]`;
  const { from, to } = tools;
  return {
    text: rest.length === 0
      ? withoutMembers(text, OF_TOOLS)
      : replaced(text, [{ from, to, text: list }]),
    dropped: [...new Set(dropped.map(({ type }) => type))],
  };
}

/** A tool without a type is one of the client's own. */
const isOfType = (type: string, wanted: string): boolean =>
  type === wanted ||
  type !== "" && wanted.endsWith("*") && type.startsWith(wanted.slice(0, -1));

/** The type of a tool, or an empty text. */
function typeOf(json: string): string {
  try {
    const tool: unknown = JSON.parse(json);
    return isJsonObject(tool) && typeof tool.type === "string" ? tool.type : "";
  } catch {
    return "";
  }
}
