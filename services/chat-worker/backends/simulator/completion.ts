import type { MonotonicNow } from "@gateway/shared/process/clock";
import type {
  ModelConfig,
  SimulatorKnobs,
} from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { BackendCall, BackendEvent } from "../backend.ts";
import type { ChoiceRun } from "./answer/choice_run.ts";
import { prepareChoices } from "./answer/choices.ts";
import { countPromptTokens } from "./answer/prompt_tokens.ts";
import { tokenRoom } from "./answer/token_room.ts";
import type { Controls } from "./control_phrases.ts";
import { failureOf, midStreamFailure, readControls } from "./faults.ts";
import type { Candidates } from "./language/candidates.ts";
import type { Language } from "./language/language.ts";
import { Pacer } from "./pacing.ts";
import type { Random } from "./sampling/random.ts";
import type { Sleep } from "./sleep.ts";
import type { TurnKeeper } from "./turns.ts";

/** Events in one array: enough to make the work per array small, few enough to be a stream. */
const BATCH_EVENTS = 16;
/** How long a stalled answer sleeps at a time. */
const STALL_MS = 60_000;

/** What one request really took, for tests that compare it with what was recorded. */
export interface CompletionRecord {
  requestId: string;
  promptTokens: number;
  /** Of all choices, as far as events were handed out. */
  completionTokens: number;
  /** The caller stopped it: by the signal, or by not reading on. */
  aborted: boolean;
}

/** What all completions of a simulator share. */
export interface CompletionDeps {
  model: ModelConfig;
  knobs: SimulatorKnobs;
  language: Language;
  candidates: Candidates;
  turns: TurnKeeper;
  now: MonotonicNow;
  sleep: Sleep;
  random: Random;
  onEnd?: (record: CompletionRecord) => void;
}

/** One request from its first look to its last event. */
export class Completion {
  readonly #deps: CompletionDeps;
  readonly #request: ChatRequest;
  readonly #call: BackendCall;
  #promptTokens = 0;
  #choices: readonly ChoiceRun[] = [];
  #tokensHandedOut = 0;
  /** The answer came to an end of its own, whole or failed. */
  #isEnded = false;

  constructor(deps: CompletionDeps, request: ChatRequest, call: BackendCall) {
    this.#deps = deps;
    this.#request = request;
    this.#call = call;
  }

