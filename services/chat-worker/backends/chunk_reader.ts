/** Reads what a model server says, chunk by chunk or in one piece, into an answer. */
import type {
  ChatRequest,
  ChunkDelta,
  FinishReason,
  Usage,
} from "@gateway/shared/openai/chat";
import { promptTokensLikely } from "@gateway/shared/tokens/prompt_tokens";
import { textTokensLikely } from "@gateway/shared/tokens/text_tokens";
import type { Answer, Choice } from "./answer.ts";
import { invalidAnswer, truncatedAnswer, UpstreamError } from "./errors.ts";
import { isJsonObject, type JsonObject, parseJson, textOf } from "./json.ts";
import type { Redact } from "./redact.ts";
import { frameError } from "./refusal.ts";
import { ToolCallFragments } from "./tool_calls.ts";

const FINGERPRINT = /^[\w.:@+-]{1,128}$/;
/** Characters kept of an answer, to estimate its tokens where the server counts none. */
const SAMPLE_CHARS_MAX = 64 * 1024;

export interface ChunkReaderOptions {
  request: ChatRequest;
  answer: Answer;
  /** Which choice of the answer is the first one of this server's. */
  firstChoice: number;
  /** An id for a tool call whose server gave none. */
  newToolCallId: () => string;
  redact: Redact;
}

/** Reads one response and removes what would break a client: see the cases in its test. */
export class ChunkReader {
  /** The model has said something. */
  hasBegun = false;
  readonly #options: ChunkReaderOptions;
  readonly #choices: readonly Choice[];
  #usage: Usage | null = null;
  /** Pieces of text received; most servers send one token in each. */
  #pieces = 0;
  #sample = "";
  #chars = 0;

  constructor(options: ChunkReaderOptions) {
    this.#options = options;
    const { request, answer, firstChoice } = options;
    this.#choices = answer.choices.slice(firstChoice, firstChoice + request.n);
  }

  /** Every choice has its finish reason. */
  get isFinished(): boolean {
    return this.#choices.every(isFinished);
  }

  /**
   * Takes one `data` payload, or a whole response body. `eventName` is that of the
   * event stream, `""` if there is none. Throws `upstream_invalid` for what is not
   * a chunk, and the error that an error frame stands for.
   */
  take(payload: string, eventName: string): void {
    const { answer, redact } = this.#options;
    const chunk = parseJson(payload);
    if (eventName === "error" || (isJsonObject(chunk) && isErrorChunk(chunk))) {
      throw frameError(chunk, redact);
    }
    if (!isJsonObject(chunk)) throw invalidAnswer("Not a JSON object");
    const fingerprint = textOf(chunk.system_fingerprint);
    if (FINGERPRINT.test(fingerprint) && redact(fingerprint) === fingerprint) {
      answer.fingerprint ??= fingerprint;
    }
    // Servers that report progress repeat the usage: the last one is the sum.
    this.#usage = parseUsage(chunk.usage) ?? this.#usage;
    const list = chunk.choices ?? [];
    if (!Array.isArray(list)) throw invalidAnswer("Choices are not an array");
    for (const [at, each] of list.entries()) this.#takeChoice(each, at);
  }

