/**
 * A choice: its planned content (text, a value for a schema, or tool calls), written
 * token by token. Pure.
 */
import type { Tool } from "@gateway/shared/openai/chat";
import type {
  ChunkDelta,
  FinishReason,
} from "@gateway/shared/openai/completion";
import { newRequestId } from "@gateway/shared/process/ids";
import { type Controls, withoutControls } from "../serving/controls.ts";
import { checkSchema, type NamedSchema, valueFor } from "./json_schema.ts";
import {
  hashText,
  type Random,
  type Sampled,
  seededRandom,
  tokenize,
  Writer,
} from "./language.ts";
import { type ChatRequest, lastQuestion, messageText } from "./request.ts";

/**
 * The output of one step; the content is empty while a stop sequence may have begun.
 */
export interface Step {
  delta: ChunkDelta;
  logprobs?: object[];
  finish?: FinishReason;
}

/**
 * A text without a requested length ends with the first sentence after this many tokens
 * to twice as many.
 */
const TEXT_TOKENS = 40;
const QUOTE_CHARS = 80;
const LOOK_CHARS = 2_000;
const LONG_WORD = /[\p{L}\p{N}]{4,}/gu;
const CALLS_MAX = 4;

/**
 * Plans a choice and returns its steps: one per token, the last with `finish`. Throws
 * an `ApiError` for an unsupported schema.
 */
export function choiceOf(
  request: ChatRequest,
  controls: Controls,
  /** `otherSeed` is for a request without one. */
  { index, otherSeed }: { index: number; otherSeed: number },
): Generator<Step> {
  // The limit of reasoning, content and calls together.
  const { max_tokens: tokensMax } = request;
  const asked = withoutControls(lastQuestion(request));
  const subject = hashText(asked);
  // Always the same numbers with a seed, and at temperature 0.
  const seed = request.seed ?? (request.temperature === 0 ? 0 : otherSeed);
  const start = hashText(`${seed} ${subject}`);
  const random = seededRandom(start + Math.imul(index, 0x9e3779b1));
  const quote = quoteOf(asked);
  const thoughts = request.enable_thinking
    ? tokenize(
      `The user says ${quote}. I am a simulator, so I do not know the answer. ` +
        "I will say what I am and go on with a passage.",
    ).slice(0, request.thinking_budget)
    : [];
  const room = tokensMax - thoughts.length;
  const calls = planCalls(request, asked, { random, room });
  const content = calls.length > 0 ? runCalls(calls) : runText(
    planText(request, controls, { quote, random }),
    new Writer(request, random, subject),
    room,
  );
  return runChoice(thoughts, content, tokensMax);
}

/**
 * Throws an `ApiError` for a schema that the simulator or OpenAI's strict mode does not
 * support.
 */
export function checkSchemas(request: ChatRequest): void {
  const tools = request.tools.flatMap(schemaOfTool)
    .filter(({ isStrict }) => isStrict);
  [schemaOfAnswer(request) ?? [], tools].flat().forEach(checkSchema);
}

/**
 * What is written as is, and how many tokens in all: further ones are sampled; null: to
 * the end of a sentence, see `TEXT_TOKENS`.
 */
function planText(
  request: ChatRequest,
  { exactTokens, break: fault }: Controls,
  { quote, random }: { quote: string; random: Random },
) {
  const format = request.response_format?.type ?? "text";
  if (format !== "text") {
    const named = schemaOfAnswer(request);
    const simulator = "This is the gateway's model simulator.";
    const value = named
      ? valueFor(named, random)
      : { simulator, asked: quote.slice(1, -1) };
    const given = tokenize(JSON.stringify(value));
    return { given, tokensWanted: given.length };
  }
  const given = tokenize(openingOf(request, quote));
  // A text that has to break off is planned one token longer than that.
  const tokensWanted = exactTokens ?? (fault ? fault.afterTokens + 1 : null);
  return { given, tokensWanted };
}

function schemaOfAnswer(
  { response_format: format }: ChatRequest,
): NamedSchema | null {
  if (format?.type !== "json_schema") return null;
  const { name = "", strict, schema = {} } = format.json_schema ?? {};
  const isStrict = strict === true;
  return { param: "response_format", name, isStrict, schema };
}

/**
 * The function of a tool; tools of other types are never called. Arguments are an
 * object, whatever type the schema states.
 */
