/** The token counts that an answer to a forwarded request states. */
import { type Usage, usageOfTokens } from "../openai/completion.ts";
import { isJsonObject } from "../process/error_text.ts";
import { afterSpace, elementsOf, type Member, membersOf } from "./members.ts";
import type { ForwardName } from "./endpoints.ts";

/**
 * A frame's count has 32 bits. A larger one is a fault of the server, and would keep a
 * key over its limits for years.
 */
export const TOKENS_MAX = 2 ** 32 - 1;

/** What a whole answer says of itself. */
export interface WholeAnswer {
  /** Null if it states none. */
  readonly usage: Usage | null;
  /** How many vectors it has; null if it has no list of them. */
  readonly vectors: number | null;
  /** Whether it is nothing but an error, whatever its status. */
  readonly isError: boolean;
  /** Whether the counts that it states add up; absent: they do. */
  readonly addsUp?: boolean;
}

/** What a reader says of an answer that is no error. */
type Counts = Omit<WholeAnswer, "isError">;

/**
 * Looks into a whole answer, of which only the usage is parsed and the vectors are
 * counted. Null if it is neither a JSON object nor a list, or breaks off.
 */
export function readWholeAnswer(
  text: string,
  endpoint: ForwardName,
): WholeAnswer | null {
  // Rerankers such as Text Embeddings Inference answer with nothing but a list.
  if (elementsOf(text, afterSpace(text, 0)) !== null) return NO_COUNTS;
  const members = membersOf(text);
  if (members === null) return null;
  const usage = valueOf(text, members, "usage");
  return {
    ...READERS[endpoint]({ text, members, usage }),
    isError: isError(text, members),
  };
}

const NO_COUNTS: WholeAnswer = {
  usage: null,
  vectors: null,
  isError: false,
};

/** Members beside which an `error` is only a part of the answer. */
const ANSWERS = new Set([
  "usage",
  "content",
  "output",
  "choices",
  "data",
  "results",
]);

function isError(text: string, members: readonly Member[]): boolean {
  const error = members.find(({ name }) => name === "error");
  if (error === undefined || members.some(({ name }) => ANSWERS.has(name))) {
    return false;
  }
  return text.slice(error.from, error.to) !== "null";
}

/** The parts of an answer that its usage is read from. */
interface AnswerParts {
  readonly text: string;
  readonly members: readonly Member[];
  /** The member `usage`. */
  readonly usage: unknown;
}

type Reader = (parts: AnswerParts) => Counts;

const ofMessage: Reader = ({ usage }) => (
  { usage: messageUsage(usage), vectors: null }
);
const ofResponse: Reader = ({ usage }) => (
  { usage: responseUsage(usage), vectors: null, addsUp: addsUp(usage) }
);
/** What only counts tokens costs none. */
const ofCount: Reader = () => ({ usage: usageOfTokens(0, 0), vectors: null });

const READERS: Readonly<Record<ForwardName, Reader>> = {
  messages: ofMessage,
  count_tokens: ofCount,
  responses: ofResponse,
  input_tokens: ofCount,
  compact: ofResponse,
  completions: ofResponse,
  other: ofCount,
  embeddings: ({ text, members, usage }) => ({
    usage: inputUsage(usage),
    vectors: lengthOf(text, members, "data"),
  }),
  // Jina's shape, or Cohere's.
  rerank: ({ text, members, usage }) => ({
    usage: inputUsage(usage) ?? cohereUsage(valueOf(text, members, "meta")),
    vectors: null,
  }),
};

/** The value of a member, or undefined; a malformed one is none. */
function valueOf(
  text: string,
  members: readonly Member[],
  name: string,
): unknown {
  const member = members.findLast((each) => each.name === name);
  if (member === undefined) return undefined;
  try {
    return JSON.parse(text.slice(member.from, member.to));
  } catch {
    return undefined;
  }
}

function lengthOf(
  text: string,
  members: readonly Member[],
  name: string,
): number | null {
  const member = members.findLast((each) => each.name === name);
  if (member === undefined) return null;
  return elementsOf(text, member.from)?.length ?? null;
}

/** A model that makes no tokens uses those of the input. */
function inputUsage(value: unknown): Usage | null {
  const tokens = countIn(value, "prompt_tokens") ||
    countIn(value, "total_tokens") || countIn(value, "input_tokens");
  return tokens === null ? null : usageOfTokens(tokens, 0);
}

