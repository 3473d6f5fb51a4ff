/**
 * Takes tools out of a body whose types a server does not know. Agents offer some that
 * only their own makers have, and most servers refuse the whole request for one of
 * them.
 */
import {
  elementsOf,
  type Member,
  membersOf,
  replaced,
  withoutMembers,
} from "./members.ts";
import { isJsonObject } from "../process/error_text.ts";

/** A body, and which types of tools it has lost, each once. */
export interface WithoutTools {
  readonly text: string;
  readonly dropped: readonly string[];
}

/** Servers refuse an empty list of tools, and these members where there is none. */
const OF_TOOLS = ["tools", "tool_choice", "parallel_tool_calls"];

/**
 * Codex names tools in an item of this type among the messages, since its version
 * 0.147, and leaves the list `tools` of the body empty.
 */
const ITEM_OF_TOOLS = "additional_tools";

/**
 * The body without tools of these types, which may end with `*`: Anthropic's end with a
 * date, as in `web_search_20250305`. The others stay as they are, to the byte. Where
 * none is left, the body says nothing of tools, and an item of `input` that only named
 * tools is gone.
 */
export function withoutTools(
  text: string,
  types: readonly string[],
): WithoutTools {
  const input = withoutToolsOfInput(text, types);
  const body = withoutListedTools(input.text, types);
  const dropped = new Set([...body.dropped, ...input.dropped]);
  return { text: body.text, dropped: [...dropped] };
}

/** An object without tools of these types in its list `tools`. */
function withoutListedTools(
  text: string,
  types: readonly string[],
): WithoutTools {
  const unchanged = { text, dropped: [] };
  const tools = memberOf(text, "tools");
  if (tools === undefined) return unchanged;
  const all = typedElements(text, tools.from);
  const dropped = all.filter(({ type }) => isAmong(types, type));
  if (dropped.length === 0) return unchanged;
  const rest = all.filter((each) => !dropped.includes(each));
  return {
    text: rest.length === 0
      ? withoutMembers(text, OF_TOOLS)
      : withList(text, tools, rest),
    dropped: dropped.map(({ type }) => type),
  };
}

/** A body without such tools in those items of its `input` that name tools. */
function withoutToolsOfInput(
  text: string,
  types: readonly string[],
): WithoutTools {
  const unchanged = { text, dropped: [] };
  // Nearly all bodies have none, and may be long.
  if (!text.includes(ITEM_OF_TOOLS)) return unchanged;
  const input = memberOf(text, "input");
  if (input === undefined) return unchanged;
  const dropped: string[] = [];
  const rest = typedElements(text, input.from).flatMap((item) => {
    if (item.type !== ITEM_OF_TOOLS) return [item];
    const without = withoutListedTools(item.json, types);
    if (without.dropped.length === 0) return [item];
    dropped.push(...without.dropped);
    const isEmpty = memberOf(without.text, "tools") === undefined;
    return isEmpty ? [] : [{ ...item, json: without.text }];
  });
  if (dropped.length === 0) return unchanged;
  return { text: withList(text, input, rest), dropped };
}

/** An element of a list, as it stands there, and its type or an empty text. */
interface TypedElement {
  readonly json: string;
  readonly type: string;
}

const memberOf = (text: string, wanted: string): Member | undefined =>
  membersOf(text)?.findLast(({ name }) => name === wanted);

const typedElements = (text: string, listAt: number): TypedElement[] =>
  (elementsOf(text, listAt) ?? []).map(({ from, to }) => {
    const json = text.slice(from, to);
    return { json, type: typeOf(json) };
  });

/** The text with a list of these elements in place of the one that stood there. */
function withList(
  text: string,
  { from, to }: Member,
  elements: readonly TypedElement[],
): string {
  const list = `[${elements.map(({ json }) => json).join(",")}]`;
  return replaced(text, [{ from, to, text: list }]);
}

const isAmong = (types: readonly string[], type: string): boolean =>
  types.some((each) => isOfType(type, each));

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
