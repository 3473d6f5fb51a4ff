/**
 * Reads the response of a model server, chunk by chunk or as a whole, into an answer.
 */
import type {
  ChunkDelta,
  FinishReason,
  Usage,
} from "@gateway/shared/openai/completion";
import { promptTokens, textTokens } from "@gateway/shared/openai/tokens";
import type { ChatAnswer, Choice } from "./answer.ts";
import { parseUsage } from "./usage.ts";
import {
  invalidAnswer,
  truncatedAnswer,
  UpstreamError,
} from "@gateway/shared/upstream/errors";
import {
  isJsonObject,
  type JsonObject,
  parseJson,
  textOf,
} from "@gateway/shared/upstream/json";
import {
  frameError,
  type Redact,
} from "@gateway/shared/upstream/error_response";

const FINGERPRINT = /^[\w.:@+-]{1,128}$/;

/**
 * Reads one response and removes what would break a client; the tests list the cases.
 */
export class ChunkReader {
  /** The model has sent content or a finish reason. */
  hasBegun = false;
  #usage: Usage | null = null;
  #pieces = 0;
  #estimate = 0;

  constructor(
    readonly answer: ChatAnswer,
    readonly choices: readonly Choice[],
    readonly redact: Redact,
  ) {}

  get isFinished(): boolean {
    return this.choices.every(isFinished);
  }

  /**
   * Reads one event, or a whole body. Throws `upstream_invalid` for what is no chunk,
   * and the error of an error chunk.
   */
  take(payload: string, eventName: string): void {
    const chunk = parseJson(payload);
    if (eventName === "error" || (isJsonObject(chunk) && isErrorChunk(chunk))) {
      throw frameError(chunk, this.redact);
    }
    if (!isJsonObject(chunk)) throw invalidAnswer("Not a JSON object");
    if (this.answer.fingerprint === null) {
      const text = textOf(chunk.system_fingerprint);
      const isClean = FINGERPRINT.test(text) && this.redact(text) === text;
      if (isClean) this.answer.fingerprint = text;
    }
    // Servers that report progress repeat the usage; the last one is the total.
    this.#usage = parseUsage(chunk.usage) ?? this.#usage;
    const list = chunk.choices ?? [];
    if (!Array.isArray(list)) throw invalidAnswer("Choices are not an array");
    for (const [at, each] of list.entries()) this.#takeChoice(each, at);
  }

  /**
   * Returns the usage at the end, or throws `upstream_truncated`. If a response is
   * whole but lacks choices, the server does not support so many: a fault of the
   * request.
   */
  end(isWhole: boolean): Usage {
    const requested = this.choices.length;
    const given = this.choices.filter(isFinished).length;
    if (given === requested) return this.#countedUsage();
    const begun = this.choices.filter(({ hasBegun }) => hasBegun).length;
    if (!isWhole || given === 0 || begun > given) {
      throw truncatedAnswer(`${given} of ${requested} choices are finished`);
    }
    const choices = given === 1 ? "one choice" : `${given} choices`;
    const message =
      `The server of this model returns ${choices} per request, but 'n' is ${requested}.`;
    const usage = this.#countedUsage();
    const code = "unsupported_value";
    throw new UpstreamError("request", { code, message, param: "n", usage });
  }