function cohereUsage(meta: unknown): Usage | null {
  if (!isJsonObject(meta)) return null;
  const tokens = countIn(meta.tokens, "input_tokens") ??
    countIn(meta.billed_units, "input_tokens");
  return tokens === null ? null : usageOfTokens(tokens, 0);
}

/** A count of an object; null if it is none that can be believed. */
export function countIn(holder: unknown, name: string): number | null {
  const value = isJsonObject(holder) ? holder[name] : undefined;
  if (typeof value !== "number" || !Number.isInteger(value)) return null;
  return value >= 0 && value <= TOKENS_MAX ? value : null;
}

/** The counts of OpenAI's as a server states them; null where it states none. */
interface StatedCounts {
  readonly prompt: number | null;
  readonly completion: number | null;
  readonly total: number | null;
  readonly cached: number | null;
  readonly cacheWrites: number | null;
  readonly reasoning: number | null;
}

function countsOf(value: Readonly<Record<string, unknown>>): StatedCounts {
  const inputs = value.input_tokens_details ?? value.prompt_tokens_details;
  const outputs = value.output_tokens_details ??
    value.completion_tokens_details;
  return {
    prompt: countIn(value, "input_tokens") ?? countIn(value, "prompt_tokens"),
    completion: countIn(value, "output_tokens") ??
      countIn(value, "completion_tokens"),
    total: countIn(value, "total_tokens"),
    // DeepSeek and SGLang have details beside the counts.
    cached: countIn(inputs, "cached_tokens") ??
      countIn(value, "prompt_cache_hit_tokens"),
    cacheWrites: countIn(inputs, "cache_write_tokens"),
    reasoning: countIn(outputs, "reasoning_tokens") ??
      countIn(value, "reasoning_tokens"),
  };
}

/**
 * The usage of OpenAI's: of responses, and under its older names of chat completions.
 * Its prompt includes what was read from the cache and written to it, its completion
 * the reasoning. Where the counts do not add up, the larger count: some servers state
 * the reasoning beside the completion, which only the total shows, or the cache beside
 * the prompt.
 */
export function responseUsage(value: unknown): Usage | null {
  return isJsonObject(value) ? usageOf(countsOf(value)) : null;
}

function usageOf(counts: StatedCounts): Usage | null {
  if (counts.prompt === null || counts.completion === null) return null;
  const { cached, cacheWrites, reasoning, total } = counts;
  const prompt = Math.max(counts.prompt, (cached ?? 0) + (cacheWrites ?? 0));
  const completion = Math.max(
    counts.completion,
    reasoning ?? 0,
    (total ?? 0) - prompt,
  );
  const usage = usageOfTokens(prompt, completion);
  if (cached !== null || cacheWrites !== null) {
    usage.prompt_tokens_details = cacheDetails(cached ?? 0, cacheWrites ?? 0);
  }
  if (reasoning !== null) {
    usage.completion_tokens_details = { reasoning_tokens: reasoning };
  }
  return usage;
}

/** Whether the counts of OpenAI's that a server states, if any, add up. */
export function addsUp(value: unknown): boolean {
  if (!isJsonObject(value)) return true;
  const counts = countsOf(value);
  const usage = usageOf(counts);
  if (usage === null) return true;
  const { prompt, completion, total } = counts;
  return usage.prompt_tokens === prompt &&
    usage.completion_tokens === completion &&
    (total === null || total === usage.total_tokens);
}

const cacheDetails = (cached: number, writtenTokens: number) => ({
  cached_tokens: cached,
  ...writtenTokens > 0 && { cache_write_tokens: writtenTokens },
});

/**
 * Anthropic's usage: unlike OpenAI's, its input does not include what was read from the
 * cache or written to it. One that is not stated is 0, and estimated later.
 */
export function messageUsage(value: unknown): Usage | null {
  const isStated = isJsonObject(value) && (value.input_tokens ?? null) !== null;
  const input = isStated ? countIn(value, "input_tokens") : 0;
  const completion = countIn(value, "output_tokens");
  if (input === null || completion === null) return null;
  const cacheReads = countIn(value, "cache_read_input_tokens") ?? 0;
  const cacheWrites = countIn(value, "cache_creation_input_tokens") ?? 0;
  const prompt = input + cacheReads + cacheWrites;
  const usage = usageOfTokens(prompt, completion);
  if (cacheReads + cacheWrites > 0) {
    usage.prompt_tokens_details = cacheDetails(cacheReads, cacheWrites);
  }
  return usage;
}
