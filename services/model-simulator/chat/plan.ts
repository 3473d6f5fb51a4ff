/** Plans the content of an answer: text, a value for a schema, or tool calls. Pure. */
import type { Tool } from "@gateway/shared/openai/chat";
import { type Controls, withoutControls } from "../serving/controls.ts";
import { checkSchema, type NamedSchema, valueFor } from "./json_schema.ts";
import { hashText, type Random, seededRandom, tokenize } from "./language.ts";
import { type ChatRequest, textOf } from "./request.ts";

export interface PlannedCall {
  readonly name: string;
  readonly tokens: readonly string[];
}

export interface Plan {
  readonly reasoning: readonly string[];
  /** Written as is; if `tokensWanted` is larger, sampled text follows. */
  readonly given: readonly string[];
  /** Tokens of the text, 0 for calls; null: until the end of a sentence, see `TEXT_TOKENS`. */
  readonly tokensWanted: number | null;
  readonly calls: readonly PlannedCall[];
  /** Depends on the question but not on the seed. */
  readonly subject: number;
}

const QUOTE_CHARS = 80;
const LOOK_CHARS = 2_000;
const LONG_WORD = /[\p{L}\p{N}]{4,}/gu;
const CALLS_MAX = 4;

/** Plans one choice; of its calls only those that fit into `tokensMax`. Throws an `HttpError` for an unsupported schema. */
export function planChoice(
  request: ChatRequest,
  controls: Controls,
  { random, tokensMax }: { random: Random; tokensMax: number },
): Plan {
  const asked = questionOf(request);
  const quote = quoteOf(asked);
  const reasoning = request.isThinking
    ? tokenize(
      `The user says ${quote}. I am a simulator, so I do not know the answer. ` +
        "I will say what I am and go on with a passage.",
    ).slice(0, request.thinking_budget)
    : [];
  const room = tokensMax - reasoning.length;
  const plan = { reasoning, given: [], calls: [], subject: hashText(asked) };
  const calls = planCalls(request, asked, { random, room });
  if (calls.length > 0) return { ...plan, calls, tokensWanted: 0 };
  const format = request.response_format?.type ?? "text";
  if (format !== "text") {
    const named = schemaOfAnswer(request);
    const simulator = "This is the gateway's model simulator.";
    const value = named
      ? valueFor(named, random)
      : { simulator, asked: quote.slice(1, -1) };
    const given = tokenize(JSON.stringify(value));
    return { ...plan, given, tokensWanted: given.length };
  }
  const given = tokenize(openingOf(request, quote));
  const { exactTokens, break: fault } = controls;
  // A text that has to break off is planned one token longer than that.
  const tokensWanted = exactTokens ?? (fault ? fault.afterTokens + 1 : null);
  return { ...plan, given, tokensWanted };
}

/** Throws an `HttpError` for a schema that the simulator or OpenAI's strict mode does not support. */
export function checkSchemas(request: ChatRequest): void {
  const tools = request.tools.map(schemaOfTool)
    .filter(({ isStrict }) => isStrict);
  [schemaOfAnswer(request) ?? [], tools].flat().forEach(checkSchema);
}

function schemaOfAnswer(
  { response_format: format }: ChatRequest,
): NamedSchema | null {
  if (format?.type !== "json_schema") return null;
  const { name, strict, schema = {} } = format.json_schema;
  const isStrict = strict === true;
  return { param: "response_format", name, isStrict, schema };
}

/** Arguments are an object, whatever type the schema states. */
function schemaOfTool({ function: tool }: Tool, index: number): NamedSchema {
  return {
    param: `tools[${index}].function.parameters`,
    name: tool.name,
    isStrict: tool.strict === true && tool.parameters !== undefined,
    schema: { ...tool.parameters, type: "object" },
  };
}

/** The last message of the user, without phrases for the simulator. */
function questionOf({ messages }: ChatRequest): string {
  const message = messages.findLast(({ role }) => role === "user");
  return message === undefined ? "" : withoutControls(textOf(message));
}

function quoteOf(text: string): string {
  const start = text.slice(0, QUOTE_CHARS).replace(/\s+/g, " ");
  return `"${start}${text.length > QUOTE_CHARS ? "…" : ""}"`;
}

function openingOf({ messages }: ChatRequest, quote: string): string {
  const last = messages.at(-1);
  const told = last?.role === "tool"
    ? ` The tool answered: ${quoteOf(textOf(last))}.`
    : "";
  return "I am the gateway's model simulator, not a real model. " +
    `You asked: ${quote}.${told} Here is a passage instead.\n\n`;
}

function planCalls(
  request: ChatRequest,
  asked: string,
  { random, room }: { random: Random; room: number },
): PlannedCall[] {
  const calls: PlannedCall[] = [];
  let left = room;
  const callsMax = request.parallel_tool_calls === false ? 1 : CALLS_MAX;
  for (const named of wantedTools(request, asked)) {
    if (calls.length === callsMax) break;
    const tokens = tokenize(JSON.stringify(valueFor(named, random)));
    if (tokens.length + 1 > left) continue;
    left -= tokens.length + 1;
    calls.push({ name: named.name, tokens });
  }
  return calls;
}

function wantedTools(request: ChatRequest, asked: string): NamedSchema[] {
  const { tool_choice: choice, messages } = request;
  const tools = request.tools.map(schemaOfTool);
  if (choice === "none") return [];
  if (typeof choice === "object") {
    const chosen = tools.find(({ name }) => name === choice.function.name);
    return chosen === undefined ? [] : [chosen];
  }
  const words = wordsOf(asked.slice(0, LOOK_CHARS));
  const meant = tools.filter(({ name }) =>
    !words.isDisjointFrom(wordsOf(name))
  );
  if (choice === "required") {
    return meant.length > 0 ? meant : tools.slice(0, 1);
  }
  return messages.at(-1)?.role === "user" ? meant : [];
}

/** The longer words: `getWeather_now` has `weather`. */
function wordsOf(text: string): Set<string> {
  const spaced = text.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return new Set(spaced.match(LONG_WORD));
}

/** The random numbers of one choice: from the request's seed, if it has one, and always the same ones at temperature 0. */
export function randomFor(
  request: ChatRequest,
  index: number,
  otherSeed: number,
): Random {
  const seed = request.seed ?? (request.temperature === 0 ? 0 : otherSeed);
  const start = hashText(`${seed} ${hashText(questionOf(request))}`);
  return seededRandom(start + Math.imul(index, 0x9e3779b1));
}
