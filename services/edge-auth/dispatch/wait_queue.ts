/**
 * First come, first served: requests that wait for a free slot. Bounded in length
 * and in time, so that overload is answered with an honest 503 instead of a retry
 * lottery. Pure.
 */
interface Waiting<T> {
  item: T;
  model: string;
  sinceMs: number;
}

export class WaitQueue<T> {
  /** The oldest first. */
  #waiting: Waiting<T>[] = [];
  readonly #lengthMax: number;
  readonly #waitMsMax: number;

  constructor(options: { lengthMax: number; waitMsMax: number }) {
    this.#lengthMax = options.lengthMax;
    this.#waitMsMax = options.waitMsMax;
  }

  get length(): number {
    return this.#waiting.length;
  }

  /** Whether anybody waits for this model. */
  hasWaiting(model: string): boolean {
    return this.#waiting.some((waiting) => waiting.model === model);
  }

  /** Adds an item that has waited since `sinceMs`, before those that came later. False when the queue is full. */
  push(item: T, model: string, sinceMs: number): boolean {
    if (this.#waiting.length >= this.#lengthMax) return false;
    const before = this.#waiting.findLastIndex((each) =>
      each.sinceMs <= sinceMs
    );
    this.#waiting.splice(before + 1, 0, { item, model, sinceMs });
    return true;
  }

  /** Takes an item out, wherever it stands. */
  remove(item: T): void {
    const index = this.#waiting.findIndex((waiting) => waiting.item === item);
    if (index >= 0) this.#waiting.splice(index, 1);
  }

  /**
   * Offers the items, the oldest first, to `take`. What it refuses to one it would
   * refuse to all behind it that wait for the same model: these are not asked.
   */
  offer(take: (item: T) => boolean): void {
    const refused = new Set<string>();
    for (const waiting of [...this.#waiting]) {
      const { item, model } = waiting;
      // It may have left meanwhile.
      if (refused.has(model) || !this.#waiting.includes(waiting)) continue;
      if (take(item)) this.remove(item);
      else refused.add(model);
    }
  }

  /** Takes out and returns the items that have waited too long. */
  expire(nowMs: number): T[] {
    const oldestMs = nowMs - this.#waitMsMax;
    const next = this.#waiting.findIndex(({ sinceMs }) => sinceMs > oldestMs);
    return this.#waiting.splice(0, next < 0 ? this.length : next)
      .map(({ item }) => item);
  }
}
