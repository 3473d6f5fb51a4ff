/** What a model server says, chunk by chunk or in one piece, as backend events. */
import type {
  ChatRequest,
  FinishReason,
  ToolCallDelta,
  Usage,
} from "@gateway/shared/openai/chat";
import { promptTokensLikely } from "@gateway/shared/tokens/prompt_tokens";
import { textTokensLikely } from "@gateway/shared/tokens/text_tokens";
import type { BackendEvent } from "./backend.ts";
import { invalidAnswer, truncatedAnswer, UpstreamError } from "./errors.ts";
import {
  isCount,
  isJsonObject,
  type JsonObject,
  textOf,
} from "./json_value.ts";
import type { Redact } from "./redact.ts";
import { asksForFormat, frameError, type RefusalContext } from "./refusal.ts";
import {
  createToolCallFragments,
  type ToolCallFragments,
} from "./tool_calls.ts";

const FINGERPRINT = /^[\w.:@+-]{1,128}$/;

type DeltaEvent = BackendEvent & { type: "delta" };

/** What {@link createChunkReader} needs. */
export interface ChunkReaderOptions {
  request: ChatRequest;
  /** An id for a tool call whose server gave none. */
  newToolCallId: () => string;
  redact: Redact;
}

/**
 * Turns what a model server says, chunk by chunk or in one piece, into backend
 * events, and takes off what would break a client: see the cases in its test.
 */
export interface ChunkReader {
  /** Something of the answer has been passed on. */
  readonly hasBegun: boolean;
  /** Every choice has its finish reason. */
  readonly isFinished: boolean;
  /**
   * Takes one `data` payload, or a whole response body, and appends events to
   * `out`. `eventName` is that of the event stream, `""` if there is none.
   * Throws `upstream_invalid` for what is not a chunk, and the error that an
   * error frame stands for.
   */
  take(payload: string, eventName: string, out: BackendEvent[]): void;
  /**
   * The answer is over: appends `usage`, or throws `upstream_truncated`. Where
   * the server said itself that this is all (`isWhole`), and choices that were
   * asked for never began beside others that are finished, it gives no more: a
   * fault of the request, with the usage of what it made.
   */
  end(out: BackendEvent[], isWhole: boolean): void;
}

interface ChoiceState {
  /** Null until the choice calls a tool. */
  toolCalls: ToolCallFragments | null;
  hasBegun: boolean;
  isFinished: boolean;
}

