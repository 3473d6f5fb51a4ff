/**
 * Requests that wait for a free slot: first come, first served. Bounded in length, so
 * that overload is answered with 503. Pure.
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

  constructor(lengthMax: number) {
    this.#lengthMax = lengthMax;
  }

  get length(): number {
    return this.#waiting.length;
  }

  /** Whether any item waits for this model. */
  hasWaiting(model: string): boolean {
    return this.#waiting.some((waiting) => waiting.model === model);
  }

  /** Adds an item that has waited since `sinceMs`, ahead of those that came later. False if the queue is full. */
  push(item: T, model: string, sinceMs: number): boolean {
    if (this.#waiting.length >= this.#lengthMax) return false;
    const before = this.#waiting.findLastIndex((each) =>
      each.sinceMs <= sinceMs
    );
    this.#waiting.splice(before + 1, 0, { item, model, sinceMs });
    return true;
  }

  /** Removes an item from any position. */
  remove(item: T): void {
    const index = this.#waiting.findIndex((waiting) => waiting.item === item);
    if (index >= 0) this.#waiting.splice(index, 1);
  }

  /**
   * Offers the items to `take`, the oldest first, and removes those that it accepts.
   * If it refuses one, later items for the same model are not offered.
   */
  offer(take: (item: T) => boolean): void {
    const refused = new Set<string>();
    for (const waiting of [...this.#waiting]) {
      const { item, model } = waiting;
      // It may have been removed in the meantime.
      if (refused.has(model) || !this.#waiting.includes(waiting)) continue;
      if (take(item)) this.remove(item);
      else refused.add(model);
    }
  }
}
