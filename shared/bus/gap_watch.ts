import type { StreamLimits } from "../limits.ts";

/**
 * Which frame must come next, whether one is missing, and when to ask for it.
 *
 * Asking is paced: at most once in `nakIntervalMs`, and ever less often, down to
 * once in `nakIntervalMaxMs`, while it changes nothing. As soon as an answer
 * arrives, frame after frame, it gets twice that interval from the latest one.
 */
export class GapWatch {
  readonly #limits: StreamLimits;
  #expected = 1;
  /** The highest number that is known to exist. */
  #known = 0;
  #dueMs = -Infinity;
  #delayMs: number;

  constructor(limits: StreamLimits) {
    this.#limits = limits;
    this.#delayMs = limits.nakIntervalMs;
  }

  /** The number of the frame that must come next. */
  get expected(): number {
    return this.#expected;
  }

  /** Whether that frame is known to exist. */
  get isOpen(): boolean {
    return this.#known >= this.#expected;
  }

  /** Frames up to `sequence` exist. */
  note(sequence: number): void {
    if (sequence > this.#known) this.#known = sequence;
  }

  /** The expected frame came. */
  advance(nowMs: number): void {
    const { nakIntervalMs } = this.#limits;
    this.#expected++;
    this.#delayMs = nakIntervalMs;
    if (this.isOpen) this.#dueMs = nowMs + 2 * nakIntervalMs;
    else this.#dueMs = Math.min(this.#dueMs, nowMs + nakIntervalMs);
  }

  /** Forgets the pace: the bus was away, and the answers with it. */
  hurry(): void {
    this.#dueMs = -Infinity;
    this.#delayMs = this.#limits.nakIntervalMs;
  }

  /** Whether to ask now. If so, the next time is later. */
  tryAsk(nowMs: number): boolean {
    if (nowMs < this.#dueMs) return false;
    this.#dueMs = nowMs + this.#delayMs;
    this.#delayMs = Math.min(
      2 * this.#delayMs,
      this.#limits.nakIntervalMaxMs,
    );
    return true;
  }
}
