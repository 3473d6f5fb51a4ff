/**
 * Two clocks: a deadline must not move when the wall clock is set, and a timestamp in a
 * response must.
 */

/** Milliseconds of a clock that only moves forward, from an arbitrary zero. */
export type MonotonicNow = () => number;

/** Milliseconds since the Unix epoch. May jump when the host's clock is set. */
export type WallNow = () => number;

/** The clock for durations and deadlines. */
export const monotonicNow: MonotonicNow = () => performance.now();

/** The clock for timestamps. */
export const wallNow: WallNow = () => Date.now();

/** A tick this late means that the process itself was stalled. */
const TICK_LATE_MS = 200;

/**
 * A clock that excludes the time in which this process itself was stalled: data that
 * arrived in the meantime still waits in a socket, so it proves no silence. If every
 * tick is late, deadlines are stretched, never removed.
 */
export class SteadyClock {
  #tickedAtMs: number;
  #steadyMs = 0;

  constructor(readonly clock: MonotonicNow) {
    this.#tickedAtMs = clock();
  }

  /** Milliseconds since the clock was created, without stalls. */
  now(): number {
    return this.at(this.clock());
  }

  /** What {@link now} returns at this time of the clock below, which was just read. */
  at(nowMs: number): number {
    const sinceTickMs = nowMs - this.#tickedAtMs;
    return this.#steadyMs + Math.min(sinceTickMs, TICK_LATE_MS);
  }

  /**
   * Must be called much more often than every 200 ms. Returns how long the process was
   * stalled.
   */
  tick(): number {
    const nowMs = this.clock();
    const pauseMs = nowMs - this.#tickedAtMs - TICK_LATE_MS;
    this.#steadyMs = this.at(nowMs);
    this.#tickedAtMs = nowMs;
    return Math.max(0, pauseMs);
  }
}
