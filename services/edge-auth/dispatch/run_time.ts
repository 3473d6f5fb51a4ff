/** How long a run has taken, and how long it may still take. */
import type { OfferClock } from "./offer.ts";

/**
 * A cancelled run waits this long for the final frame of its worker, which says what it
 * cost.
 */
export const FINAL_FRAME_MS = 1_000;
/** A worker that did not answer gets no jobs for this long, or until its next beat. */
export const UNRESPONSIVE_MS = 1_000;

/** How long a run may take: whatever ends first. */
export interface RunTimeBounds {
  /** The longest that a run may take, in any state. */
  readonly requestTimeoutMs: number;
  /** When its client wants it to end at the latest, on the clock of the edge. */
  readonly endsByMs?: number | undefined;
}

/** The time of one run, from its start. */
export class RunTime {
  readonly #clock: OfferClock;
  readonly #startedAtMs: number;
  readonly #endsByMs: number;

  /** Begins now. */
  constructor(
    clock: OfferClock,
    { requestTimeoutMs, endsByMs = Infinity }: RunTimeBounds,
  ) {
    this.#clock = clock;
    this.#startedAtMs = clock.now();
    this.#endsByMs = Math.min(this.#startedAtMs + requestTimeoutMs, endsByMs);
  }

  /** How long the run has taken so far. */
  get takenMs(): number {
    return this.#clock.now() - this.#startedAtMs;
  }

  /** How long it may still take; 0 or less: too long already. */
  get leftMs(): number {
    return this.#endsByMs - this.#clock.now();
  }
}
