/**
 * First come, first served: requests that wait for a free slot. Bounded in length
 * and in time, so that overload is answered with an honest 503 instead of a
 * retry lottery. Pure.
 */
import type { MonotonicNow } from "@gateway/shared/clock";

interface Waiting<T> {
  item: T;
  sinceMs: number;
}

export class WaitQueue<T> {
  readonly #waiting = new Map<T, Waiting<T>>();
  readonly #now: MonotonicNow;
  readonly #lengthMax: number;
  readonly #waitMsMax: number;

  constructor(
    options: { now: MonotonicNow; lengthMax: number; waitMsMax: number },
  ) {
    this.#now = options.now;
    this.#lengthMax = options.lengthMax;
    this.#waitMsMax = options.waitMsMax;
  }

  get length(): number {
    return this.#waiting.size;
  }

  /** Puts an item at the end; it has waited since `sinceMs`. False when the queue is full. */
  push(item: T, sinceMs: number): boolean {
    if (this.#waiting.size >= this.#lengthMax) return false;
    this.#waiting.set(item, { item, sinceMs });
    return true;
  }

  /** Takes an item out, wherever it stands. */
  remove(item: T): void {
    this.#waiting.delete(item);
  }

  /**
   * Offers every item, in order, to `take`; those it takes leave the queue.
   * `take` may remove other items meanwhile.
   */
  offer(take: (item: T) => boolean): void {
    for (const { item } of [...this.#waiting.values()]) {
      if (!this.#waiting.has(item)) continue;
      if (take(item)) this.#waiting.delete(item);
    }
  }

  /** Takes out and returns the items that have waited too long. */
  expire(): T[] {
    const oldest = this.#now() - this.#waitMsMax;
    const expired: T[] = [];
    for (const { item, sinceMs } of this.#waiting.values()) {
      if (sinceMs <= oldest) expired.push(item);
    }
    for (const item of expired) this.#waiting.delete(item);
    return expired;
  }
}
