/**
 * First come, first served: requests that wait for a free slot, one line for each
 * model. Bounded in length and in time, so that overload is answered with an honest
 * 503 instead of a retry lottery. Pure.
 */
import type { MonotonicNow } from "@gateway/shared/process/clock";

export class WaitQueue<T> {
  /** Since when each waiting item waits. */
  readonly #waiting = new Map<T, number>();
  /** By model, the oldest first. An item that no longer waits is passed over. */
  readonly #lines = new Map<string, T[]>();
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

  /** Whether anybody waits for this model. */
  hasWaiting(model: string): boolean {
    return this.#headOf(model) !== undefined;
  }

  /** Adds an item that has waited since `sinceMs`. False when the queue is full. */
  push(item: T, model: string, sinceMs: number): boolean {
    if (this.#waiting.size >= this.#lengthMax) return false;
    const head = this.#headOf(model);
    const line = this.#lines.get(model) ?? [];
    this.#lines.set(model, line);
    // One that was offered and refused is older than all that came meanwhile.
    if (head !== undefined && sinceMs < (this.#waiting.get(head) ?? sinceMs)) {
      line.unshift(item);
    } else line.push(item);
    this.#waiting.set(item, sinceMs);
    return true;
  }

  /** Takes an item out, wherever it stands. */
  remove(item: T): void {
    this.#waiting.delete(item);
  }

  /**
   * Offers the items of each model, the oldest first, to `take` until it takes one
   * no more: what it refuses to the first it would refuse to all behind it.
   */
  offer(take: (item: T) => boolean): void {
    for (const model of [...this.#lines.keys()]) {
      for (;;) {
        const head = this.#headOf(model);
        if (head === undefined || !take(head)) break;
        this.#waiting.delete(head);
      }
    }
  }

  /** Takes out and returns the items that have waited too long. */
  expire(): T[] {
    const oldest = this.#now() - this.#waitMsMax;
    const expired: T[] = [];
    for (const [item, sinceMs] of this.#waiting) {
      if (sinceMs <= oldest) expired.push(item);
    }
    for (const item of expired) this.#waiting.delete(item);
    for (const model of [...this.#lines.keys()]) this.#headOf(model);
    return expired;
  }

  /** The oldest item of a line. Forgets those before it that no longer wait, and a line that is empty. */
  #headOf(model: string): T | undefined {
    const line = this.#lines.get(model);
    if (line === undefined) return undefined;
    for (;;) {
      const head = line[0];
      if (head === undefined) {
        this.#lines.delete(model);
        return undefined;
      }
      if (this.#waiting.has(head)) return head;
      line.shift();
    }
  }
}
