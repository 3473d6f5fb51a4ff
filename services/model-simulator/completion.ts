/** One chat completion: its choices in parallel, at their pace, as chunks or whole. */
import { setTimeout } from "node:timers/promises";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { type LogprobEntry, runChoice } from "./choice.ts";
import type { FinishReason, Step } from "./choice.ts";
import type { Controls, Pace } from "./controls.ts";
import { failureEvent } from "./errors.ts";
import type { Random } from "./language.ts";
import { checkSchemas, planChoice, randomFor } from "./plan.ts";
import { type ChatRequest, countPrompt, RequestError } from "./request.ts";

/** The longest prompt. */
const CONTEXT_TOKENS = 200_000;
/** The longest answer if the request sets no limit. */
const OUTPUT_TOKENS = 32_768;
export const FINGERPRINT = "simulator-2";
/** The longest time it works before it yields to the event loop. */
const WORK_MS_MAX = 2;
const BREAK_PAUSE_MS = 50;
/** Practically forever. */
const STALL_MS = 24 * 60 * 60 * 1_000;
const GARBAGE = "data: <html>502 Bad Gateway</html>\n\n";

export interface CompletionOptions {
  request: ChatRequest;
  controls: Controls;
  pace: Pace;
  /** Aborted when the client has disconnected. */
  signal: AbortSignal;
  now: MonotonicNow;
  random: Random;
  /** Unix seconds. */
  created: number;
}

interface Choice {
  readonly index: number;
  readonly hasCalls: boolean;
  readonly steps: Iterator<Step>;
  isBegun: boolean;
  isOver: boolean;
}

export class Completion {
  /** Tokens generated so far. */
  tokens = 0;
  /** It failed as requested. */
  isBroken = false;
  readonly #options: CompletionOptions;
  readonly #choices: Choice[] = [];
  readonly #head: { id: string; created: number; model: string };
  readonly #promptTokens: number;
  readonly #pace: Pace;
  #reasoningTokens = 0;

  private constructor(options: CompletionOptions) {
    const { request, controls, pace, random, created } = options;
    this.#options = options;
    this.#promptTokens = countPrompt(request);
    if (this.#promptTokens > CONTEXT_TOKENS) {
      throw new RequestError(
        `This model's maximum context length is ${CONTEXT_TOKENS} tokens. ` +
          `However, your messages have ${this.#promptTokens} tokens.`,
        { param: "messages", code: "context_length_exceeded" },
      );
    }
    this.#pace = { ...pace, ...controls.pace };
    const id = `chatcmpl-${randomId(random)}`;
    this.#head = { id, created, model: request.model };
  }

  /** Rejects with a `RequestError` for a request that the simulator does not support. */
  static async start(options: CompletionOptions): Promise<Completion> {
    const completion = new Completion(options);
    checkSchemas(options.request);
    for (let index = 0; index < options.request.n; index++) {
      const startedAt = options.now();
      completion.#addChoice(index);
      const isLong = options.now() - startedAt > WORK_MS_MAX;
      if (isLong) await sleep(0, options.signal);
    }
    return completion;
  }