  /** The events of the answer, as `Backend.complete` promises them. */
  async *events(): AsyncGenerator<readonly BackendEvent[]> {
    try {
      yield* this.#answer();
    } catch (error) {
      this.#isEnded = !this.#call.signal.aborted;
      throw error;
    } finally {
      this.#deps.onEnd?.({
        requestId: this.#call.requestId,
        promptTokens: this.#promptTokens,
        completionTokens: this.#tokensHandedOut,
        aborted: !this.#isEnded,
      });
    }
  }

  async *#answer(): AsyncGenerator<readonly BackendEvent[]> {
    const { model, knobs, random } = this.#deps;
    const { signal } = this.#call;
    signal.throwIfAborted();
    const controls = readControls(this.#request, knobs, random);
    const pacer = this.#pacer(controls);
    const distinct = await this.#countPrompt();
    const wanted = this.#request.max_tokens;
    const tokensMax = tokenRoom(model, this.#promptTokens, wanted);
    if (controls.errorStatus !== undefined) {
      // A request that asks for both wants a failure that takes its time.
      if (controls.firstTokenMs !== undefined) await pacer.due(1, signal);
      throw failureOf(controls.errorStatus);
    }
    this.#prepare(controls, tokensMax, distinct);
    yield* this.#generate(controls, pacer);
  }

  #pacer(controls: Controls): Pacer {
    const { knobs, now, sleep, random } = this.#deps;
    return new Pacer({
      pace: {
        firstTokenMs: controls.firstTokenMs ?? knobs.firstTokenMs,
        tokensPerSecond: controls.tokensPerSecond ?? knobs.tokensPerSecond,
        jitter: controls.jitter ?? knobs.jitter,
      },
      now,
      sleep,
      random,
    });
  }

  /** Counts the prompt, and returns its tokens where a penalty is about them. */
  async #countPrompt(): Promise<ReadonlySet<number>> {
    const { language, turns } = this.#deps;
    const distinct = new Set<number>();
    const isCollected = (this.#request.repetition_penalty ?? 1) !== 1;
    this.#promptTokens = await countPromptTokens(this.#request, {
      tokenizer: language.tokenizer,
      turns,
      signal: this.#call.signal,
      ...(isCollected ? { visit: (token: number) => distinct.add(token) } : {}),
    });
    return distinct;
  }

  #prepare(
    controls: Controls,
    tokensMax: number,
    distinctPromptTokens: ReadonlySet<number>,
  ): void {
    const { language, candidates, random, turns } = this.#deps;
    const startedAt = turns.now();
    this.#choices = prepareChoices({
      request: this.#request,
      controls,
      language,
      candidates,
      promptTokens: this.#promptTokens,
      distinctPromptTokens,
      tokensMax,
      random,
    });
    turns.worked(startedAt);
  }

  async *#generate(
    controls: Controls,
    pacer: Pacer,
  ): AsyncGenerator<readonly BackendEvent[]> {
    const { signal } = this.#call;
    const { turns } = this.#deps;
    let steps = 0;
    while (!this.#isEnded) {
      if (steps === controls.stallAfterTokens) await this.#stall();
      const due = await pacer.due(this.#stepsMax(controls, steps), signal);
      if (turns.isDue) await turns.turn();
      signal.throwIfAborted();
      if (steps === controls.failAfterTokens) throw midStreamFailure();
      const events = this.#run(due);
      steps += due;
      const isLast = this.#choices.every((choice) => choice.isFinished);
      this.#tokensHandedOut = this.#completionTokens();
      if (isLast && breaksOff(controls)) {
        // What was to break off later than here has no end either.
        yield events.filter((event) => event.type === "delta");
        if (controls.failAfterTokens !== undefined) throw midStreamFailure();
        await this.#stall();
      }
      if (isLast && controls.isUsageMissing !== true) {
        events.push(this.#usage());
      }
      this.#isEnded = isLast;
      if (events.length > 0) yield events;
    }
  }

  /** Lets every choice say so many tokens, in turn, so that all advance together. */
  #run(steps: number): BackendEvent[] {
    const { turns } = this.#deps;
    const startedAt = turns.now();
    const events: BackendEvent[] = [];
    for (let step = 0; step < steps; step++) {
      for (const choice of this.#choices) {
        if (!choice.isFinished) choice.step(events);
      }
    }
    turns.worked(startedAt);
    return events;
  }

  /** Steps of the next batch, none of them beyond where the answer breaks off. */
  #stepsMax(controls: Controls, steps: number): number {
    const { failAfterTokens = Infinity, stallAfterTokens = Infinity } =
      controls;
    const running = this.#choices.filter((choice) => !choice.isFinished).length;
    const usual = Math.max(1, Math.floor(BATCH_EVENTS / running));
    const breaksAt = Math.min(failAfterTokens, stallAfterTokens);
    return breaksAt > steps ? Math.min(usual, breaksAt - steps) : usual;
  }

  async #stall(): Promise<never> {
    const { signal } = this.#call;
    for (;;) {
      signal.throwIfAborted();
      await this.#deps.sleep(STALL_MS, signal);
    }
  }

  #usage(): BackendEvent {
    const completionTokens = this.#completionTokens();
    return {
      type: "usage",
      usage: {
        prompt_tokens: this.#promptTokens,
        completion_tokens: completionTokens,
        total_tokens: this.#promptTokens + completionTokens,
        prompt_tokens_details: { cached_tokens: 0 },
        completion_tokens_details: {
          reasoning_tokens: this.#choices.reduce(
            (sum, choice) => sum + choice.reasoningTokens,
            0,
          ),
        },
      },
    };
  }

  #completionTokens(): number {
    return this.#choices.reduce(
      (sum, choice) => sum + choice.completionTokens,
      0,
    );
  }
}

function breaksOff(controls: Controls): boolean {
  return controls.failAfterTokens !== undefined ||
    controls.stallAfterTokens !== undefined;
}
