/**
 * A choice: its planned content (text, a value for a schema, or tool calls), written
 * token by token. Pure.
 */
import { ApiError } from "@gateway/shared/openai/error";
import { type Controls, withoutControls } from "../serving/controls.ts";
import { planCalls, runCalls, schemaOfTool } from "./calls.ts";
import { PromptValues } from "./prompt_values.ts";
import { checkSchema, type NamedSchema, objectOf } from "./json_schema.ts";
import {
  hashText,
  type Random,
  type Sampled,
  seededRandom,
  tokenize,
  Writer,
} from "./language.ts";
import {
  type ChatRequest,
  lastQuestion,
  lastTurn,
  lastWords,
  messageText,
} from "./request.ts";
import { valueFor } from "./schema_value.ts";
import type { Step } from "./step.ts";
import { markedFields, withMarks } from "./marked_fields.ts";
import {
  asksForJson,
  withoutInstructions,
  writtenSchema,
} from "./written_schema.ts";

/** Which of several answers to a request it is. */
export interface ChoiceOptions {
  index: number;
  /** For a request without a seed. */
  otherSeed: number;
  /** How the text begins. Default: it says what the simulator is. */
  opening?: string;
}

/**
 * A text without a requested length ends with the first sentence after this many tokens
 * to twice as many.
 */
const TEXT_TOKENS = 40;
const QUOTE_CHARS = 80;

/**
 * Plans a choice and returns its steps: one per token, the last with `finish`. Throws
 * an `ApiError` for an unsupported schema.
 */
