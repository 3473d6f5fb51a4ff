import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Random } from "./sampling/random.ts";
import type { Sleep } from "./sleep.ts";

/** When tokens come. */
export interface Pace {
  firstTokenMs: number;
  /** Of each choice. 0: as fast as it can. */
  tokensPerSecond: number;
  /** Each delay is stretched or shrunk by up to this share, 0..1. */
  jitter: number;
}

/** What a {@link Pacer} works with. */
export interface PacerOptions {
  pace: Pace;
  now: MonotonicNow;
  sleep: Sleep;
  random: Random;
}

/**
 * Keeps the time of one answer. Every token has its moment, counted from the
 * start and not from the token before, so that what each wait takes too long does
 * not add up: 1,000 tokens at 50 a second take 20 s.
 */
export class Pacer {
  readonly #options: PacerOptions;
  #dueAt: number;
  #isFirst = true;

  constructor(options: PacerOptions) {
    this.#options = options;
    this.#dueAt = options.now() + this.#jittered(options.pace.firstTokenMs);
  }

  /**
   * Waits until a step is due and returns how many are, at least 1 and at most
   * `stepsMax`. The first is alone. Returns early when the signal aborts.
   */
  async due(stepsMax: number, signal: AbortSignal): Promise<number> {
    const { now, sleep, pace } = this.#options;
    const wait = this.#dueAt - now();
    if (wait > 0) await sleep(wait, signal);
    const isFirst = this.#isFirst;
    this.#isFirst = false;
    if (pace.tokensPerSecond === 0) return isFirst ? 1 : stepsMax;
    let steps = 0;
    do {
      steps += 1;
      this.#dueAt += this.#jittered(1000 / pace.tokensPerSecond);
    } while (!isFirst && steps < stepsMax && this.#dueAt <= now());
    return steps;
  }

  #jittered(ms: number): number {
    const { pace, random } = this.#options;
    if (pace.jitter === 0) return ms;
    return ms * (1 + pace.jitter * (2 * random() - 1));
  }
}