  #addChoice(index: number): void {
    const { request, controls, random } = this.#options;
    const tokensMax = request.max_completion_tokens ?? request.max_tokens ??
      OUTPUT_TOKENS;
    const own = randomFor(request, index, random);
    const plan = planChoice(request, controls, { random: own, tokensMax });
    const steps = runChoice(request, plan, {
      random: own,
      tokensMax,
      newCallId: () => `call_${randomId(random)}`,
    });
    const hasCalls = plan.calls.length > 0;
    const state = { isBegun: false, isOver: false };
    this.#choices.push({ index, hasCalls, steps, ...state });
  }

  /** Whether the answer is generated without any wait. */
  get isInstant(): boolean {
    return this.#pace.firstTokenMs === 0 && this.#pace.tokensPerSecond === 0 &&
      this.#options.controls.break === undefined;
  }

  /** The events of a stream as they become due; events due together are yielded as one text. */
  async *stream(): AsyncGenerator<string> {
    const { request, controls } = this.#options;
    for await (const batch of this.#batches()) {
      const chunks = batch.map(([choice, step]) => this.#chunks(choice, step));
      yield chunks.join("");
    }
    if (this.isBroken) {
      yield controls.break?.type === "fail" ? failureEvent() : GARBAGE;
      return;
    }
    const hasUsage = request.stream_options?.include_usage === true;
    if (hasUsage && controls.isUsageMissing !== true) {
      yield this.#event({ choices: [], usage: this.#usage() });
    }
    yield "data: [DONE]\n\n";
  }

  /** The body of a whole answer, as one text. */
  async *whole(): AsyncGenerator<string> {
    const { isUsageMissing } = this.#options.controls;
    const said: Step[][] = this.#choices.map(() => []);
    for await (const batch of this.#batches()) {
      for (const [{ index }, step] of batch) said[index]?.push(step);
    }
    yield this.isBroken ? GARBAGE : JSON.stringify({
      ...this.#head,
      object: "chat.completion",
      system_fingerprint: FINGERPRINT,
      choices: said.map((steps, index) => wholeChoice(index, steps)),
      usage: isUsageMissing ? undefined : this.#usage(),
    });
  }

  /** The steps of all choices, which advance together, until they end or break as requested. */
  async *#batches(): AsyncGenerator<[Choice, Step][]> {
    const { controls, now, signal } = this.#options;
    const { firstTokenMs, tokensPerSecond } = this.#pace;
    const stepMs = tokensPerSecond === 0 ? 0 : 1_000 / tokensPerSecond;
    const isRunning = () => this.#choices.some(({ isOver }) => !isOver);
    const isBreakDue = () => round === controls.break?.afterTokens;
    let dueAt = now() + firstTokenMs;
    let round = 0;
    while (isRunning() && !isBreakDue()) {
      const waitMs = dueAt - now();
      if (waitMs > 0 || round > 0) await sleep(waitMs, signal);
      const startedAt = now();
      const batch: [Choice, Step][] = [];
      do {
        this.#advance(batch);
        round += 1;
        dueAt += stepMs;
      } while (
        isRunning() && !isBreakDue() && dueAt <= startedAt &&
        now() - startedAt < WORK_MS_MAX
      );
      yield batch;
    }
    if (!isBreakDue()) return;
    // Lets the client read what was sent before the fault.
    await sleep(BREAK_PAUSE_MS, signal);
    this.isBroken = true;
    if (controls.break?.type === "cut") throw new Error("Cut on request");
    if (controls.break?.type === "stall") await sleep(STALL_MS, signal);
  }

  #advance(batch: [Choice, Step][]): void {
    for (const choice of this.#choices) {
      if (choice.isOver) continue;
      const { value, done } = choice.steps.next();
      if (done === true) {
        choice.isOver = true;
        continue;
      }
      this.tokens += 1;
      if (value.reasoning !== undefined) this.#reasoningTokens += 1;
      choice.isOver = value.finish !== undefined;
      batch.push([choice, value]);
    }
  }

  #chunks(choice: Choice, step: Step): string {
    const { content, reasoning, call, logprobs, finish } = step;
    let chunks = "";
    if (!choice.isBegun) {
      choice.isBegun = true;
      const nothing = choice.hasCalls ? null : "";
      chunks += this.#chunk(choice, { role: "assistant", content: nothing });
    }
    if (content || reasoning || call || logprobs?.length) {
      const tool_calls = call && [call];
      const delta = { content, reasoning_content: reasoning, tool_calls };
      chunks += this.#chunk(choice, delta, logprobs);
    }
    if (finish === undefined) return chunks;
    return chunks + this.#chunk(choice, {}, [], finish);
  }

  /** Members that are undefined are omitted from the JSON. */
  #chunk(
    { index }: Choice,
    delta: object,
    logprobs: LogprobEntry[] = [],
    finish: FinishReason | null = null,
  ): string {
    const hasUsage = this.#options.request.stream_options?.include_usage;
    const content = logprobs.length > 0 ? { content: logprobs } : null;
    const choice = { index, delta, logprobs: content, finish_reason: finish };
    return this.#event({
      choices: [choice],
      usage: hasUsage ? null : undefined,
    });
  }

  #event(members: object): string {
    const event = {
      ...this.#head,
      object: "chat.completion.chunk",
      system_fingerprint: FINGERPRINT,
      ...members,
    };
    return `data: ${JSON.stringify(event)}\n\n`;
  }

  #usage() {
    return {
      prompt_tokens: this.#promptTokens,
      completion_tokens: this.tokens,
      total_tokens: this.#promptTokens + this.tokens,
      completion_tokens_details: this.#reasoningTokens === 0
        ? undefined
        : { reasoning_tokens: this.#reasoningTokens },
    };
  }
}

/** Combines the steps of a choice. */
function wholeChoice(index: number, steps: readonly Step[]) {
  const joined = (part: "content" | "reasoning") =>
    steps.map((step) => step[part] ?? "").join("");
  const fragments = steps.flatMap(({ call }) => call ?? []);
  const calls = [...Map.groupBy(fragments, (each) => each.index).values()]
    .map(([head, ...rest]) => ({
      id: head?.id,
      type: head?.type,
      function: {
        name: head?.function.name,
        arguments: rest.map((each) => each.function.arguments).join(""),
      },
    }));
  const logprobs = steps.flatMap((step) => step.logprobs ?? []);
  return {
    index,
    message: {
      role: "assistant",
      content: calls.length > 0 ? null : joined("content"),
      refusal: null,
      reasoning_content: joined("reasoning") || undefined,
      tool_calls: calls.length > 0 ? calls : undefined,
    },
    logprobs: logprobs.length > 0 ? { content: logprobs } : null,
    finish_reason: steps.at(-1)?.finish ?? "stop",
  };
}

/** At least 16 letters and digits. */
function randomId(random: Random): string {
  const part = () => random().toString(36).slice(2).padEnd(8, "0");
  return part() + part();
}

/** Waits for at least one turn of the event loop. Rejects when the signal aborts. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return setTimeout(Math.max(0, ms), undefined, { signal });
}
