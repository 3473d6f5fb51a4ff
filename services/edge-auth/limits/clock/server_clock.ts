/** What an edge expects the clock of Redis to show. */
import type { MonotonicNow } from "@gateway/shared/process/clock";

/**
 * A jump forward is believed after this long, at the earliest. By then every edge has
 * renewed the leases of its running requests, which it does every 10 s.
 */
const DOUBTED_MS = 15_000;

/**
 * Compares the clock of Redis with this edge's. After a jump forward of Redis' clock,
 * all leases look expired, though their requests run. So an edge tells the admission
 * script which time it expects: the time by the slowest clock that it has seen in the
 * last 15 to 30 s. A jump back is believed at once.
 */
export class ServerClock {
  readonly #now: MonotonicNow;
  #windowSinceMs = -Infinity;
  /** Least difference of the two clocks, in this window and in the one before. */
  #leastMs = Infinity;
  #leastBeforeMs = Infinity;

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /** Takes the time of a reply that has just come, in Unix ms. */
  saw(serverMs: number): void {
    const nowMs = this.#now();
    if (nowMs - this.#windowSinceMs >= DOUBTED_MS) {
      this.#leastBeforeMs = this.#leastMs;
      this.#leastMs = Infinity;
      this.#windowSinceMs = nowMs;
    }
    this.#leastMs = Math.min(this.#leastMs, serverMs - nowMs);
  }

  /** The expected time in Unix ms; null before the first reply. */
  get expectedMs(): number | null {
    const leastMs = Math.min(this.#leastMs, this.#leastBeforeMs);
    return leastMs === Infinity ? null : Math.floor(this.#now() + leastMs);
  }
}
