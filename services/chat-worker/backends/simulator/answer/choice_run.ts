import type { BackendEvent } from "../../backend.ts";
import type { FinishReason } from "@gateway/shared/openai/chat";
import { END_TOKEN } from "../language/vocabulary.ts";
import { TextAssembler } from "../language/text_assembler.ts";
import {
  certainLogprob,
  sampledLogprob,
  type TokenLogprob,
  toLogprobs,
} from "../sampling/logprobs.ts";
import { ContentGate } from "./content_gate.ts";
import { isOver } from "./ending.ts";
import type { Channel, Script, Segment } from "./script.ts";
import { Writer, type WriterOptions } from "./writer.ts";

/** Options of {@link ChoiceRun}. */
export interface ChoiceRunOptions extends WriterOptions {
  index: number;
  script: Script;
  stops: readonly string[];
  /** Of reasoning, content and calls together. */
  tokensMax: number;
  /** Of reasoning alone. */
  reasoningTokensMax: number;
  /** How many alternatives to list beside each token. Absent: no log probabilities. */
  topLogprobs?: number;
}

/** One choice of an answer on its way: each step says one token. */
export class ChoiceRun {
  /** Tokens said so far. */
  completionTokens = 0;
  /** Those of them that were reasoning. */
  reasoningTokens = 0;
  isFinished = false;
  readonly #options: ChoiceRunOptions;
  readonly #writer: Writer;
  readonly #gate: ContentGate;
  readonly #reasoning: TextAssembler;
  readonly #arguments: TextAssembler;
  #channel: Channel | undefined;
  /** The segment at work, and how many tokens of it are said. */
  #segment = 0;
  #place = 0;

  constructor(options: ChoiceRunOptions) {
    const { vocabulary } = options.language.tokenizer;
    this.#options = options;
    this.#writer = new Writer(options);
    this.#gate = new ContentGate(vocabulary, options.stops);
    this.#reasoning = new TextAssembler(vocabulary);
    this.#arguments = new TextAssembler(vocabulary);
  }

  /** Says one more token, or ends the choice, and adds what there is to tell to `events`. */
  step(events: BackendEvent[]): void {
    while (!this.isFinished) {
      const segment = this.#options.script.segments[this.#segment];
      if (segment === undefined) {
        this.#finish(this.#options.script.reason, events);
      } else if (this.#say(segment, events)) {
        this.#endIfDone(events);
        return;
      } else {
        this.#segment += 1;
        this.#place = 0;
      }
    }
  }

  /** Says the next token of a segment; false when the segment is over. */
  #say(segment: Segment, events: BackendEvent[]): boolean {
    if (segment.type === "call") return this.#sayCall(segment, events);
    const { channel } = segment;
    if (channel === "reasoning" && this.#isReasoningFull()) return false;
    this.#enter(channel);
    const token = segment.type === "fixed"
      ? segment.tokens[this.#place] ?? END_TOKEN
      : this.#sample(segment);
    if (token === END_TOKEN) return false;
    if (segment.type === "fixed") this.#writer.say(token);
    this.#count(channel);
    if (channel === "reasoning") this.#emitReasoning(token, events);
    else this.#emitContent(token, segment.type, events);
    return true;
  }

  #sample(segment: Segment & { type: "sampled" }): number {
    const { bias, length } = segment;
    if (segment.isNewText && this.#place === 0) this.#writer.restart();
    if (isOver(length, this.#place)) return END_TOKEN;
    return this.#writer.next(bias, length, this.#place);
  }

  #sayCall(
    segment: Segment & { type: "call" },
    events: BackendEvent[],
  ): boolean {
    const { index, id, name, tokens } = segment;
    if (this.#place > tokens.length) return false;
    const call = this.#place === 0
      ? {
        index,
        id,
        type: "function" as const,
        function: { name, arguments: "" },
      }
      : this.#argumentsPart(index, tokens[this.#place - 1] ?? END_TOKEN);
    this.#count("content");
    if (call !== undefined) {
      events.push({
        type: "delta",
        index: this.#options.index,
        toolCalls: [call],
      });
    }
    return true;
  }

  #argumentsPart(index: number, token: number) {
    const text = this.#arguments.push(token);
    return text === "" ? undefined : { index, function: { arguments: text } };
  }

  #enter(channel: Channel): void {
    if (this.#channel === channel) return;
    this.#channel = channel;
    this.#writer.restart();
  }

  #count(channel: Channel): void {
    this.#place += 1;
    this.completionTokens += 1;
    if (channel === "reasoning") this.reasoningTokens += 1;
  }

  #isReasoningFull(): boolean {
    return this.reasoningTokens >= this.#options.reasoningTokensMax;
  }

  #emitReasoning(token: number, events: BackendEvent[]): void {
    const reasoning = this.#reasoning.push(token);
    if (reasoning === "") return;
    events.push({ type: "delta", index: this.#options.index, reasoning });
  }

  #emitContent(
    token: number,
    type: "fixed" | "sampled",
    events: BackendEvent[],
  ): void {
    const text = this.#gate.push(token, this.#logprobOf(token, type));
    this.#emitText(text, events);
    if (this.#gate.isStopped) this.#finish("stop", events);
  }

  #emitText(content: string, events: BackendEvent[]): void {
    const { index, topLogprobs } = this.#options;
    if (topLogprobs === undefined) {
      if (content !== "") events.push({ type: "delta", index, content });
      return;
    }
    const entries = this.#gate.takeLogprobs();
    if (content === "" && entries.length === 0) return;
    const logprobs = toLogprobs(entries);
    events.push({ type: "delta", index, content, logprobs });
  }

  #logprobOf(
    token: number,
    type: "fixed" | "sampled",
  ): TokenLogprob | undefined {
    const { topLogprobs, language, candidates } = this.#options;
    if (topLogprobs === undefined) return undefined;
    const { vocabulary } = language.tokenizer;
    return type === "fixed"
      ? certainLogprob(token, topLogprobs, vocabulary)
      : sampledLogprob(token, candidates, topLogprobs, vocabulary);
  }

  /** With the last token it has, or may have, a choice is over. */
  #endIfDone(events: BackendEvent[]): void {
    if (this.isFinished) return;
    const { script: { segments, reason }, tokensMax } = this.#options;
    const isLast = this.#segment === segments.length - 1;
    if (isLast && this.#place === lengthOf(segments.at(-1))) {
      this.#finish(reason, events);
    } else if (this.completionTokens >= tokensMax) {
      this.#finish("length", events);
    }
  }

  #finish(reason: FinishReason, events: BackendEvent[]): void {
    if (!this.#gate.isStopped) this.#emitText(this.#gate.finish(), events);
    events.push({ type: "finish", index: this.#options.index, reason });
    this.isFinished = true;
  }
}

/** How many tokens a segment has; undefined where only the model knows. */
function lengthOf(segment: Segment | undefined): number | undefined {
  switch (segment?.type) {
    case "fixed":
      return segment.tokens.length;
    case "call":
      return segment.tokens.length + 1;
    case "sampled":
      return segment.length.type === "exactly"
        ? segment.length.tokens
        : undefined;
    default:
      return 0;
  }
}