/** Starts reading one answer. */
export function createChunkReader(options: ChunkReaderOptions): ChunkReader {
  const { request, redact } = options;
  const context: RefusalContext = {
    redact,
    asksForFormat: asksForFormat(request),
  };
  const answer = new TextSample();
  const choices: ChoiceState[] = [];
  for (let i = 0; i < request.n; i++) {
    choices.push({ toolCalls: null, hasBegun: false, isFinished: false });
  }
  let unfinished = request.n;
  let hasBegun = false;
  let usage: Usage | null = null;
  let fingerprint = "";

  const takeToolCalls = (
    state: ChoiceState,
    delta: JsonObject,
  ): ToolCallDelta[] | null => {
    const fragments = delta.tool_calls ?? legacyCall(delta.function_call);
    if (fragments === null) return null;
    const news: ToolCallDelta[] = [];
    state.toolCalls ??= createToolCallFragments(options.newToolCallId);
    state.toolCalls.take(fragments, news);
    for (const call of news) answer.add(call.function.arguments ?? "");
    return news.length === 0 ? null : news;
  };

  const takeDelta = (
    index: number,
    state: ChoiceState,
    choice: JsonObject,
    out: BackendEvent[],
  ) => {
    // A whole response has `message` where a chunk has `delta`.
    const delta = choice.delta ?? choice.message;
    if (!isJsonObject(delta)) return;
    const content = contentOf(delta.content);
    const reasoning = textOf(delta.reasoning_content) ||
      textOf(delta.reasoning);
    const refusal = textOf(delta.refusal);
    const toolCalls = takeToolCalls(state, delta);
    const logprobs = isJsonObject(choice.logprobs) ? choice.logprobs : null;
    const isEmpty = content === "" && reasoning === "" && refusal === "" &&
      toolCalls === null && logprobs === null;
    if (isEmpty) return;
    const event: DeltaEvent = { type: "delta", index };
    if (content !== "") event.content = content;
    if (reasoning !== "") event.reasoning = reasoning;
    if (refusal !== "") event.refusal = refusal;
    if (toolCalls !== null) event.toolCalls = toolCalls;
    if (logprobs !== null) event.logprobs = logprobs;
    answer.add(content);
    answer.add(reasoning);
    answer.add(refusal);
    out.push(event);
  };

  const takeChoice = (
    choice: unknown,
    position: number,
    out: BackendEvent[],
  ) => {
    if (!isJsonObject(choice)) throw invalidAnswer("Choice is not an object");
    const index = choice.index ?? position;
    const state = typeof index === "number" ? choices[index] : undefined;
    if (typeof index !== "number" || state === undefined) {
      throw invalidAnswer(`Choice index outside 0..${request.n - 1}`);
    }
    state.hasBegun = true;
    // A repeat of what is finished; clients take nothing more of it.
    if (state.isFinished) return;
    takeDelta(index, state, choice, out);
    const word = textOf(choice.finish_reason);
    if (word === "") return;
    state.toolCalls?.end();
    const reason = finishReasonOf(word, state.toolCalls?.hasCalls ?? false);
    out.push({ type: "finish", index, reason });
    state.isFinished = true;
    unfinished--;
  };

  const takeChunk = (chunk: JsonObject, out: BackendEvent[]) => {
    if (isErrorChunk(chunk)) throw frameError(chunk, context);
    fingerprint ||= textOf(chunk.system_fingerprint);
    // Servers that report progress repeat the usage: the last one is the sum.
    usage = parseUsage(chunk.usage) ?? usage;
    const list = chunk.choices ?? [];
    if (!Array.isArray(list)) throw invalidAnswer("Choices are not an array");
    for (let i = 0; i < list.length; i++) takeChoice(list[i], i, out);
  };

  /** What the server counted; one that counts nothing although it said something does not count. */
  const countedUsage = (): Usage => {
    const isCounted = usage !== null &&
      (usage.completion_tokens > 0 || answer.pieces === 0);
    return usage !== null && isCounted ? usage : estimateUsage(request, answer);
  };

  return {
    get hasBegun() {
      return hasBegun;
    },
    get isFinished() {
      return unfinished === 0;
    },
    take(payload, eventName, out) {
      const value = parseJson(payload);
      if (eventName === "error") throw frameError(value, context);
      if (!isJsonObject(value)) throw invalidAnswer("Not a JSON object");
      takeChunk(value, out);
      if (hasBegun || out.length === 0) return;
      hasBegun = true;
      if (
        FINGERPRINT.test(fingerprint) && redact(fingerprint) === fingerprint
      ) {
        out.unshift({ type: "fingerprint", fingerprint });
      }
    },
    end(out, isWhole) {
      if (unfinished === 0) {
        out.push({ type: "usage", usage: countedUsage() });
        return;
      }
      const given = request.n - unfinished;
      const isCut = choices.some((each) => each.hasBegun && !each.isFinished);
      if (isWhole && given > 0 && !isCut) {
        throw tooFewChoices(given, request.n, countedUsage());
      }
      throw truncatedAnswer(
        `${unfinished} of ${request.n} choices have no finish reason`,
      );
    },
  };
}

/** The value, or undefined for what is not JSON. The parser's own message would quote the answer. */
function parseJson(payload: string): unknown {
  try {
    return JSON.parse(payload);
  } catch {
    return undefined;
  }
}

/** `error: null` beside choices is no error: some servers always send it. */
function isErrorChunk(chunk: JsonObject): boolean {
  if (chunk.error !== undefined && chunk.error !== null) return true;
  return chunk.object === "error" ||
    (chunk.choices === undefined && chunk.usage === undefined &&
      typeof chunk.message === "string");
}

/** Content is text; some servers send parts, of which the text ones count. */
function contentOf(content: unknown): string {
  if (!Array.isArray(content)) return textOf(content);
  let text = "";
  for (const part of content) {
    if (isJsonObject(part)) text += textOf(part.text);
  }
  return text;
}

/** `function_call` is what tool calls were before they had a list. */
function legacyCall(call: unknown): unknown {
  return isJsonObject(call) ? [{ index: 0, function: call }] : null;
}

