/**
 * The answer to one attempt, as the lines that an edge forwards: what the model server
 * says, with the members that SDKs depend on.
 */
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { FinishReason } from "@gateway/shared/openai/completion";
import {
  isJsonObject,
  type JsonObject,
  mergedMembers,
  setMember,
} from "@gateway/shared/upstream/json";
import type { AttemptProgress } from "@gateway/shared/upstream/attempt";
import type { HeldBytes } from "@gateway/shared/worker/jobs/memory";
import { TOKENS_MAX } from "@gateway/shared/forward/usage";
import type { JobContext } from "@gateway/shared/worker/jobs/job_ports";
import { ChoiceEnding } from "./choice_ending.ts";
import type { Surroundings } from "./chunk_template.ts";
import { type ToolCallFragment, ToolCallFragments } from "./tool_calls.ts";
import type { StatedUsage } from "./usage.ts";

/**
 * Characters of the request id in the id of a tool call: some servers accept at most 40
 * in total.
 */
const CALL_ID_CHARS = 24;
/** Members of a delta that are pieces of one text. */
const TEXTS = new Set(["content", "reasoning_content", "reasoning", "refusal"]);

/** One of the candidate replies. */
export interface Choice {
  readonly index: number;
  /** The server has mentioned it. */
  hasBegun: boolean;
  readonly ending: ChoiceEnding;
  readonly calls: ToolCallFragments;
  /** Members that wait for its next text or its finish. */
  members: JsonObject | undefined;
}

/** What a chunk adds to a choice. */
export interface ChoicePart {
  delta: JsonObject & { tool_calls?: ToolCallFragment[] };
  logprobs?: JsonObject | undefined;
  /** Further members of the choice. */
  more?: JsonObject | undefined;
  /** Further members of the chunk. */
  chunk?: JsonObject | undefined;
}

/** The parts of one choice that a whole answer collects. */
interface Collected {
  message: JsonObject & { tool_calls?: ToolCallFragment[] };
  logprobs: JsonObject | null;
  more: JsonObject | undefined;
  finishReason: FinishReason;
}

/** Something that knows how many tokens of the answer it has read so far. */
interface TokenCounter {
  readonly tokens: number;
}

/** The request that an answer is for, and who is told of its progress. */
export interface AnswerOptions {
  request: ChatRequest;
  context: JobContext;
  /** Told of the first delta or finish reason, and of the first line passed on. */
  progress: AttemptProgress;
  /** Counts the bytes of a whole answer. */
  heldBytes: HeldBytes;
}

/** Collects the output of a model and passes it on as lines. */
export class ChatAnswer {
  readonly request: ChatRequest;
  readonly context: JobContext;
  readonly progress: AttemptProgress;
  readonly heldBytes: HeldBytes;
  readonly choices: readonly Choice[];
  /** The counters that read responses into the answer. */
  readonly counters: TokenCounter[] = [];
  #fingerprint: string | null = null;
  #isOneBody = false;
  #hasBegun = false;
  #lines = "";
  /** What each chunk of a stream begins with. */
  #prefix = "";
  /** The parts of a whole answer; a stream keeps nothing. */
  readonly #collected: readonly Collected[];
  #chunkMembers: JsonObject | undefined;

