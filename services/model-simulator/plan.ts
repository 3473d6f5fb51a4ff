/** What an answer will say: text of its own, a value for a schema, or calls of tools. Pure. */
import { type Controls, withoutControls } from "./controls.ts";
import { checkSchema, type SchemaName, valueFor } from "./json_schema.ts";
import {
  hashText,
  type Random,
  seededRandom,
  someWords,
  tokenize,
} from "./language.ts";
import { type ChatRequest, textOf, type Tool } from "./request.ts";

/** A call of a tool that one choice makes. */
export interface PlannedCall {
  readonly name: string;
  readonly tokens: readonly string[];
}

/** What one choice says, in this order. */
export interface Plan {
  readonly reasoning: readonly string[];
  /** Said word by word; then, if `tokensWanted` is more, what the language adds. */
  readonly given: readonly string[];
  /** Tokens of the text; null: until the end of a sentence after a while. 0 for calls. */
  readonly tokensWanted: number | null;
  readonly calls: readonly PlannedCall[];
}

const QUOTE_CHARS = 80;
const LOOK_CHARS = 2_000;
const WORD_CHARS_MIN = 4;
/** Of one choice. */
const CALLS_MAX = 4;

/**
 * Plans one choice. Everything that it says fits into `room` tokens where it can.
 * Throws a `RequestError` for a schema that the simulator does not take.
 */
export function planChoice(
  request: ChatRequest,
  { controls, random, room }: {
    controls: Controls;
    random: Random;
    room: number;
  },
): Plan {
  const asked = questionOf(request);
  const quote = quoteOf(asked);
  const reasoning = isThinking(request)
    ? tokenize(
      `The user says ${quote}. I am a simulator, so I do not know the answer. ` +
        `I will say what I am and go on with a passage about ${
          someWords(random)
        }.`,
    ).slice(0, request.thinking_budget)
    : [];
  const left = room - reasoning.length;
  const calls = planCalls(request, asked, { random, room: left });
  if (calls.length > 0) {
    return { reasoning, given: [], tokensWanted: 0, calls };
  }
  const format = request.response_format;
  if (format !== undefined && format.type !== "text") {
    const given = writeJson(request, quote, { random, room: left });
    return { reasoning, given, tokensWanted: given.length, calls };
  }
  const given = tokenize(openingOf(request, quote));
  return { reasoning, given, tokensWanted: wantedLength(controls), calls };
}

/** An answer that is to break off does not end before. */
function wantedLength({ exactTokens, isEndless, ...rest }: Controls) {
  if (isEndless === true) return Infinity;
  return exactTokens ?? (rest.break ? rest.break.afterTokens + 1 : null);
}

/** Checks what only the whole request tells, so that a refusal is the answer. */
export function checkSchemas(request: ChatRequest): void {
  const format = schemaOfAnswer(request);
  if (format !== undefined) checkSchema(format.schema, format.called);
  for (const [index, { function: tool }] of request.tools.entries()) {
    if (tool.strict !== true || tool.parameters === undefined) continue;
    checkSchema(tool.parameters, toolName(tool, index));
  }
}

function schemaOfAnswer({ response_format: format }: ChatRequest) {
  if (format?.type !== "json_schema") return undefined;
  const { name, strict, schema = {} } = format.json_schema;
  const isStrict = strict === true;
  return { schema, called: { param: "response_format", name, isStrict } };
}

/** What varies from question to question, and not from seed to seed. */
export function subjectOf(request: ChatRequest): number {
  return hashText(questionOf(request));
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
  const told = last?.role === "tool" ? quoteOf(textOf(last)) : null;
  const heard = told === null
    ? `You asked: ${quote}.`
    : `You asked: ${quote}. The tool answered: ${told}.`;
  return `I am the gateway's model simulator, not a real model. ${heard} ` +
    "Here is a passage instead.\n\n";
}

function isThinking(request: ChatRequest): boolean {
  const { enable_thinking, chat_template_kwargs, reasoning_effort } = request;
  return enable_thinking ?? chat_template_kwargs?.enable_thinking ??
    (reasoning_effort !== undefined && reasoning_effort !== "none");
}

/** The tools that are to be called, as many as fit. */
function planCalls(
  request: ChatRequest,
  asked: string,
  { random, room }: { random: Random; room: number },
): PlannedCall[] {
  const calls: PlannedCall[] = [];
  let left = room;
  const wanted = wantedTools(request, asked).slice(0, CALLS_MAX);
  for (const { tool: { function: tool }, index } of wanted) {
    const called = toolName(tool, index);
    // Arguments are an object, whatever the schema says of its type.
    const schema = { ...tool.parameters, type: "object" };
    const tokens = fitting(
      left - 1,
      (isSmall) => valueFor(schema, called, { random, isSmall }),
    );
    if (tokens.length + 1 > left) continue;
    left -= tokens.length + 1;
    calls.push({ name: tool.name, tokens });
  }
  return request.parallel_tool_calls === false ? calls.slice(0, 1) : calls;
}

interface WantedTool {
  tool: Tool;
  index: number;
}

function wantedTools(request: ChatRequest, asked: string): WantedTool[] {
  const { tool_choice: choice, messages } = request;
  const tools = request.tools.map((tool, index) => ({ tool, index }));
  if (choice === "none") return [];
  if (typeof choice === "object") {
    const { name } = choice.function;
    return tools.filter(({ tool }) => tool.function.name === name).slice(0, 1);
  }
  const words = new Set(wordsOf(asked.slice(0, LOOK_CHARS)));
  const meant = tools.filter(({ tool }) =>
    wordsOf(tool.function.name).some((word) =>
      word.length >= WORD_CHARS_MIN && words.has(word)
    )
  );
  if (choice === "required") {
    return meant.length > 0 ? meant : tools.slice(0, 1);
  }
  return messages.at(-1)?.role === "user" ? meant : [];
}

/** `getWeather_now` is about `get`, `weather` and `now`. */
function wordsOf(text: string): string[] {
  const spaced = text.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return spaced.split(/[^\p{L}\p{N}]+/u);
}

function writeJson(
  request: ChatRequest,
  quote: string,
  { random, room }: { random: Random; room: number },
): string[] {
  const format = schemaOfAnswer(request);
  const simulator = "This is the gateway's model simulator, not a real model.";
  const asked = quote.slice(1, -1);
  return fitting(room, (isSmall) => {
    if (format === undefined) return isSmall ? {} : { simulator, asked };
    return valueFor(format.schema, format.called, { random, isSmall });
  });
}

/** The tokens of a value that fits, or of the smallest one. */
function fitting(room: number, make: (isSmall: boolean) => unknown): string[] {
  const tokens = tokenize(JSON.stringify(make(false)));
  return tokens.length <= room ? tokens : tokenize(JSON.stringify(make(true)));
}

function toolName(
  { name, strict }: Tool["function"],
  index: number,
): SchemaName {
  const param = `tools[${index}].function.parameters`;
  return { param, name, isStrict: strict === true };
}

/** Chance for one choice: by the seed, or as it comes. Without a temperature there is none. */
export function randomFor(
  request: ChatRequest,
  index: number,
  random: Random,
): Random {
  const seed = request.seed ?? (request.temperature === 0 ? 0 : undefined);
  const start = seed === undefined
    ? Math.floor(random() * 2 ** 32)
    : hashText(`${seed} ${subjectOf(request)}`);
  return seededRandom(start + Math.imul(index, 0x9e3779b1));
}