  #takeChoice(said: unknown, position: number): void {
    if (!isJsonObject(said)) throw invalidAnswer("Choice is not an object");
    const index = said.index ?? position;
    const choice = typeof index === "number" ? this.choices[index] : undefined;
    if (choice === undefined) {
      throw invalidAnswer(`Choice outside 0..${this.choices.length - 1}`);
    }
    choice.hasBegun = true;
    // Clients ignore anything that follows the finish reason of a choice.
    if (isFinished(choice)) return;
    // A whole response has `message` where a chunk has `delta`.
    const delta = this.#deltaOf(choice, said.delta ?? said.message);
    const logprobs = isJsonObject(said.logprobs) ? said.logprobs : undefined;
    if (logprobs !== undefined || Object.keys(delta).length > 0) {
      this.hasBegun = true;
      this.answer.addDelta(choice, delta, logprobs);
    }
    const word = textOf(said.finish_reason);
    if (word === "") return;
    choice.calls.end();
    this.hasBegun = true;
    this.answer.finish(choice, finishReasonOf(word, choice.calls.hasCalls));
  }

  #deltaOf(choice: Choice, said: unknown): ChunkDelta {
    const delta: ChunkDelta = {};
    if (!isJsonObject(said)) return delta;
    const content = contentOf(said.content);
    const reasoning = textOf(said.reasoning_content) ||
      textOf(said.reasoning) || thinkingIn(said.content);
    const refusal = textOf(said.refusal);
    const fragments = said.tool_calls ?? null;
    if (this.#count(content)) delta.content = content;
    if (this.#count(reasoning)) delta.reasoning_content = reasoning;
    if (this.#count(refusal)) delta.refusal = refusal;
    if (fragments === null) return delta;
    const calls = choice.calls.take(fragments);
    if (calls.length > 0) delta.tool_calls = calls;
    for (const call of calls) this.#count(call.function.arguments);
    return delta;
  }

  /** Whether there is any text. */
  #count(text: string | undefined): boolean {
    if (!text) return false;
    this.#pieces += 1;
    this.#estimate += textTokens(text);
    return true;
  }

  /**
   * The server's usage, or an estimate if there is none, or if it is 0 although there
   * was an answer.
   */
  #countedUsage(): Usage {
    const usage = this.#usage;
    if (usage !== null && (usage.completion_tokens > 0 || this.#pieces === 0)) {
      return usage;
    }
    const prompt = promptTokens(this.answer.request);
    const completion = Math.max(Math.ceil(this.#estimate), this.#pieces);
    return {
      prompt_tokens: prompt,
      completion_tokens: completion,
      total_tokens: prompt + completion,
    };
  }
}

const isFinished = ({ finishReason }: Choice) => finishReason !== null;

/** `error: null` is not an error: some servers always send it. */
function isErrorChunk(chunk: JsonObject): boolean {
  if (chunk.error !== undefined && chunk.error !== null) return true;
  return chunk.object === "error" ||
    (chunk.choices === undefined && chunk.usage === undefined &&
      typeof chunk.message === "string");
}

/**
 * Content is text; of a list of parts, which some servers send, the text parts count.
 */
function contentOf(content: unknown): string {
  if (!Array.isArray(content)) return textOf(content);
  return content.filter(isJsonObject).map(({ text }) => textOf(text)).join("");
}

/** Mistral's parts with thinking are lists of parts themselves. */
function thinkingIn(content: unknown): string {
  const parts = Array.isArray(content) ? content.filter(isJsonObject) : [];
  return parts.map(({ thinking }) => contentOf(thinking)).join("");
}

/**
 * The words of various servers for OpenAI's finish reasons, which are a closed enum in
 * SDKs.
 */
const REASONS: readonly [FinishReason, RegExp][] = [
  [
    "length",
    /^(length|max_tokens|max_length|max_output_tokens|model_length|model_context_window_exceeded)$/,
  ],
  ["tool_calls", /^(tool_calls|tool_use)$/],
  [
    "content_filter",
    /^(content_filter|safety|sensitive|refusal|recitation|prohibited_content|blocklist)$/,
  ],
];
const FAILURE =
  /^(abort|aborted|cancelled|error|network_error|insufficient_system_resource|malformed_function_call|timeout)$/;

/**
 * The finish reason for a client. A plain stop after tool calls is `tool_calls`,
 * since agents depend on that word; an unknown word becomes `stop`. Throws
 * `upstream_truncated` for a reason that means failure.
 */
function finishReasonOf(
  word: string,
  hasToolCalls: boolean,
): FinishReason {
  const known = word.toLowerCase();
  if (FAILURE.test(known)) {
    throw truncatedAnswer(`Model server gave the finish reason ${known}`);
  }
  const [reason] = REASONS.find(([, words]) => words.test(known)) ?? [];
  return reason ?? (hasToolCalls ? "tool_calls" : "stop");
}