  constructor({ request, context, progress, heldBytes }: AnswerOptions) {
    this.request = request;
    this.context = context;
    this.progress = progress;
    this.heldBytes = heldBytes;
    const idPrefix = `call_${context.requestId.slice(0, CALL_ID_CHARS)}`;
    const indexes = Array.from({ length: request.n }, (_, index) => index);
    this.choices = indexes.map((index): Choice => ({
      index,
      hasBegun: false,
      ending: new ChoiceEnding(),
      calls: new ToolCallFragments(`${idPrefix}_${index}`),
      members: undefined,
    }));
    this.#collected = request.stream ? [] : indexes.map((): Collected => ({
      message: { role: "assistant", content: null, refusal: null },
      logprobs: null,
      more: undefined,
      finishReason: "stop",
    }));
  }

  /** Whether {@link identifyServer} was called. */
  get isServerKnown(): boolean {
    return this.#fingerprint !== null;
  }

  /**
   * Keeps the first text that identifies the server's build and weights. Must be called
   * before the first delta.
   */
  identifyServer(fingerprint: string): void {
    this.#fingerprint ??= fingerprint;
  }

  /** The server sends one body: its arrival is not that of a first token. */
  expectOneBody(): void {
    this.#isOneBody = true;
  }

  /** Adds a part to a choice. */
  add(choice: Choice, part: ChoicePart): void {
    this.#begin(part.delta.tool_calls === undefined ? null : choice);
    if (this.request.stream) return this.#addChunk(choice.index, part);
    const collected = this.#collected[choice.index];
    if (collected !== undefined) collect(collected, part);
    this.#chunkMembers = mergedMembers(this.#chunkMembers, part.chunk);
  }

  /** Adds a line of a stream that {@link around} has shown how to write. */
  addLine(line: string): void {
    this.#lines += line;
  }

  /** What {@link add} writes around the only text of a part, in a stream. */
  around(choice: Choice, part: ChoicePart, member: string): Surroundings {
    const name = JSON.stringify(member);
    return {
      head: `${this.#chunkHead(choice.index)}{${name}:"`,
      tail: `"}${this.#chunkTail(part, "null")}`,
    };
  }

  /** Adds the end of a choice, once nothing can follow it, with further members. */
  finish(
    choice: Choice,
    reason: FinishReason,
    part: ChoicePart = { delta: {} },
  ): void {
    this.#begin(null);
    if (this.request.stream) {
      return this.#addChunk(choice.index, part, `"${reason}"`);
    }
    const collected = this.#collected[choice.index];
    if (collected === undefined) return;
    collected.finishReason = reason;
    collect(collected, part);
    this.#chunkMembers = mergedMembers(this.#chunkMembers, part.chunk);
  }

  /** Passes on what has been collected; returns what {@link JobContext.write} returns. */
  flush(tokens: number = this.#tokens()): Promise<void> | undefined {
    const lines = this.#lines;
    this.#lines = "";
    if (lines !== "") this.progress.hasSent = true;
    return this.context.write(lines, tokens);
  }

  /**
   * Passes on the last lines, once every choice has finished; returns what {@link
   * flush} returns.
   */
  end({ counts, members }: StatedUsage): Promise<void> | undefined {
    if (!this.request.stream) this.#lines = this.#wholeResponse(members);
    else if (this.request.include_usage) {
      this.#lines += `${this.#prefix}],"usage":${JSON.stringify(members)}}\n`;
    }
    return this.flush(counts.completion_tokens);
  }

  #tokens(): number {
    const sum = this.counters.reduce((sum, { tokens }) => sum + tokens, 0);
    return Math.min(sum, TOKENS_MAX);
  }

  /**
   * At the first delta or finish reason, adds the role chunk of every choice, in order.
   * Some SDKs consider an answer complete once every choice seen so far has finished,
   * so all appear at once. `calling` is the choice that starts with a tool call.
   */
  #begin(calling: Choice | null): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    this.progress.onBegun(this.#isOneBody ? "whole" : undefined);
    if (!this.request.stream) return;
    const { requestId, created } = this.context;
    this.#prefix = `{"id":"chatcmpl-${requestId}"` +
      `,"object":"chat.completion.chunk","created":${created}` +
      `,"model":${JSON.stringify(this.request.model)}` +
      `,"system_fingerprint":${JSON.stringify(this.#fingerprint)},"choices":[`;
    for (const choice of this.choices) {
      const content = choice === calling ? null : "";
      this.#addChunk(choice.index, { delta: { role: "assistant", content } });
    }
  }

  #addChunk(index: number, part: ChoicePart, reason = "null"): void {
    this.#lines += this.#chunkHead(index) + JSON.stringify(part.delta) +
      this.#chunkTail(part, reason);
  }

  #chunkHead(index: number): string {
    return `${this.#prefix}{"index":${index},"delta":`;
  }

  /** What follows a delta; `reason` is JSON. */
  #chunkTail({ logprobs, more, chunk }: ChoicePart, reason: string): string {
    const probabilities = logprobs === undefined
      ? "null"
      : JSON.stringify(logprobs);
    return `,"logprobs":${probabilities},"finish_reason":${reason}` +
      `${tail(more)}}]${this.#usageNull()}${tail(chunk)}}\n`;
  }

  #usageNull(): string {
    return this.request.include_usage ? `,"usage":null` : "";
  }

  #wholeResponse(usage: JsonObject): string {
    const completion = {
      id: `chatcmpl-${this.context.requestId}`,
      object: "chat.completion",
      created: this.context.created,
      model: this.request.model,
      choices: this.#collected.map((collected, index) => {
        const { message, logprobs, finishReason, more } = collected;
        // Content is null beside tool calls or a refusal; an answer without any text is
        // "".
        if (message.tool_calls === undefined && message.refusal === null) {
          message.content ??= "";
        }
        for (const call of message.tool_calls ?? []) {
          Reflect.deleteProperty(call, "index");
        }
        return {
          index,
          message,
          logprobs,
          finish_reason: finishReason,
          ...more,
        };
      }),
      usage,
      system_fingerprint: this.#fingerprint,
      ...this.#chunkMembers,
    };
    return JSON.stringify(completion) + "\n";
  }
}

