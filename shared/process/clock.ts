/**
 * Time as a dependency. Two clocks, because they answer different questions:
 * a deadline must not move when somebody sets the wall clock, and a timestamp
 * in a response must.
 */

/** Milliseconds of a clock that only moves forward. Its zero means nothing. */
export type MonotonicNow = () => number;

/** Milliseconds since the Unix epoch. May jump when the host's clock is set. */
export type WallNow = () => number;

/** The process's monotonic clock, for deadlines and durations. */
export const monotonicNow: MonotonicNow = () => performance.now();

/** The host's wall clock, for timestamps that leave the process. */
export const wallNow: WallNow = () => Date.now();

/** A tick this late means that the process itself stood still. */
const TICK_LATE_MS = 200;

/**
 * A clock that leaves out the time in which this process itself stood still: what
 * arrived meanwhile still waits in a socket, so nobody was silent. If every tick is
 * late, deadlines are stretched, never removed.
 */
export class SteadyClock {
  readonly #now: MonotonicNow;
  #tickedAtMs: number;
  #steadyMs = 0;

  constructor(now: MonotonicNow) {
    this.#now = now;
    this.#tickedAtMs = now();
  }

  now(): number {
    const sinceTickMs = this.#now() - this.#tickedAtMs;
    return this.#steadyMs + Math.min(sinceTickMs, TICK_LATE_MS);
  }

  /** Must be called much more often than every 200 ms. Returns how long the process stood still. */
  tick(): number {
    const nowMs = this.#now();
    const pauseMs = nowMs - this.#tickedAtMs - TICK_LATE_MS;
    this.#steadyMs = this.now();
    this.#tickedAtMs = nowMs;
    return Math.max(0, pauseMs);
  }
}
