/**
 * How fast a queue is served, as a mean over the last seconds in which something
 * waited: while nothing waits, nothing is served, whatever the slots could do.
 */

/** What happened this long ago, while something waited, counts a third. */
const MEMORY_MS = 10_000;
const MS_PER_SECOND = 1_000;
const WAIT_MS_MIN = 1_000;
/** Clients are not sent away for longer, however slow it is: capacity may be added. */
const WAIT_MS_MAX = 60_000;

/** Counts what leaves a queue for a slot, with old counts fading. */
export class DrainRate {
  /** How many were served, each weighed by its age. */
  #served = 0;
  /** For how long something has waited, weighed in the same way. */
  #busyMs = 0;
  /** Since when something has waited that is not counted yet; null: nothing waits. */
  #busySinceMs: number | null = null;

  /** Something waits from now on. */
  begin(nowMs: number): void {
    this.#busySinceMs ??= nowMs;
  }

  /** Nothing waits any more. */
  end(nowMs: number): void {
    this.#fade(nowMs);
    this.#busySinceMs = null;
  }

  /** One was served. */
  add(nowMs: number): void {
    this.#fade(nowMs);
    this.#served += 1;
  }

  /** Requests per second while some wait; 0: none was served. */
  perSecond(nowMs: number): number {
    this.#fade(nowMs);
    if (this.#served === 0) return 0;
    return this.#served / Math.max(1, this.#busyMs) * MS_PER_SECOND;
  }

  /**
   * How long it takes until all that wait now are served, in ms: from a second to a
   * minute. If none was served, it is the time for which they have waited.
   */
  waitMs(waiting: number, nowMs: number): number {
    const perSecond = this.perSecond(nowMs);
    const waitMs = perSecond === 0
      ? Math.ceil(this.#busyMs)
      : Math.ceil(waiting / perSecond * MS_PER_SECOND);
    return Math.min(WAIT_MS_MAX, Math.max(WAIT_MS_MIN, waitMs));
  }

  #fade(nowMs: number): void {
    if (this.#busySinceMs === null) return;
    const left = Math.exp((this.#busySinceMs - nowMs) / MEMORY_MS);
    this.#served *= left;
    this.#busyMs = this.#busyMs * left + MEMORY_MS * (1 - left);
    this.#busySinceMs = nowMs;
  }
}
