/** Requests that wait for a free slot: first come, first served. Pure. */
interface Waiting {
  readonly model: string;
  readonly sinceMs: number;
  /** Starts it, or returns false if there is no free slot for its model. */
  offer(): boolean;
}

export class WaitQueue<T extends Waiting> {
  readonly #waiting: T[] = [];

  constructor(readonly lengthMax: number) {}

  get length(): number {
    return this.#waiting.length;
  }

  hasWaiting(model: string): boolean {
    return this.#waiting.some((item) => item.model === model);
  }

  /** Adds an item ahead of those that have waited less. False if the queue is full. */
  push(item: T): boolean {
    if (this.length >= this.lengthMax) return false;
    const isOlder = ({ sinceMs }: T) => sinceMs <= item.sinceMs;
    this.#waiting.splice(this.#waiting.findLastIndex(isOlder) + 1, 0, item);
    return true;
  }

  remove(item: T): void {
    const index = this.#waiting.indexOf(item);
    if (index >= 0) this.#waiting.splice(index, 1);
  }

  /** Offers the items, the oldest first. If one does not start, later ones for its model are not offered. */
  offer(): void {
    const refused = new Set<string>();
    for (const item of [...this.#waiting]) {
      // It may have been removed in the meantime.
      if (refused.has(item.model) || !this.#waiting.includes(item)) continue;
      if (item.offer()) this.remove(item);
      else refused.add(item.model);
    }
  }
}
