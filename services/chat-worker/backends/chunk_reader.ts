/**
 * Reads the response of a model server, chunk by chunk or as a whole, into an answer.
 * What it does not know passes; what would break a client is undone where that can be
 * done without guessing, and counted.
 */
import type { Usage } from "@gateway/shared/openai/completion";
import { promptTokens, textTokens } from "@gateway/shared/openai/tokens";
import {
  invalidAnswer,
  truncatedAnswer,
  UpstreamError,
} from "@gateway/shared/upstream/errors";
import {
  frameError,
  type Redact,
} from "@gateway/shared/upstream/error_response";
import {
  isJsonObject,
  type JsonObject,
  parseJson,
  textOf,
} from "@gateway/shared/upstream/json";
import {
  type ChatAnswer,
  type Choice,
  type ChoicePart,
  hasMembers,
} from "./answer.ts";
import { finishReasonOf } from "./finish_reason.ts";
import type { CallFragment } from "./tool_calls.ts";
import {
  type StatedUsage,
  TOKENS_MAX,
  type UsageBounds,
  usageIn,
} from "./usage.ts";

const FINGERPRINT = /^[\w.:@+-]{1,128}$/;
/**
 * Tokens of a prompt besides those of the bytes that were sent: templates, tools and
 * media that the server fetches.
 */
const PROMPT_TOKENS_MARGIN = 200_000;

/** A piece of text whose estimate is not above this counts as one token: 16 bytes. */
const ONE_TOKEN_MAX = 4;

/** What a reader reads, and for whom. */
export interface ReaderOptions {
  answer: ChatAnswer;
  /** The choices of the answer that this response has. */
  choices: readonly Choice[];
  redact: Redact;
  /** Bytes of the request: a token of the prompt is not shorter than one. */
  sentBytes?: number;
}

/** Reads one response; the tests and `tests/corpus` list the cases. */
export class ChunkReader {
  /** The model has sent content or a finish reason. */
  hasBegun = false;
  /** Events that are no chunks, such as keep-alives in data lines. */
  skipped = 0;
  readonly #answer: ChatAnswer;
  readonly #choices: readonly Choice[];
  readonly #redact: Redact;
  readonly #bounds: UsageBounds;
  #usage: StatedUsage | null = null;
  /** The usage came last, after all content: nothing is missing. */
  #endsWithUsage = false;
  /**
   * Members of chunks, and of choices, that wait for the next text or the finish: by
   * themselves they do not begin an answer, which could then not be repeated.
   */
  #members: JsonObject = {};
  readonly #moreOf = new Map<Choice, JsonObject>();
  #pieces = 0;
  #estimate = 0;
  #tokensShown = 0;

