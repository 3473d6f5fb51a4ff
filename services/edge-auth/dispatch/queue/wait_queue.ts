/** The requests that wait for a worker with a free slot. */
import type { WorkerFamily } from "@gateway/shared/bus/subjects";
import type { EdgeWaiting, LaneWaiting } from "@gateway/shared/bus/waiting";
import type { QueueTerms } from "@gateway/shared/models/queue";
import { DrainRate } from "./drain_rate.ts";
import { FairQueue } from "./fair_queue.ts";
import type { Sharing } from "./share.ts";

/** A request that waits. */
export interface Waiting extends Sharing {
  /** The workers that may run it. */
  readonly family: WorkerFamily;
  readonly terms: QueueTerms;
  /** Starts or ends it, or returns false if there is no free slot for its lane. */
  offer(): boolean;
  /** It has lost its place. */
  giveUp(full: QueueFull): void;
}

/** Why a request may not wait: as many wait as may. */
export interface QueueFull {
  /** When those who wait now will have been served. */
  readonly retryAfterMs: number;
}

/**
 * Requests that wait for a free slot, in the order of {@link FairQueue}: those of
 * workers of one family share their slots. The next one is offered whenever a slot may
 * be free.
 */
export class WaitQueue {
  readonly #now: () => number;
  readonly #families = new Map<WorkerFamily, FairQueue<Waiting>>();
  readonly #rates = new Map<string, DrainRate>();

  /** `now`: the clock on which requests began to wait, in ms. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** How many wait. */
  get length(): number {
    return this.#families.values().reduce((sum, { size }) => sum + size, 0);
  }

  /** Whether a request of this lane waits. */
  hasWaiting(family: WorkerFamily, lane: string): boolean {
    return (this.#families.get(family)?.amount(lane).waiting ?? 0) > 0;
  }

  /** Whether a request for workers of this family waits. */
  hasWaitingFor(family: WorkerFamily): boolean {
    return (this.#families.get(family)?.size ?? 0) > 0;
  }

  /**
   * Adds a request. If its lane is full, the account of which most waits there gives
   * up its latest ones; if that would be its own account, it may not wait.
   */
  push(item: Waiting): QueueFull | null {
    const queue = this.#queueOf(item.family);
    const { lane, terms: { requestsMax, tokensMax }, share } = item;
    const bounds = [
      { by: "waiting", max: requestsMax, more: 1 },
      { by: "tokens", max: tokensMax, more: share.tokens },
    ] as const;
    for (const { by, max, more } of bounds) {
      while (queue.amount(lane)[by] + more > max) {
        const own = queue.amount(lane, share.account)[by] + more;
        const least = own / share.weight;
        const latest = queue.latestOfLargest(lane, by, least);
        if (latest === undefined) return this.#full(queue, lane);
        this.remove(latest);
        latest.giveUp(this.#full(queue, lane));
      }
    }
    this.#rateOf(lane).begin(this.#now());
    queue.push(item);
    return null;
  }

  /** Removes a request, if it waits. */
  remove(item: Waiting): void {
    const queue = this.#families.get(item.family);
    if (queue?.remove(item)) this.#onLeft(queue, item);
  }

  /** Offers the requests in turn. If one does not start, no other of its lane does. */
  offer(): void {
    for (const queue of this.#families.values()) {
      const refused = new Set<string>();
      for (;;) {
        const item = queue.next(refused);
        if (item === undefined) break;
        if (!item.offer()) refused.add(item.lane);
        // Instead of starting, it may have ended.
        else if (queue.has(item)) {
          queue.take(item);
          this.#rateOf(item.lane).add(this.#now());
          this.#onLeft(queue, item);
        }
      }
    }
  }

  /** What waits, by lanes; of one family of workers, if one is named. */
  lanes(family?: WorkerFamily): EdgeWaiting {
    const nowMs = this.#now();
    const lanes = new Map<string, LaneWaiting>();
    for (const [each, queue] of this.#families) {
      if (family !== undefined && each !== family) continue;
      for (const lane of queue.lanes()) {
        const sinceMs = queue.oldest(lane)?.sinceMs ?? nowMs;
        lanes.set(lane, amountOf(queue, lane, Math.max(0, nowMs - sinceMs)));
      }
    }
    return lanes;
  }

  #onLeft(queue: FairQueue<Waiting>, { lane }: Waiting): void {
    if (queue.amount(lane).waiting > 0) return;
    this.#rateOf(lane).end(this.#now());
  }

  #full(queue: FairQueue<Waiting>, lane: string): QueueFull {
    const { waiting } = queue.amount(lane);
    const retryAfterMs = this.#rateOf(lane).waitMs(waiting, this.#now());
    return { retryAfterMs };
  }

  #queueOf(family: WorkerFamily): FairQueue<Waiting> {
    let queue = this.#families.get(family);
    if (queue === undefined) {
      queue = new FairQueue();
      this.#families.set(family, queue);
    }
    return queue;
  }

  /** Lanes are models of the list and kinds of uploads, so they are few. */
  #rateOf(lane: string): DrainRate {
    let rate = this.#rates.get(lane);
    if (rate === undefined) {
      rate = new DrainRate();
      this.#rates.set(lane, rate);
    }
    return rate;
  }
}

function amountOf(
  queue: FairQueue<Waiting>,
  lane: string,
  oldestMs: number,
): LaneWaiting {
  const { waiting: requests, tokens } = queue.amount(lane);
  return { requests, tokens, weight: queue.weightOf(lane), oldestMs };
}
