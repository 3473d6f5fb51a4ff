/** One chat completion: its choices side by side, at their pace, as chunks or whole. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { type CallDelta, type LogprobEntry, runChoice } from "./choice.ts";
import type { FinishReason, Step } from "./choice.ts";
import type { Controls } from "./controls.ts";
import { failureEvent } from "./errors.ts";
import type { Random } from "./language.ts";
import {
  checkSchemas,
  type Plan,
  planChoice,
  randomFor,
  subjectOf,
} from "./plan.ts";
import { type ChatRequest, countPrompt, RequestError } from "./request.ts";

/** When tokens come. */
export interface Pace {
  readonly firstTokenMs: number;
  /** Of each choice. 0: as fast as it can. */
  readonly tokensPerSecond: number;
}

/** What the simulator says that it has: prompt and answer together, and an answer alone. */
export const CONTEXT_TOKENS = 200_000;
const OUTPUT_TOKENS = 32_768;
export const FINGERPRINT = "simulator-2";
/** Work after which the event loop has a turn. */
const WORK_MS_MAX = 2;
const BREAK_PAUSE_MS = 50;
/** As good as for ever. */
const STALL_MS = 24 * 60 * 60 * 1_000;
const GARBAGE = "data: <html>502 Bad Gateway</html>\n\n";
const ENDLESS_PIECE = " endless".repeat(8_192);

export interface CompletionOptions {
  request: ChatRequest;
  controls: Controls;
  pace: Pace;
  /** Aborted when nobody wants the answer any more. */
  signal: AbortSignal;
  now: MonotonicNow;
  random: Random;
  /** Unix seconds. */
  created: number;
}

interface Choice {
  readonly index: number;
  readonly plan: Plan;
  readonly steps: Iterator<Step>;
  isBegun: boolean;
  isOver: boolean;
}

export class Completion {
  /** Tokens made so far. */
  tokens = 0;
  /** It broke as it was asked to. */
  isBroken = false;
  readonly #options: CompletionOptions;
  readonly #choices: Choice[] = [];
  readonly #head: { id: string; created: number; model: string };
  readonly #promptTokens: number;
  #reasoningTokens = 0;
  #pace: Pace;