function schemaOfTool({ function: tool }: Tool, index: number): NamedSchema[] {
  if (tool === undefined) return [];
  return [{
    param: `tools[${index}].function.parameters`,
    name: tool.name,
    isStrict: tool.strict === true && tool.parameters !== undefined,
    schema: { ...tool.parameters, type: "object" },
  }];
}

function quoteOf(text: string): string {
  const start = text.slice(0, QUOTE_CHARS).replace(/\s+/g, " ");
  return `"${start}${text.length > QUOTE_CHARS ? "…" : ""}"`;
}

function openingOf({ messages }: ChatRequest, quote: string): string {
  const last = messages.at(-1);
  const told = last?.role === "tool"
    ? ` The tool answered: ${quoteOf(messageText(last))}.`
    : "";
  return "I am the gateway's model simulator, not a real model. " +
    `You asked: ${quote}.${told} Here is a passage instead.\n\n`;
}

/** The calls that fit into `room`. */
function planCalls(
  request: ChatRequest,
  asked: string,
  { random, room }: { random: Random; room: number },
) {
  const calls: { name: string; tokens: readonly string[] }[] = [];
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
  const tools = request.tools.flatMap(schemaOfTool);
  if (choice === "none") return [];
  if (typeof choice === "object") {
    return tools.filter(({ name }) => name === choice.function?.name);
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

function* runChoice(
  thoughts: readonly string[],
  content: Generator<Step>,
  tokensMax: number,
): Generator<Step> {
  for (const [index, token] of thoughts.entries()) {
    const delta = { reasoning_content: token };
    if (index + 1 >= tokensMax) return yield { delta, finish: "length" };
    yield { delta };
  }
  yield* content;
}

/** The calls were planned so that they fit into the token limit. */
function* runCalls(calls: ReturnType<typeof planCalls>): Generator<Step> {
  for (const [index, { name, tokens }] of calls.entries()) {
    const head = { id: `call_${newRequestId()}`, type: "function" } as const;
    const call = { index, ...head, function: { name, arguments: "" } };
    yield { delta: { tool_calls: [call] } };
    for (const [at, token] of tokens.entries()) {
      const call = { index, function: { arguments: token } };
      const isLast = index === calls.length - 1 && at === tokens.length - 1;
      const finish = isLast ? { finish: "tool_calls" } as const : {};
      yield { delta: { tool_calls: [call] }, ...finish };
    }
  }
}

function* runText(
  { given, tokensWanted }: ReturnType<typeof planText>,
  writer: Writer,
  tokensMax: number,
): Generator<Step> {
  const send = holdingStops(writer.request.stop ?? []);
  const endAfter = given.length + TEXT_TOKENS * (1 + writer.random());
  for (let count = 1;; count++) {
    const known = given[count - 1];
    const sampled = known === undefined
      ? writer.next()
      : writer.prescribed(known);
    const isDone = tokensWanted === null
      ? count > endAfter && sampled.token === "."
      : count >= tokensWanted;
    const isLast = isDone || count >= tokensMax;
    const { content, logprobs, isStopped } = send(sampled, isLast);
    const step = { delta: { content }, logprobs };
    if (isDone || isStopped) return yield { ...step, finish: "stop" };
    if (isLast) return yield { ...step, finish: "length" };
    yield step;
  }
}

/**
 * Takes tokens, and returns the text that can be sent: not what may begin a stop
 * sequence, and nothing from one on.
 */
function holdingStops(stops: readonly string[]) {
  let text = "";
  /** The tokens that begin in `text`, and where. */
  let tokens: { at: number; sampled: Sampled }[] = [];
  return (sampled: Sampled, isLast: boolean) => {
    tokens.push({ at: text.length, sampled });
    text += sampled.token;
    const found = stops.map((stop) => text.indexOf(stop))
      .filter((at) => at >= 0);
    const isStopped = found.length > 0;
    let end = Math.min(...found, text.length);
    if (!isStopped && !isLast) {
      end = 0;
      const mayBegin = (stop: string) => stop.startsWith(text.slice(end));
      while (end < text.length && !stops.some(mayBegin)) end += 1;
    }
    const sent = tokens.filter(({ at }) => at < end);
    tokens = tokens.slice(sent.length)
      .map(({ at, sampled }) => ({ at: at - end, sampled }));
    const content = text.slice(0, end);
    text = text.slice(end);
    const logprobs = sent.flatMap(({ sampled }) => sampled.logprobs);
    return { content, isStopped, logprobs };
  };
}
