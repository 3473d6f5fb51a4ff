/** How fast a queue is served, as a mean over the last seconds. */

/** What happened so long ago counts a third. */
const MEMORY_MS = 10_000;
const MS_PER_SECOND = 1_000;
const WAIT_MS_MIN = 1_000;
/** Clients are not sent away for longer, however slow it is: capacity may be added. */
const WAIT_MS_MAX = 60_000;

/** Counts what leaves a queue for a slot, with old counts fading. */
export class DrainRate {
  /** How many were served, each weighed by its age. */
  #served = 0;
  #atMs = -Infinity;

  /** One was served. */
  add(nowMs: number): void {
    this.#served = this.#servedBy(nowMs) + 1;
    this.#atMs = nowMs;
  }

  /** Requests per second; 0: none in the last time. */
  perSecond(nowMs: number): number {
    return this.#servedBy(nowMs) / (MEMORY_MS / MS_PER_SECOND);
  }

  /**
   * After how long those who wait now will have been served, in ms: from a second to a
   * minute, and a second where nothing was measured.
   */
  waitMs(waiting: number, nowMs: number): number {
    const perSecond = this.perSecond(nowMs);
    if (perSecond === 0) return WAIT_MS_MIN;
    const waitMs = Math.ceil(waiting / perSecond * MS_PER_SECOND);
    return Math.min(WAIT_MS_MAX, Math.max(WAIT_MS_MIN, waitMs));
  }

  #servedBy(nowMs: number): number {
    if (this.#served === 0) return 0;
    return this.#served * Math.exp((this.#atMs - nowMs) / MEMORY_MS);
  }
}
