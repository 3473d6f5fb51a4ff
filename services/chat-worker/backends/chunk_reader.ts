/**
 * Reads the response of a model server, chunk by chunk or as a whole, into an answer.
 * What it does not know passes; what would break a client is undone where that can be
 * done without guessing, and counted.
 */
import {
  addsUp,
  responseUsage,
  TOKENS_MAX,
} from "@gateway/shared/forward/usage";
import {
  promptTokens,
  TextTokens,
  textTokens,
} from "@gateway/shared/openai/tokens";
import {
  invalidAnswer,
  truncatedAnswer,
  unsupportedAnswer,
} from "@gateway/shared/upstream/http/errors";
import { frameError } from "@gateway/shared/upstream/error_response";
import type { Redact } from "@gateway/shared/upstream/own_answer";
import type { Oddity } from "@gateway/shared/upstream/oddities";
import {
  isJsonObject,
  type JsonObject,
  membersBeside,
  mergedMembers,
  parseJson,
  setMember,
  textOf,
} from "@gateway/shared/upstream/json";
import {
  type ChatAnswer,
  type Choice,
  type ChoicePart,
  hasMembers,
} from "./answer/answer.ts";
import { isErrorChunk, tooFewChoices } from "./chunk_faults.ts";
import { ChunkTemplate } from "./answer/chunk_template.ts";
import { contentOf, reasoningIn } from "./delta_text.ts";
import { finishReasonOf } from "./finish_reason.ts";
import { textOfFragment } from "./answer/tool_calls.ts";
import {
  filledUsage,
  type StatedUsage,
  type UsageBounds,
  usageIn,
} from "./answer/usage.ts";

const FINGERPRINT = /^[\w.:@+-]{1,128}$/;
/**
 * Tokens of a prompt besides those of the bytes that were sent: templates, tools and
 * media that the server fetches.
 */
const PROMPT_TOKENS_MARGIN = 200_000;

/** Members of a chunk, of a choice and of a delta that are read or replaced here. */
const CHUNK_MEMBERS: ReadonlySet<string> = new Set([
  "id",
  "object",
  "created",
  "model",
  "system_fingerprint",
  "usage",
  "choices",
  "error",
]);
const CHOICE_MEMBERS: ReadonlySet<string> = new Set([
  "index",
  "delta",
  "message",
  "logprobs",
  "finish_reason",
  "usage",
]);
const DELTA_MEMBERS: ReadonlySet<string> = new Set([
  "role",
  "content",
  "reasoning_content",
  "refusal",
  "tool_calls",
  "function_call",
]);
/** What a reader reads, and for whom. */
export interface ReaderOptions {
  answer: ChatAnswer;
  /** The choices of the answer that this response has. */
  choices: readonly Choice[];
  redact: Redact;
  /**
   * Bytes of the request: they bound the tokens of the prompt, which have one at least.
   */
  sentBytes?: number;
}

/** What a chunk had for one choice. */
interface TakenChoice {
  choice: Choice;
  /** Null if it had nothing to pass on. */
  part: ChoicePart | null;
  /** Members of earlier chunks were passed on with it. */
  hadMembers: boolean;
  /** The finish reason, or empty. */
  word: string;
}

/** Reads one response; the tests and `tests/corpus` list the cases. */
export class ChunkReader {
  /** The model has sent content or a finish reason. */
  hasBegun = false;
  /** Events that are no chunks, such as keep-alives in data lines. */
  skipped = 0;
  /** An object has come that may be a chunk, if not one of a known form. */
  #hasChunks = false;
  #finishesReplaced = 0;
  #usagesRefused = 0;
  #usagesRepaired = 0;
  readonly #answer: ChatAnswer;
  readonly #choices: readonly Choice[];
  readonly #redact: Redact;
  readonly #bounds: UsageBounds;
  #usage: StatedUsage | null = null;
  /** The usage came last, after all content: nothing is missing. */
  #endsWithUsage = false;
  /**
   * Members of chunks that wait, as those of a {@link Choice} do, for the next text or
   * the finish: by themselves they do not begin an answer, which could then not be
   * repeated.
   */
  #members: JsonObject | undefined;
  /** The chunk that the stream repeats; null if it is not looked for. */
  readonly #template: ChunkTemplate | null;
  readonly #text = new TextTokens();

  constructor({ answer, choices, redact, sentBytes = 0 }: ReaderOptions) {
    this.#answer = answer;
    this.#choices = choices;
    this.#redact = redact;
    const { max_tokens: tokensMax = TOKENS_MAX } = answer.request;
    this.#bounds = {
      promptTokensMax: sentBytes + PROMPT_TOKENS_MARGIN,
      completionTokensMax: tokensMax * choices.length,
    };
    const isOneStream = answer.request.stream && choices.length === 1;
    this.#template = isOneStream ? new ChunkTemplate() : null;
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
    const tokens = this.#usage?.counts.completion_tokens ?? 0;
    return Math.max(tokens, this.#text.leastTokens);
  }

