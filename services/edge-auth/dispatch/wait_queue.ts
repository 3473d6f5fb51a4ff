/** The requests that wait for a worker with a free slot. */
import type { WorkerFamily } from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";

/** A request that waits. */
export interface Waiting {
  readonly model: string;
  /** The workers that may run it. */
  readonly family: WorkerFamily;
  /** Since when it has waited: its place in the queue. */
  readonly sinceMs: number;
  /** Starts it, or returns false if there is no free slot for its model. */
  offer(): boolean;
}

/** Requests that wait for a free slot: first come, first served. */
export class WaitQueue {
  readonly #waiting: Waiting[] = [];

  /** How many wait. */
  get length(): number {
    return this.#waiting.length;
  }

  /** Whether a request for this model waits. */
  hasWaiting(model: string): boolean {
    return this.#waiting.some((item) => item.model === model);
  }

  /** Whether a request for workers of this family waits. */
  hasWaitingFor(family: WorkerFamily): boolean {
    return this.#waiting.some((item) => item.family === family);
  }

  /** Adds an item ahead of those that have waited less. False if the queue is full. */
  push(item: Waiting): boolean {
    if (this.length >= DISPATCH_LIMITS.queueMax) return false;
    const isOlder = ({ sinceMs }: Waiting) => sinceMs <= item.sinceMs;
    this.#waiting.splice(this.#waiting.findLastIndex(isOlder) + 1, 0, item);
    return true;
  }

  /** Removes an item, if it waits. */
  remove(item: Waiting): void {
    const index = this.#waiting.indexOf(item);
    if (index >= 0) this.#waiting.splice(index, 1);
  }

  /**
   * Offers the items, the oldest first. If one does not start, later ones for its model
   * are not offered.
   */
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
