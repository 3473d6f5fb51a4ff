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
import { asksForFormat, frameError, type Redact } from "./refusal.ts";
import { ToolCallFragments } from "./tool_calls.ts";

const FINGERPRINT = /^[\w.:@+-]{1,128}$/;

interface ChoiceState {
  /** Null until the choice calls a tool. */
  toolCalls: ToolCallFragments | null;
  hasBegun: boolean;
  isFinished: boolean;
}

/** What a {@link ChunkReader} needs. */
export interface ChunkReaderOptions {
  request: ChatRequest;
  /** An id for a tool call whose server gave none. */
  newToolCallId: () => string;
  redact: Redact;
}

/** Reads one answer, and takes off what would break a client: see the cases in its test. */
export class ChunkReader {
  /** Something of the answer has been passed on. */
  hasBegun = false;
  readonly #options: ChunkReaderOptions;
  readonly #choices: ChoiceState[];
  readonly #text = new TextSample();
  #unfinished: number;
  #usage: Usage | null = null;
  #fingerprint = "";

  constructor(options: ChunkReaderOptions) {
    this.#options = options;
    this.#unfinished = options.request.n;
    this.#choices = Array.from({ length: options.request.n }, () => ({
      toolCalls: null,
      hasBegun: false,
      isFinished: false,
    }));
  }

  /** Every choice has its finish reason. */
  get isFinished(): boolean {
    return this.#unfinished === 0;
  }

  /**
   * Takes one `data` payload, or a whole response body, and appends events to
   * `out`. `eventName` is that of the event stream, `""` if there is none.
   * Throws `upstream_invalid` for what is not a chunk, and the error that an
   * error frame stands for.
   */
  take(payload: string, eventName: string, out: BackendEvent[]): void {
    const { request, redact } = this.#options;
    const chunk = parseJson(payload);
    if (eventName === "error" || (isJsonObject(chunk) && isErrorChunk(chunk))) {
      throw frameError(chunk, {
        redact,
        asksForFormat: asksForFormat(request),
      });
    }
    if (!isJsonObject(chunk)) throw invalidAnswer("Not a JSON object");
    this.#fingerprint ||= textOf(chunk.system_fingerprint);
    // Servers that report progress repeat the usage: the last one is the sum.
    this.#usage = parseUsage(chunk.usage) ?? this.#usage;
    const list = chunk.choices ?? [];
    if (!Array.isArray(list)) throw invalidAnswer("Choices are not an array");
    for (const [at, each] of list.entries()) this.#takeChoice(each, at, out);
    if (this.hasBegun || out.length === 0) return;
    this.hasBegun = true;
    const fingerprint = this.#fingerprint;
    if (FINGERPRINT.test(fingerprint) && redact(fingerprint) === fingerprint) {
      out.unshift({ type: "fingerprint", fingerprint });
    }
  }

  /**
   * The answer is over: appends `usage`, or throws `upstream_truncated`. Where
   * the server said itself that this is all (`isWhole`), and choices that were
   * asked for never began beside others that are finished, it gives no more: a
   * fault of the request, with the usage of what it made.
   */
  end(out: BackendEvent[], isWhole: boolean): void {
    if (this.isFinished) {
      out.push({ type: "usage", usage: this.#countedUsage() });
      return;
    }
    const asked = this.#options.request.n;
    const given = asked - this.#unfinished;
    const isCut = this.#choices.some((each) =>
      each.hasBegun && !each.isFinished
    );
    if (!isWhole || given === 0 || isCut) {
      throw truncatedAnswer(
        `${this.#unfinished} of ${asked} choices have no finish reason`,
      );
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

  #takeChoice(choice: unknown, position: number, out: BackendEvent[]): void {
    if (!isJsonObject(choice)) throw invalidAnswer("Choice is not an object");
    const index = choice.index ?? position;
    const state = typeof index === "number" ? this.#choices[index] : undefined;
    if (typeof index !== "number" || state === undefined) {
      throw invalidAnswer(
        `Choice index outside 0..${this.#choices.length - 1}`,
      );
    }
    state.hasBegun = true;
    // A repeat of what is finished; clients take nothing more of it.
    if (state.isFinished) return;
    this.#takeDelta(index, state, choice, out);
    const word = textOf(choice.finish_reason);
    if (word === "") return;
    state.toolCalls?.end();
    const reason = finishReasonOf(word, state.toolCalls?.hasCalls ?? false);
    out.push({ type: "finish", index, reason });
    state.isFinished = true;
    this.#unfinished--;
  }

  #takeDelta(
    index: number,
    state: ChoiceState,
    choice: JsonObject,
    out: BackendEvent[],
  ): void {
    // A whole response has `message` where a chunk has `delta`.
    const delta = choice.delta ?? choice.message;
    if (!isJsonObject(delta)) return;
    const content = contentOf(delta.content);
    const reasoning = textOf(delta.reasoning_content) ||
      textOf(delta.reasoning);
    const refusal = textOf(delta.refusal);
    const toolCalls = this.#takeToolCalls(state, delta);
    const event: BackendEvent & { type: "delta" } = { type: "delta", index };
    if (content !== "") event.content = content;
    if (reasoning !== "") event.reasoning = reasoning;
    if (refusal !== "") event.refusal = refusal;
    if (toolCalls.length > 0) event.toolCalls = toolCalls;
    if (isJsonObject(choice.logprobs)) event.logprobs = choice.logprobs;
    if (Object.keys(event).length === 2) return;
    for (const text of [content, reasoning, refusal]) this.#text.add(text);
    out.push(event);
  }

  #takeToolCalls(state: ChoiceState, delta: JsonObject): ToolCallDelta[] {
    const fragments = delta.tool_calls ?? legacyCall(delta.function_call);
    if (fragments === null) return [];
    const news: ToolCallDelta[] = [];
    state.toolCalls ??= new ToolCallFragments(this.#options.newToolCallId);
    state.toolCalls.take(fragments, news);
    for (const call of news) this.#text.add(call.function.arguments ?? "");
    return news;
  }

  /** What the server counted; one that counts nothing although it said something does not count. */
  #countedUsage(): Usage {
    const usage = this.#usage;
    if (usage !== null && (usage.completion_tokens > 0 || this.#text.isEmpty)) {
      return usage;
    }
    const prompt = promptTokensLikely(this.#options.request);
    const completion = this.#text.likelyTokens;
    return {
      prompt_tokens: prompt,
      completion_tokens: completion,
      total_tokens: prompt + completion,
    };
  }
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
  return content.filter(isJsonObject).map(({ text }) => textOf(text)).join("");
}

/** `function_call` is what tool calls were before they had a list. */
function legacyCall(call: unknown): unknown {
  return isJsonObject(call) ? [{ index: 0, function: call }] : null;
}

/** Characters that are kept of an answer. */
const SAMPLE_CHARS_MAX = 64 * 1024;

/** The beginning of an answer, for the case that nobody counts its tokens. */
class TextSample {
  #pieces = 0;
  #text = "";
  #chars = 0;

  add(text: string): void {
    if (text === "") return;
    this.#pieces++;
    this.#chars += text.length;
    if (this.#text.length < SAMPLE_CHARS_MAX) this.#text += text;
  }

  get isEmpty(): boolean {
    return this.#pieces === 0;
  }

  /** Tokens by the text, but never less than one per piece: most servers send one token at a time. */
  get likelyTokens(): number {
    const perSample = this.#chars / Math.max(1, this.#text.length);
    const tokens = Math.ceil(textTokensLikely(this.#text) * perSample);
    return Math.max(tokens, this.#pieces);
  }
}

/** The counts that a server sends, read strictly: null unless both are there and make sense. */
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