/** Members as they follow others in an object: `,"a":1`, or nothing. */
function tail(members: JsonObject | undefined): string {
  if (members === undefined) return "";
  const text = JSON.stringify(members);
  return text === "{}" ? "" : `,${text.slice(1, -1)}`;
}

function collect(
  collected: Collected,
  { delta, logprobs, more }: ChoicePart,
): void {
  const { message } = collected;
  for (const name in delta) {
    if (name === "tool_calls") continue;
    const combine = TEXTS.has(name) ? joined : combined;
    setMember(message, name, combine(message[name], delta[name]));
  }
  for (const fragment of delta.tool_calls ?? []) {
    message.tool_calls ??= [];
    addFragment(message.tool_calls, fragment);
  }
  collected.more = mergedMembers(collected.more, more);
  if (logprobs === undefined) return;
  collected.logprobs ??= { content: null, refusal: null };
  for (const [name, value] of Object.entries(logprobs)) {
    collected.logprobs[name] = combined(collected.logprobs[name], value);
  }
}

/** A member of several deltas that is a text: its pieces together. */
function joined(before: unknown, value: unknown): unknown {
  return typeof before === "string" && typeof value === "string"
    ? before + value
    : combined(before, value);
}

/** A member of several deltas: a list that grows, or the last value. */
function combined(before: unknown, value: unknown): unknown {
  if (value === null || value === undefined) return before ?? null;
  if (!Array.isArray(before) || !Array.isArray(value)) return value;
  // A long answer has thousands of entries, so the list is extended in place.
  for (const each of value) before.push(each);
  return before;
}

function addFragment(
  calls: ToolCallFragment[],
  fragment: ToolCallFragment,
): void {
  const { index, function: called, custom, ...more } = fragment;
  const call = calls[index];
  if (call === undefined) {
    calls[index] = {
      ...fragment,
      ...called && { function: { ...called } },
      ...custom && { custom: { ...custom } },
    };
    return;
  }
  Object.assign(call, more);
  if (called !== undefined) {
    const text = `${call.function?.arguments ?? ""}${called.arguments}`;
    call.function = { ...call.function, ...called, arguments: text };
  }
  if (custom !== undefined) {
    const text = `${call.custom?.input ?? ""}${custom.input}`;
    call.custom = { ...call.custom, ...custom, input: text };
  }
}

/** Whether a value is worth passing on by itself. */
export const hasMembers = (value: unknown): value is JsonObject =>
  isJsonObject(value) && Object.keys(value).length > 0;
