import type { ChatRequest, Tool } from "@gateway/shared/openai/chat";
import { stemOf, wordsOf } from "../language/words.ts";
import { labelOf } from "../schema/context.ts";
import { isObject } from "../schema/json.ts";
import type { Conversation } from "./conversation.ts";
import { type MessageFacts, wantsName } from "./hints.ts";

/** One call to make. */
export interface PlannedCall {
  tool: Tool;
  /** Place of the tool in the request. */
  toolAt: number;
  /** Where one tool is called for several names, the one of this call. */
  name?: string;
}

/** From this score on, a message is about a tool: one word of its name, or two of its description. */
const SCORE_MIN = 2;
const NAME_SCORE = 2;
const PARAMETER_SCORE = 1;
const DESCRIPTION_SCORE = 1;
const CALLS_MAX = 8;

/** Words that say nothing about what a tool is for. */
const COMMON_WORDS = new Set(
  ("a about all an and any are as at be by can could data default do does example for from function " +
    "get give given have how i if in information into is it its list look make me my name need new of on " +
    "one or please return set show so some string tell that the their them this to tool up use used user " +
    "value want was we what when where which who will with would you your")
    .split(" ").map(stemOf),
);

/**
 * Which tools a model calls. None for `tool_choice` `none`; the named one; for
 * `required` the ones the last user message is about, or the nearest to it; for
 * `auto` only when the user spoke last and the message is about a tool. Without
 * `parallel_tool_calls` exactly one.
 */
export function planCalls(
  request: ChatRequest,
  conversation: Conversation,
  facts: MessageFacts,
): PlannedCall[] {
  const tools = request.tools ?? [];
  const choice = request.tool_choice ?? "auto";
  if (tools.length === 0 || choice === "none") return [];
  if (choice === "auto" && !conversation.endsWithUser) return [];
  const callsMax = request.parallel_tool_calls === false ? 1 : CALLS_MAX;
  const chosen = typeof choice === "object"
    ? tools.flatMap((tool, toolAt) =>
      tool.function.name === choice.function.name ? [{ tool, toolAt }] : []
    )
    : fittingTools(tools, facts.text, choice === "required");
  return chosen.flatMap((call) => perName(call, facts)).slice(0, callsMax);
}

/** The tools that a message is about, the nearest first. */
function fittingTools(
  tools: readonly Tool[],
  text: string,
  isRequired: boolean,
): PlannedCall[] {
  const words = new Set(wordsOf(text).map(stemOf));
  const scored = tools
    .map((tool, toolAt) => ({ tool, toolAt, score: scoreOf(tool, words) }))
    .sort((one, other) => other.score - one.score);
  const fitting = scored.filter(({ score }) => score >= SCORE_MIN);
  const chosen = fitting.length === 0 && isRequired
    ? scored.slice(0, 1)
    : fitting;
  return chosen.map(({ tool, toolAt }) => ({ tool, toolAt }));
}

function scoreOf(tool: Tool, words: ReadonlySet<string>): number {
  const { name, description, parameters } = tool.function;
  const properties = parameters?.properties;
  const parameterNames = isObject(properties) ? Object.keys(properties) : [];
  return NAME_SCORE * common(labelOf(name), words) +
    PARAMETER_SCORE * common(parameterNames.map(labelOf).join(" "), words) +
    DESCRIPTION_SCORE * common(description ?? "", words);
}

function common(text: string, words: ReadonlySet<string>): number {
  const stems = new Set(wordsOf(text).map(stemOf));
  let count = 0;
  for (const stem of stems) {
    if (words.has(stem) && !COMMON_WORDS.has(stem)) count += 1;
  }
  return count;
}

/** "The weather in Paris and Rome" is two calls of a tool that takes one place. */
function perName(call: PlannedCall, facts: MessageFacts): PlannedCall[] {
  const properties = call.tool.function.parameters?.properties;
  if (!isObject(properties) || facts.names.length < 2) return [call];
  const nameLike = Object.entries(properties).filter(([name, schema]) =>
    wantsName(labelOf(name)) && isObject(schema) && schema.type === "string" &&
    schema.enum === undefined
  );
  if (nameLike.length !== 1) return [call];
  return facts.names.map((name) => ({ ...call, name }));
}
