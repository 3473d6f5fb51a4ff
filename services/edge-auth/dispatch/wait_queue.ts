/** The requests that wait for a worker with a free slot. */
import type { WorkerFamily } from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { RunJob } from "./outcome.ts";

/** A request that waits for a slot, or holds one. */
export interface SlotHolder {
  readonly job: Pick<RunJob, "keyId">;
  /** The workers that may run it. */
  readonly family: WorkerFamily;
}

/** A request that waits. */
export interface Waiting extends SlotHolder {
  /** What it waits for: if one of a lane finds no free slot, no other of it does. */
  readonly lane: string;
  /** Since when it has waited: its place among those of its key. */
  readonly sinceMs: number;
  /** Starts or ends it, or returns false if there is no free slot for its lane. */
  offer(): boolean;
  /** It has lost its place. */
  giveUp(): void;
}

/**
 * Requests that wait for a free slot. The next one is that of the key which holds the
 * fewest slots of workers of the family; otherwise first come, first served. Thus a key
 * that sends many waits behind itself.
 */
export class WaitQueue {
  /** The oldest first. */
  readonly #waiting: Waiting[] = [];
  readonly #holders: () => readonly SlotHolder[];

  /** `holders` returns those that hold a slot at the moment. */
  constructor(holders: () => readonly SlotHolder[] = () => []) {
    this.#holders = holders;
  }

  /** How many wait. */
  get length(): number {
    return this.#waiting.length;
  }

  /** Whether a request of this lane waits. */
  hasWaiting(lane: string): boolean {
    return this.#waiting.some((item) => item.lane === lane);
  }

  /** Whether a request for workers of this family waits. */
  hasWaitingFor(family: WorkerFamily): boolean {
    return this.#waiting.some((item) => item.family === family);
  }

  /**
   * Adds an item. If the queue is full, the key with the most items gives up its latest
   * one; false if that would be this key.
   */
  push(item: Waiting): boolean {
    const isFull = this.length >= DISPATCH_LIMITS.queueMax;
    if (isFull && !this.#makePlace(item.job.keyId)) return false;
    const isOlder = ({ sinceMs }: Waiting) => sinceMs <= item.sinceMs;
    this.#waiting.splice(this.#waiting.findLastIndex(isOlder) + 1, 0, item);
    return true;
  }

  /** Removes an item, if it waits. */
  remove(item: Waiting): void {
    const index = this.#waiting.indexOf(item);
    if (index >= 0) this.#waiting.splice(index, 1);
  }

  /** Offers the items in turn. If one does not start, no other of its lane does. */
  offer(): void {
    const refused = new Set<string>();
    for (const item of this.#inTurn()) {
      const { lane } = item;
      // It may have been removed in the meantime.
      if (refused.has(lane) || !this.#waiting.includes(item)) continue;
      if (item.offer()) this.remove(item);
      else refused.add(lane);
    }
  }

  #inTurn(): Waiting[] {
    const [first] = this.#waiting;
    const isOfOneKey = this.#waiting.every(({ job }) =>
      job.keyId === first?.job.keyId
    );
    if (isOfOneKey) return [...this.#waiting];
    const counts = new Map<string, number>();
    /** Counts a slot that it holds, or would hold after those before it. */
    const count = ({ family, job }: SlotHolder): number => {
      const slots = counts.get(`${family} ${job.keyId}`) ?? 0;
      counts.set(`${family} ${job.keyId}`, slots + 1);
      return slots;
    };
    this.#holders().forEach(count);
    return this.#waiting
      .map((item) => ({ item, slots: count(item) }))
      .sort((a, b) => a.slots - b.slots)
      .map(({ item }) => item);
  }

  /** Makes a place for another item of a key, and returns whether there is one. */
  #makePlace(keyId: string): boolean {
    const byKey = Map.groupBy(this.#waiting, ({ job }) => job.keyId);
    const own = byKey.get(keyId)?.length ?? 0;
    const most = byKey.values().reduce((a, b) => b.length > a.length ? b : a);
    const latest = most.at(-1);
    if (most.length <= own + 1 || latest === undefined) return false;
    this.remove(latest);
    latest.giveUp();
    return true;
  }
}