  /**
   * Reads one event, or a whole body. Skips what is no chunk. Throws the error of an
   * error chunk, and `upstream_invalid` for a chunk that breaks the protocol.
   */
  take(payload: string, eventName: string): void {
    if (eventName !== "error" && this.#takeRepeated(payload)) return;
    const chunk = parseJson(payload);
    if (eventName === "error" || (isJsonObject(chunk) && isErrorChunk(chunk))) {
      throw frameError(chunk, this.#redact);
    }
    if (!isJsonObject(chunk)) {
      this.skipped += 1;
      return;
    }
    this.#hasChunks = true;
    const list = chunk.choices ?? [];
    if (!Array.isArray(list)) {
      throw unsupportedAnswer("Choices are not an array");
    }
    // A keep-alive says only its type.
    if (chunk.choices === undefined && typeof chunk.type === "string") {
      this.skipped += 1;
      return;
    }
    this.#noteFingerprint(chunk);
    const hasUsage = this.#noteUsage(chunk);
    this.#endsWithUsage = hasUsage;
    const members = membersBeside(chunk, CHUNK_MEMBERS);
    const isPlain = this.#members === undefined && !hasUsage;
    this.#members = mergedMembers(this.#members, members);
    for (let at = 0; at < list.length; at++) {
      const choice = this.#takeChoice(list[at], at);
      if (isPlain && list.length === 1) this.#learn(payload, choice);
    }
  }

  /** Takes a chunk that differs from an earlier one only in its text. */
  #takeRepeated(payload: string): boolean {
    const [choice] = this.#choices;
    const text = this.#template?.textIn(payload) ?? null;
    if (text === null || choice === undefined) return false;
    if (this.#members !== undefined || choice.members !== undefined) {
      return false;
    }
    this.#count(text);
    this.#answer.addLine(this.#template?.lineOf(text) ?? "");
    this.#endsWithUsage = false;
    choice.ending.take({ hasContent: true, word: "" });
    return true;
  }

  /** Learns a chunk that has nothing but one text. */
  #learn(payload: string, { choice, part, hadMembers, word }: TakenChoice) {
    const template = this.#template;
    if (template === null || !template.isLearning) return;
    if (part === null || hadMembers || word !== "") return;
    const [member = "", ...others] = Object.keys(part.delta);
    const text = part.delta[member];
    if (others.length > 0 || part.logprobs !== undefined) return;
    if (member !== "content" && member !== "reasoning_content") return;
    if (typeof text !== "string") return;
    const surroundings = this.#answer.around(choice, part, member);
    template.learn({ payload, text, member, surroundings });
  }