  constructor({ answer, choices, redact, sentBytes = 0 }: ReaderOptions) {
    this.#answer = answer;
    this.#choices = choices;
    this.#redact = redact;
    const { max_tokens: tokensMax = TOKENS_MAX } = answer.request;
    this.#bounds = {
      promptTokensMax: sentBytes + PROMPT_TOKENS_MARGIN,
      completionTokensMax: tokensMax * choices.length,
    };
    answer.counters.push(this);
  }

  /** Whether nothing more can come for any choice. */
  get isFinished(): boolean {
    return this.#choices.every(({ ending }) => ending.isSure);
  }

  /** How often tool calls had to be repaired. */
  get repairs(): number {
    return this.#choices.reduce((sum, { calls }) => sum + calls.repairs, 0);
  }

  /**
   * Completion tokens so far: the largest of what the server has stated and what its
   * text shows.
   */
  get tokens(): number {
    const stated = this.#usage?.counted.completion_tokens ?? 0;
    return Math.max(stated, this.#tokensShown);
  }

  /**
   * Reads one event, or a whole body. Skips what is no chunk. Throws the error of an
   * error chunk, and `upstream_invalid` for a chunk that breaks the protocol.
   */
  take(payload: string, eventName: string): void {
    const chunk = parseJson(payload);
    if (eventName === "error" || (isJsonObject(chunk) && isErrorChunk(chunk))) {
      throw frameError(chunk, this.#redact);
    }
    if (!isJsonObject(chunk)) {
      this.skipped += 1;
      return;
    }
    this.#noteFingerprint(chunk);
    this.#endsWithUsage = this.#noteUsage(chunk);
    const {
      id: _id,
      object: _object,
      created: _created,
      model: _model,
      system_fingerprint: _fingerprint,
      usage: _usage,
      choices: given,
      error: _error,
      ...members
    } = chunk;
    const list = given ?? [];
    if (!Array.isArray(list)) throw invalidAnswer("Choices are not an array");
    // A keep-alive says only its type.
    if (given === undefined && typeof members.type === "string") {
      this.skipped += 1;
      return;
    }
    Object.assign(this.#members, members);
    for (const [at, each] of list.entries()) this.#takeChoice(each, at);
  }

  /**
   * Finishes every choice and returns the usage, or throws `upstream_truncated`. If a
   * response is whole but lacks choices, the server does not support so many: a fault
   * of the request.
   */
  end(isWhole: boolean): StatedUsage {
    const requested = this.#choices.length;
    const isComplete = isWhole || this.#endsWithUsage;
    const given = this.#choices.filter(({ ending }) =>
      ending.isWhole(isComplete)
    );
    if (given.length === requested) {
      for (const choice of given) this.#finish(choice);
      return this.#countedUsage();
    }
    if (this.skipped > 0 && !this.hasBegun) {
      throw invalidAnswer("Nothing in the answer is a chunk");
    }
    const begun = this.#choices.filter(({ hasBegun }) => hasBegun).length;
    if (!isComplete || given.length === 0 || begun > given.length) {
      const finished = `${given.length} of ${requested} choices are finished`;
      throw truncatedAnswer(finished);
    }
    throw this.#tooFewChoices(given.length);
  }

  #tooFewChoices(given: number): UpstreamError {
    const choices = given === 1 ? "one choice" : `${given} choices`;
    const message =
      `The server of this model returns ${choices} per request, ` +
      `but 'n' is ${this.#choices.length}.`;
    return new UpstreamError("request", {
      code: "unsupported_value",
      message,
      param: "n",
      usage: this.#countedUsage().counted,
    });
  }

  #finish(choice: Choice): void {
    const rest = choice.calls.end();
    if (rest.length > 0) {
      const delta = { tool_calls: rest };
      this.#answer.add(choice, { delta, ...this.#membersFor(choice) });
    }
    const { hasCalls } = choice.calls;
    const reason = finishReasonOf(choice.ending.word, hasCalls);
    this.#answer.finish(choice, reason, this.#membersFor(choice));
  }

  #noteFingerprint({ system_fingerprint: fingerprint }: JsonObject): void {
    if (this.#answer.fingerprint !== null) return;
    const text = textOf(fingerprint);
    const isClean = FINGERPRINT.test(text) && this.#redact(text) === text;
    if (isClean) this.#answer.fingerprint = text;
  }

  /**
   * Servers that report progress repeat the usage; the largest is the total. Returns
   * whether there is any.
   */
  #noteUsage(chunk: JsonObject): boolean {
    const usage = usageIn(chunk, this.#bounds);
    if (usage === null) return false;
    const before = this.#usage?.counted.completion_tokens ?? 0;
    if (usage.counted.completion_tokens >= before) this.#usage = usage;
    return true;
  }

  #takeChoice(said: unknown, position: number): void {
    if (!isJsonObject(said)) throw invalidAnswer("Choice is not an object");
    const {
      index = position,
      delta: part,
      message,
      logprobs,
      finish_reason: word,
      usage: _usage,
      ...more
    } = said;
    const choice = typeof index === "number" ? this.#choices[index] : undefined;
    if (choice === undefined) {
      throw invalidAnswer(`Choice outside 0..${this.#choices.length - 1}`);
    }
    // A whole response has `message` where a chunk has `delta`.
    const delta = this.#deltaOf(choice, part ?? message);
    const probabilities = isJsonObject(logprobs) ? logprobs : undefined;
    const hasContent = probabilities !== undefined || hasMembers(delta);
    if (hasMembers(more)) {
      this.#moreOf.set(choice, { ...this.#moreOf.get(choice), ...more });
    }
    if (hasContent) {
      this.#answer.add(choice, {
        delta,
        logprobs: probabilities,
        ...this.#membersFor(choice),
      });
      this.#endsWithUsage = false;
    }
    const reason = textOf(word);
    choice.ending.take({ hasContent, word: reason });
    choice.hasBegun = true;
    this.hasBegun ||= hasContent || reason !== "";
  }

  /** The members that have come since the last part of the answer. */
  #membersFor(choice: Choice): Pick<ChoicePart, "more" | "chunk"> {
    const chunk = this.#members;
    const more = this.#moreOf.get(choice);
    this.#members = {};
    this.#moreOf.delete(choice);
    return { more, chunk };
  }

  #deltaOf(choice: Choice, said: unknown): JsonObject & {
    tool_calls?: CallFragment[];
  } {
    if (!isJsonObject(said)) return {};
    const {
      role: _role,
      content,
      reasoning_content: _thought,
      refusal,
      tool_calls: fragments,
      function_call: called,
      ...more
    } = said;
    const delta: JsonObject & { tool_calls?: CallFragment[] } = {};
    for (const [name, value] of Object.entries(more)) {
      if (value !== null) delta[name] = value;
    }
    const thought = reasoningIn(said);
    const texts = { content: contentOf(content), refusal: textOf(refusal) };
    if (this.#count(texts.content)) delta.content = texts.content;
    if (this.#count(thought)) delta.reasoning_content = thought;
    if (this.#count(texts.refusal)) delta.refusal = texts.refusal;
    if (isJsonObject(called)) delta.function_call = called;
    const calls = fragments === undefined || fragments === null
      ? []
      : choice.calls.take(fragments);
    if (calls.length > 0) delta.tool_calls = calls;
    for (const call of calls) this.#count(call.function.arguments);
    return delta;
  }

  /** Whether there is any text. */
  #count(text: string): boolean {
    if (text === "") return false;
    const tokens = textTokens(text);
    this.#pieces += 1;
    this.#estimate += tokens;
    // Servers send a token at a time, and few tokens are long.
    this.#tokensShown += tokens <= ONE_TOKEN_MAX ? 1 : Math.floor(tokens);
    return true;
  }

  /**
   * The server's usage, or an estimate if there is none, or if it is 0 although there
   * was an answer.
   */
  #countedUsage(): StatedUsage {
    const stated = this.#usage;
    const isStated = stated !== null &&
      (stated.counted.completion_tokens > 0 || this.#pieces === 0);
    if (isStated) return stated;
    const prompt = promptTokens(this.#answer.request);
    const completion = Math.max(Math.ceil(this.#estimate), this.#pieces);
    const counted: Usage = {
      prompt_tokens: prompt,
      completion_tokens: completion,
      total_tokens: prompt + completion,
    };
    return { counted, shown: { ...counted } };
  }
}

/** `error: null` is not an error: some servers always send it. */
function isErrorChunk(chunk: JsonObject): boolean {
  if (chunk.error !== undefined && chunk.error !== null) return true;
  return chunk.object === "error" ||
    (chunk.choices === undefined && chunk.usage === undefined &&
      typeof chunk.message === "string");
}

/** The thinking of a delta, under the names that servers give it. */
function reasoningIn(delta: JsonObject): string {
  return textOf(delta.reasoning_content) || textOf(delta.reasoning) ||
    thinkingIn(delta.content);
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