/** The error of an answer that is complete and has `given` choices where the request asks for more. */
function tooFewChoices(given: number, asked: number, usage: Usage): Error {
  const choices = given === 1 ? "one choice" : `${given} choices`;
  return new UpstreamError("request", {
    code: "unsupported_value",
    message:
      `The server of this model gives ${choices} per request, but 'n' asks for ${asked}.`,
    param: "n",
    usage,
  });
}

/** Characters that are kept of an answer. */
const SAMPLE_CHARS_MAX = 64 * 1024;

/** The beginning of an answer, for the case that nobody counts its tokens. */
class TextSample {
  /** Pieces so far, empty ones not counted. */
  pieces = 0;
  #text = "";
  #chars = 0;

  add(text: string): void {
    if (text === "") return;
    this.pieces++;
    this.#chars += text.length;
    if (this.#text.length < SAMPLE_CHARS_MAX) this.#text += text;
  }

  /** Tokens by the text, but never less than one per piece: most servers send one token at a time. */
  get likelyTokens(): number {
    const perSample = this.#chars / Math.max(1, this.#text.length);
    const tokens = Math.ceil(textTokensLikely(this.#text) * perSample);
    return Math.max(tokens, this.pieces);
  }
}

/** The usage of an answer nobody counted. */
function estimateUsage(request: ChatRequest, answer: TextSample): Usage {
  const prompt = promptTokensLikely(request);
  const completion = answer.likelyTokens;
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
  };
}

/** What servers send, read strictly: null unless both counts are there and make sense. */
export function parseUsage(value: unknown): Usage | null {
  if (!isJsonObject(value)) return null;
  const prompt = value.prompt_tokens;
  let completion = value.completion_tokens;
  if (!isCount(prompt) || !isCount(completion)) return null;
  const reasoning =
    detail(value.completion_tokens_details, "reasoning_tokens") ??
      detail(value, "reasoning_tokens");
  // Some hosts count reasoning beside the completion and not in it; the total tells.
  const isBeside = reasoning !== null && reasoning > 0 &&
    value.total_tokens === prompt + completion + reasoning;
  if (isBeside) completion += reasoning;
  const usage: Usage = {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
  };
  const cached = detail(value.prompt_tokens_details, "cached_tokens") ??
    detail(value, "prompt_cache_hit_tokens");
  if (cached !== null && cached <= prompt) {
    usage.prompt_tokens_details = { cached_tokens: cached };
  }
  if (reasoning !== null && reasoning <= completion) {
    usage.completion_tokens_details = { reasoning_tokens: reasoning };
  }
  return usage;
}

function detail(details: unknown, name: string): number | null {
  const value = isJsonObject(details) ? details[name] : undefined;
  return isCount(value) ? value : null;
}

/** Words of servers in use beside OpenAI's own. Closed enums in SDKs allow no others. */
const REASONS: ReadonlyMap<string, FinishReason> = new Map([
  ["stop", "stop"],
  ["eos", "stop"],
  ["eos_token", "stop"],
  ["end_turn", "stop"],
  ["stop_sequence", "stop"],
  ["length", "length"],
  ["max_tokens", "length"],
  ["max_length", "length"],
  ["max_output_tokens", "length"],
  ["model_length", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_calls", "tool_calls"],
  ["tool_use", "tool_calls"],
  ["function_call", "tool_calls"],
  ["content_filter", "content_filter"],
  ["safety", "content_filter"],
  ["sensitive", "content_filter"],
  ["refusal", "content_filter"],
  ["recitation", "content_filter"],
  ["prohibited_content", "content_filter"],
  ["blocklist", "content_filter"],
]);

/** Words that say the answer is not complete. */
const FAILURES: ReadonlySet<string> = new Set([
  "abort",
  "aborted",
  "cancelled",
  "error",
  "network_error",
  "insufficient_system_resource",
  "malformed_function_call",
  "timeout",
]);

/**
 * The finish reason for a client. A plain stop after tool calls is `tool_calls`,
 * since agents loop on that word; an unknown word is a stop. Throws
 * `upstream_truncated` for a reason that means failure.
 */
function finishReasonOf(
  word: string,
  hasToolCalls: boolean,
): FinishReason {
  const known = word.toLowerCase();
  if (FAILURES.has(known)) {
    throw truncatedAnswer(`Model server gave the finish reason ${known}`);
  }
  const reason = REASONS.get(known) ?? "stop";
  return reason === "stop" && hasToolCalls ? "tool_calls" : reason;
}