  /**
   * Finishes every choice and returns the usage, or throws `upstream_truncated`. If a
   * response is whole but lacks choices, the server does not support that number: a
   * fault of the request.
   */
  end({ isWhole }: { isWhole: boolean }): StatedUsage {
    const n = this.#choices.length;
    const isComplete = isWhole || this.#endsWithUsage;
    const wholeChoices = this.#choices.filter(({ ending }) =>
      ending.isWhole({ isComplete })
    );
    const count = wholeChoices.length;
    if (count === n) {
      for (const choice of wholeChoices) this.#finish(choice);
      return this.#countedUsage();
    }
    if (this.skipped > 0 && !this.#hasChunks) {
      throw invalidAnswer("Nothing in the answer is a chunk");
    }
    const begunCount = this.#choices.filter(({ hasBegun }) => hasBegun).length;
    if (isWhole && this.#hasChunks && begunCount === 0) {
      throw unsupportedAnswer("A whole answer without choices");
    }
    if (!isComplete || count === 0 || begunCount > count) {
      throw truncatedAnswer(`${count} of ${n} choices are finished`);
    }
    const usage = this.#countedUsage().counts;
    throw tooFewChoices({ count, n, usage });
  }

  /** Reports what was undone or skipped. Must be called once, after the last chunk. */
  reportOddities(): void {
    this.#report("event_skipped", this.skipped);
    this.#report("arguments_repaired", this.repairs);
    this.#report("finish_replaced", this.#finishesReplaced);
    this.#report("usage_refused", this.#usagesRefused);
    this.#report("usage_repaired", this.#usagesRepaired);
  }

  #report(oddity: Oddity, count: number): void {
    if (count > 0) this.#answer.progress.onOddity(oddity, count);
  }

  #finish(choice: Choice): void {
    const rest = choice.calls.end();
    if (rest.length > 0) {
      const delta = { tool_calls: rest };
      this.#answer.add(choice, this.#partOf(choice, delta));
    }
    const { calls: { hasCalls }, ending: { word } } = choice;
    const reason = finishReasonOf(word, hasCalls);
    if (word === "tool_calls" && !hasCalls) this.#finishesReplaced += 1;
    this.#answer.finish(choice, reason, this.#partOf(choice, {}));
  }

  #noteFingerprint({ system_fingerprint: fingerprint }: JsonObject): void {
    if (this.#answer.isServerKnown) return;
    const text = textOf(fingerprint);
    const isClean = FINGERPRINT.test(text) && this.#redact(text) === text;
    if (isClean) this.#answer.identifyServer(text);
  }

  /**
   * Servers that report progress repeat the usage; the largest is the total. Returns
   * whether there is any.
   */
  #noteUsage(chunk: JsonObject): boolean {
    const usage = usageIn(chunk, this.#bounds);
    if (usage === null) {
      if (responseUsage(chunk.usage) !== null) this.#usagesRefused += 1;
      return false;
    }
    if (!addsUp(chunk.usage)) this.#usagesRepaired += 1;
    const before = this.#usage?.counts.completion_tokens ?? 0;
    if (usage.counts.completion_tokens >= before) this.#usage = usage;
    return true;
  }

  #takeChoice(value: unknown, position: number): TakenChoice {
    if (!isJsonObject(value)) {
      throw unsupportedAnswer("Choice is not an object");
    }
    const { index, logprobs } = value;
    // Some servers write it as a text, or null.
    const choice = this.#choices[Number(index ?? position)];
    if (choice === undefined) {
      throw unsupportedAnswer(`Choice outside 0..${this.#choices.length - 1}`);
    }
    // A whole response has `message` where a chunk has `delta`.
    const delta = this.#deltaOf(choice, value.delta ?? value.message);
    const probabilities = isJsonObject(logprobs) ? logprobs : undefined;
    const hasContent = probabilities !== undefined || hasMembers(delta);
    const hadMembers = choice.members !== undefined;
    const more = membersBeside(value, CHOICE_MEMBERS);
    choice.members = mergedMembers(choice.members, more);
    let part: ChoicePart | null = null;
    if (hasContent) {
      part = this.#partOf(choice, delta, probabilities);
      this.#answer.add(choice, part);
      this.#endsWithUsage = false;
    }
    const word = textOf(value.finish_reason);
    choice.ending.take({ hasContent, word });
    choice.hasBegun = true;
    this.hasBegun ||= hasContent || word !== "";
    return { choice, part, hadMembers, word };
  }

  /** A part of the answer, with the members that have come since the last one. */
  #partOf(
    choice: Choice,
    delta: ChoicePart["delta"],
    logprobs?: JsonObject,
  ): ChoicePart {
    const chunk = this.#members;
    const more = choice.members;
    this.#members = undefined;
    choice.members = undefined;
    return { delta, logprobs, more, chunk };
  }

  #deltaOf(choice: Choice, value: unknown): ChoicePart["delta"] {
    if (!isJsonObject(value)) return {};
    const { tool_calls: fragments = null, function_call: functionCall } = value;
    const delta: ChoicePart["delta"] = {};
    const more = membersBeside(value, DELTA_MEMBERS);
    for (const name in more) {
      if (more[name] !== null) setMember(delta, name, more[name]);
    }
    const content = contentOf(value.content);
    const reasoning = reasoningIn(value);
    const refusal = textOf(value.refusal);
    if (this.#count(content)) delta.content = content;
    if (this.#count(reasoning)) delta.reasoning_content = reasoning;
    if (this.#count(refusal)) delta.refusal = refusal;
    // llama-cpp-python says each call twice, and SDKs would believe the older form.
    const isTwice = Array.isArray(fragments) && fragments.length > 0;
    if (isJsonObject(functionCall) && !isTwice) {
      delta.function_call = functionCall;
    }
    const calls = fragments === null ? [] : choice.calls.take(fragments);
    if (calls.length > 0) delta.tool_calls = calls;
    for (const call of calls) this.#count(textOfFragment(call));
    return delta;
  }

  /** Whether there is any text. */
  #count(text: string): boolean {
    if (text === "") return false;
    this.#text.add(textTokens(text));
    return true;
  }

  /** The server's usage, with estimates of what it does not state. */
  #countedUsage(): StatedUsage {
    const { pieces, estimate } = this.#text;
    return filledUsage(this.#usage, {
      promptTokens: () => promptTokens(this.#answer.request),
      completionTokens: pieces === 0 ? 0 : estimate,
    });
  }
}