export function choiceOf(
  request: ChatRequest,
  controls: Controls,
  { index, otherSeed, ...options }: ChoiceOptions,
): Generator<Step> {
  // The limit of reasoning, content and calls together.
  const { max_tokens: tokensMax } = request;
  const question = withoutControls(lastQuestion(request));
  const subject = hashText(question);
  // Always the same numbers with a seed, and at temperature 0.
  const seed = request.seed ?? (request.temperature === 0 ? 0 : otherSeed);
  const start = hashText(`${seed} ${subject}`);
  const random = seededRandom(start + Math.imul(index, 0x9e3779b1));
  const quote = quoteOf(question);
  const thoughts = request.enable_thinking
    ? tokenize(
      `The user says ${quote}. I am a simulator, so I do not know the answer. ` +
        "I will say what I am and go on with a passage.",
    ).slice(0, request.thinking_budget)
    : [];
  const room = tokensMax - thoughts.length;
  const calls = planCalls(request, question, { random, room });
  const { opening = openingOf(request, quote) } = options;
  const content = calls.length > 0 ? runCalls(calls) : runText(
    planText(request, controls, { question, opening, random }),
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

function planText(
  request: ChatRequest,
  { exactTokens, break: fault }: Controls,
  { question, opening, random }: TextParts,
): TextPlan {
  const format = request.response_format?.type ?? "text";
  if (format !== "text" || asksForJson(request, question)) {
    const value = jsonValue(request, question, random);
    const tokens = tokenize(JSON.stringify(value));
    return { opening: tokens, tokensWanted: tokens.length };
  }
  const marked = markedText(request, question, random);
  if (marked !== null) {
    const tokens = tokenize(marked);
    return { opening: tokens, tokensWanted: tokens.length };
  }
  // A text that has to break off is planned one token longer than that.
  const tokensWanted = exactTokens ?? (fault ? fault.afterTokens + 1 : null);
  return { opening: tokenize(opening), tokensWanted };
}

/** A text that was begun, and where it ends. */
interface TextPlan {
  /** The tokens that it begins with. */
  opening: string[];
  /**
   * How many tokens it has: further ones are sampled. Null: to the end of a sentence,
   * see `TEXT_TOKENS`.
   */
  tokensWanted: number | null;
}

/** What a text is made of. */
interface TextParts {
  /** The question, without phrases for the simulator. */
  question: string;
  opening: string;
  random: Random;
}

/** The fields that the question asks for between marks; null if it asks for none. */
function markedText(
  request: ChatRequest,
  question: string,
  random: Random,
): string | null {
  const fields = markedFields(request, question);
  if (fields === null) return null;
  const promptValues = new PromptValues(withoutInstructions(question));
  try {
    return withMarks(objectOf(valueFor(fields, random, { promptValues })));
  } catch (error) {
    // What is no more than written in a prompt cannot be wrong.
    if (!(error instanceof ApiError)) throw error;
    return null;
  }
}

/** A value for the schema of the request, or for what its prompt asks for. */
function jsonValue(
  request: ChatRequest,
  question: string,
  random: Random,
): unknown {
  // Some clients send each part of a question as a message of its own.
  const words = withoutControls(lastWords(request)) || question;
  const promptValues = new PromptValues(withoutInstructions(words));
  const answerSchema = schemaOfAnswer(request);
  if (answerSchema !== null) {
    return valueFor(answerSchema, random, { promptValues });
  }
  const promptSchema = writtenSchema(request);
  try {
    if (promptSchema !== null) {
      return valueFor(promptSchema, random, { promptValues });
    }
  } catch (error) {
    // What is no more than written in a prompt cannot be wrong.
    if (!(error instanceof ApiError)) throw error;
  }
  const simulator = "This is the gateway's model simulator.";
  return { simulator, asked: quoteOf(question).slice(1, -1) };
}

function schemaOfAnswer(
  { response_format: format }: ChatRequest,
): NamedSchema | null {
  if (format?.type !== "json_schema") return null;
  const { name = "", strict, schema = {} } = format.json_schema ?? {};
  const isStrict = strict === true;
  return { param: "response_format", name, isStrict, schema };
}

function quoteOf(text: string): string {
  const start = text.slice(0, QUOTE_CHARS).replace(/\s+/g, " ");
  return `"${start}${text.length > QUOTE_CHARS ? "…" : ""}"`;
}

function openingOf(request: ChatRequest, quote: string): string {
  const last = lastTurn(request);
  const toolAnswer = last?.role === "tool"
    ? ` The tool answered: ${quoteOf(messageText(last))}.`
    : "";
  return "I am the gateway's model simulator, not a real model. " +
    `You asked: ${quote}.${toolAnswer} Here is a passage instead.\n\n`;
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

function* runText(
  { opening, tokensWanted }: TextPlan,
  writer: Writer,
  tokensMax: number,
): Generator<Step> {
  const send = holdingStops(writer.request.stop ?? []);
  const endAfter = opening.length + TEXT_TOKENS * (1 + writer.random());
  for (let count = 1;; count++) {
    const openingToken = opening[count - 1];
    const sampled = openingToken === undefined
      ? writer.next()
      : writer.prescribed(openingToken);
    const isDone = tokensWanted === null
      ? count > endAfter && sampled.token === "."
      : count >= tokensWanted;
    const isLast = isDone || count >= tokensMax;
    const { content, logprobs, stoppedBy } = send(sampled, isLast);
    const step = { delta: { content }, logprobs };
    if (stoppedBy !== undefined) {
      return yield { ...step, finish: "stop", stoppedBy };
    }
    if (isDone) return yield { ...step, finish: "stop" };
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
    const [first] = stops.map((stop) => ({ stop, at: text.indexOf(stop) }))
      .filter(({ at }) => at >= 0).sort((a, b) => a.at - b.at);
    let end = first?.at ?? text.length;
    if (first === undefined && !isLast) {
      end = 0;
      const mayBegin = (stop: string) => stop.startsWith(text.slice(end));
      while (end < text.length && !stops.some(mayBegin)) end += 1;
    }
    const batch = tokens.filter(({ at }) => at < end);
    tokens = tokens.slice(batch.length)
      .map(({ at, sampled }) => ({ at: at - end, sampled }));
    const content = text.slice(0, end);
    text = text.slice(end);
    const logprobs = batch.flatMap(({ sampled }) => sampled.logprobs);
    return { content, stoppedBy: first?.stop, logprobs };
  };
}