  private constructor(options: CompletionOptions) {
    const { request, controls, random } = options;
    this.#options = options;
    this.#promptTokens = countPrompt(request);
    this.#pace = {
      firstTokenMs: controls.firstTokenMs ?? options.pace.firstTokenMs,
      tokensPerSecond: controls.tokensPerSecond ?? options.pace.tokensPerSecond,
    };
    this.#head = {
      id: `chatcmpl-${randomId(random)}`,
      created: options.created,
      model: request.model,
    };
  }

  /** Rejects with a {@link RequestError} for what the simulator does not take. */
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
    const tokensMax = controls.isEndless ? Infinity : this.#tokensMax();
    const own = randomFor(request, index, random);
    const plan = planChoice(request, {
      controls,
      random: own,
      room: tokensMax,
    });
    const steps = runChoice({
      request,
      plan,
      random: own,
      subject: subjectOf(request),
      tokensMax,
      newCallId: () => `call_${randomId(random)}`,
    });
    this.#choices.push({ index, plan, steps, isBegun: false, isOver: false });
  }

  #tokensMax(): number {
    const { max_tokens, max_completion_tokens } = this.#options.request;
    const asked = max_completion_tokens ?? max_tokens ?? null;
    const wanted = this.#promptTokens + (asked ?? 1);
    if (wanted > CONTEXT_TOKENS) {
      throw new RequestError(
        `This model's maximum context length is ${CONTEXT_TOKENS} tokens. ` +
          `However, you requested ${wanted} tokens (${this.#promptTokens} in ` +
          `the messages, ${asked ?? 1} in the completion).`,
        { param: "messages", code: "context_length_exceeded" },
      );
    }
    return Math.min(asked ?? OUTPUT_TOKENS, CONTEXT_TOKENS);
  }

  /** Nothing is to be waited for. */
  get isInstant(): boolean {
    const { firstTokenMs, tokensPerSecond } = this.#pace;
    const { break: asked, isEndless } = this.#options.controls;
    return firstTokenMs === 0 && tokensPerSecond === 0 &&
      asked === undefined && isEndless !== true;
  }

  /** The events of a stream, as they fall due, several in one text where they do at once. */
  async *stream(): AsyncGenerator<string> {
    const { request, controls } = this.#options;
    for await (const batch of this.#batches()) {
      yield batch.map(([choice, step]) => this.#chunksOf(choice, step)).join(
        "",
      );
    }
    if (this.isBroken) {
      yield controls.break?.type === "fail" ? failureEvent() : GARBAGE;
      return;
    }
    const hasUsage = request.stream_options?.include_usage === true;
    if (hasUsage && controls.isUsageMissing !== true) {
      yield this.#event({ choices: [], usage: this.#usage() });
    }
    if (controls.isDoneMissing !== true) yield "data: [DONE]\n\n";
  }

  /** The body of a whole answer, in one text unless it is endless. */
  async *whole(): AsyncGenerator<string> {
    const { isEndless, isUsageMissing } = this.#options.controls;
    while (isEndless) yield ENDLESS_PIECE;
    const answers = this.#choices.map(() => new WholeChoice());
    for await (const batch of this.#batches()) {
      for (const [{ index }, step] of batch) answers[index]?.add(step);
    }
    yield this.isBroken ? GARBAGE : JSON.stringify({
      ...this.#head,
      object: "chat.completion",
      system_fingerprint: FINGERPRINT,
      choices: answers.map((answer, index) => answer.toJson(index)),
      usage: isUsageMissing ? undefined : this.#usage(),
    });
  }

  /** The steps of all choices, which advance together, until they end or the break that was asked for. */
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
    // So that what was said before is read before.
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

  #chunksOf(choice: Choice, step: Step): string {
    let text = "";
    if (!choice.isBegun) {
      choice.isBegun = true;
      const content = choice.plan.calls.length > 0 ? null : "";
      text += this.#chunk(choice, { delta: { role: "assistant", content } });
    }
    const { content, reasoning, call, logprobs, finish } = step;
    const tool_calls = call && [call];
    if (content || reasoning || tool_calls || logprobs?.length) {
      const delta = { content, reasoning_content: reasoning, tool_calls };
      text += this.#chunk(choice, { delta, logprobs });
    }
    return finish === undefined ? text : text + this.#chunk(choice, { finish });
  }

  /** Members that are undefined are not written. */
  #chunk(
    { index }: Choice,
    { delta = {}, logprobs, finish }: {
      delta?: object;
      logprobs?: LogprobEntry[] | undefined;
      finish?: FinishReason;
    },
  ): string {
    const hasUsage = this.#options.request.stream_options?.include_usage;
    return this.#event({
      choices: [{
        index,
        delta,
        logprobs: logprobs?.length ? { content: logprobs } : null,
        finish_reason: finish ?? null,
      }],
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

/** The steps of a choice put together. */
class WholeChoice {
  #content = "";
  #reasoning = "";
  readonly #calls: CallDelta[] = [];
  readonly #logprobs: LogprobEntry[] = [];
  #finish: FinishReason = "stop";

  add({ content, reasoning, call, logprobs, finish }: Step): void {
    this.#content += content ?? "";
    this.#reasoning += reasoning ?? "";
    if (logprobs !== undefined) this.#logprobs.push(...logprobs);
    if (finish !== undefined) this.#finish = finish;
    const known = call && this.#calls[call.index];
    if (known) known.function.arguments += call.function.arguments;
    else if (call) this.#calls.push(structuredClone(call));
  }

  toJson(index: number) {
    const hasCalls = this.#calls.length > 0;
    return {
      index,
      message: {
        role: "assistant",
        content: hasCalls ? null : this.#content,
        refusal: null,
        reasoning_content: this.#reasoning || undefined,
        tool_calls: hasCalls
          ? this.#calls.map(({ index: _, ...call }) => call)
          : undefined,
      },
      logprobs: this.#logprobs.length > 0 ? { content: this.#logprobs } : null,
      finish_reason: this.#finish,
    };
  }
}

/** At least eight letters and digits, twice. */
function randomId(random: Random): string {
  const part = () => random().toString(36).slice(2).padEnd(8, "0");
  return part() + part();
}

/** Waits, at least for one turn of the event loop. Throws when the signal aborts. */
export async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, Math.max(0, ms));
  const onAbort = () => resolve();
  signal.addEventListener("abort", onAbort);
  try {
    await promise;
    signal.throwIfAborted();
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}