  /**
   * The response is over: adds its usage, or throws `upstream_truncated`. Where the
   * server said itself that this is all (`isWhole`), and choices that were asked
   * for never began beside others that are finished, it gives no more: a fault of
   * the request, with the usage of what it made.
   */
  end(isWhole: boolean): void {
    const asked = this.#choices.length;
    const given = this.#choices.filter(isFinished).length;
    if (given === asked) {
      return this.#options.answer.addUsage(this.#countedUsage());
    }
    const isCut = this.#choices.some((each) =>
      each.hasBegun && !isFinished(each)
    );
    if (!isWhole || given === 0 || isCut) {
      throw truncatedAnswer(`${given} of ${asked} choices are finished`);
    }
    const choices = given === 1 ? "one choice" : `${given} choices`;
    throw new UpstreamError("request", {
      code: "unsupported_value",
      message:
        `The server of this model gives ${choices} per request, but 'n' asks for ${asked}.`,
      param: "n",
      usage: this.#countedUsage(),
    });
  }

  #takeChoice(said: unknown, position: number): void {
    if (!isJsonObject(said)) throw invalidAnswer("Choice is not an object");
    const index = said.index ?? position;
    const choice = typeof index === "number" ? this.#choices[index] : undefined;
    if (choice === undefined) {
      throw invalidAnswer(`Choice outside 0..${this.#choices.length - 1}`);
    }
    choice.hasBegun = true;
    // A repeat of what is finished; clients take nothing more of it.
    if (isFinished(choice)) return;
    const { answer } = this.#options;
    // A whole response has `message` where a chunk has `delta`.
    const delta = this.#deltaOf(choice, said.delta ?? said.message);
    const logprobs = isJsonObject(said.logprobs) ? said.logprobs : undefined;
    if (logprobs !== undefined || Object.keys(delta).length > 0) {
      this.hasBegun = true;
      answer.addDelta(choice, delta, logprobs);
    }
    const word = textOf(said.finish_reason);
    if (word === "") return;
    choice.calls?.end();
    this.hasBegun = true;
    answer.finish(
      choice,
      finishReasonOf(word, choice.calls?.hasCalls ?? false),
    );
  }

  #deltaOf(choice: Choice, said: unknown): ChunkDelta {
    const delta: ChunkDelta = {};
    if (!isJsonObject(said)) return delta;
    const content = contentOf(said.content);
    const reasoning = textOf(said.reasoning_content) || textOf(said.reasoning);
    const refusal = textOf(said.refusal);
    const fragments = said.tool_calls ?? legacyCall(said.function_call);
    if (content !== "") delta.content = content;
    if (reasoning !== "") delta.reasoning_content = reasoning;
    if (refusal !== "") delta.refusal = refusal;
    for (const text of [content, reasoning, refusal]) this.#count(text);
    if (fragments === null) return delta;
    choice.calls ??= new ToolCallFragments(this.#options.newToolCallId);
    const calls = choice.calls.take(fragments);
    if (calls.length > 0) delta.tool_calls = calls;
    for (const call of calls) this.#count(call.function.arguments ?? "");
    return delta;
  }

  #count(text: string): void {
    if (text === "") return;
    this.#pieces += 1;
    this.#chars += text.length;
    if (this.#sample.length < SAMPLE_CHARS_MAX) this.#sample += text;
  }

  /** What the server counted; one that counts nothing although it said something does not count. */
  #countedUsage(): Usage {
    const usage = this.#usage;
    if (usage !== null && (usage.completion_tokens > 0 || this.#pieces === 0)) {
      return usage;
    }
    const prompt = promptTokensLikely(this.#options.request);
    const share = this.#chars / Math.max(1, this.#sample.length);
    const completion = Math.max(
      Math.ceil(textTokensLikely(this.#sample) * share),
      this.#pieces,
    );
    return {
      prompt_tokens: prompt,
      completion_tokens: completion,
      total_tokens: prompt + completion,
    };
  }
}

function isFinished({ finishReason }: Choice): boolean {
  return finishReason !== null;
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
  return content.filter(isJsonObject).map(({ text }) => textOf(text)).join("");
}

/** `function_call` is what tool calls were before they had a list. */
function legacyCall(call: unknown): unknown {
  return isJsonObject(call) ? [{ index: 0, function: call }] : null;
}

/** The counts that a server sends, read strictly: null unless both are there and make sense. */
export function parseUsage(value: unknown): Usage | null {
  const prompt = countIn(value, "prompt_tokens");
  let completion = countIn(value, "completion_tokens");
  if (!isJsonObject(value) || prompt === null || completion === null) {
    return null;
  }
  const reasoning =
    countIn(value.completion_tokens_details, "reasoning_tokens") ??
      countIn(value, "reasoning_tokens");
  // Some hosts count reasoning beside the completion and not in it; the total tells.
  if (value.total_tokens === prompt + completion + (reasoning ?? 0)) {
    completion += reasoning ?? 0;
  }
  const usage: Usage = {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
  };
  const cached = countIn(value.prompt_tokens_details, "cached_tokens") ??
    countIn(value, "prompt_cache_hit_tokens");
  if (cached !== null && cached <= prompt) {
    usage.prompt_tokens_details = { cached_tokens: cached };
  }
  if (reasoning !== null && reasoning <= completion) {
    usage.completion_tokens_details = { reasoning_tokens: reasoning };
  }
  return usage;
}

/** A member that is an integer from 0 which JSON carries exactly, or null. */
function countIn(holder: unknown, name: string): number | null {
  const value = isJsonObject(holder) ? holder[name] : undefined;
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0
    ? value
    : null;
}

/** Words of servers in use for each of OpenAI's. Closed enums in SDKs allow no others. */
const REASONS: readonly [FinishReason, RegExp][] = [
  [
    "length",
    /^(length|max_tokens|max_length|max_output_tokens|model_length|model_context_window_exceeded)$/,
  ],
  ["tool_calls", /^(tool_calls|tool_use|function_call)$/],
  [
    "content_filter",
    /^(content_filter|safety|sensitive|refusal|recitation|prohibited_content|blocklist)$/,
  ],
];
/** Words that say the answer is not complete. */
const FAILURE =
  /^(abort|aborted|cancelled|error|network_error|insufficient_system_resource|malformed_function_call|timeout)$/;

/**
 * The finish reason for a client. A plain stop after tool calls is `tool_calls`,
 * since agents loop on that word; an unknown word is a stop. Throws
 * `upstream_truncated` for a reason that means failure.
 */
function finishReasonOf(word: string, hasToolCalls: boolean): FinishReason {
  const known = word.toLowerCase();
  if (FAILURE.test(known)) {
    throw truncatedAnswer(`Model server gave the finish reason ${known}`);
  }
  const [reason] = REASONS.find(([, words]) => words.test(known)) ?? [];
  return reason ?? (hasToolCalls ? "tool_calls" : "stop");
}
