/** How long a run has taken, and how long it may still take. */
import type { OfferClock } from "./offer.ts";

/**
 * A cancelled run waits this long for the final frame of its worker, which says what it
 * cost.
 */
export const FINAL_FRAME_MS = 1_000;
/** A worker that did not answer gets no jobs for this long, or until its next beat. */
export const UNRESPONSIVE_MS = 1_000;

/** What the time of a run needs of its edge. */
export interface RunTimeTools {
  readonly clock: Pick<OfferClock, "now">;
  /** The longest that a run may take, in any state. */
  readonly requestTimeoutMs: number;
}

/** What is left of the time that one run may take, which its client may shorten. */
export class RunTime {
  readonly #clock: RunTimeTools["clock"];
  readonly #startedAtMs: number;
  readonly #endsByMs: number;

  /** Begins now. `endsByMs`: when its client wants it to end, on the edge's clock. */
  constructor(
    { clock, requestTimeoutMs }: RunTimeTools,
    endsByMs: number = Infinity,
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
