/** What goes to the same receiver in one turn of the event loop is sent together. */

/**
 * A script call for many requests costs little more than for one, but must not block
 * Redis for long.
 */
export const BATCH_MAX = 200;

/**
 * Collects what comes in one turn of the event loop, by what it shares; `send` gets up
 * to {@link BATCH_MAX} items.
 */
export const createBatches = <T>(
  send: (batch: readonly T[]) => void,
): Outbox<T> =>
  new Outbox<T>((flush) => queueMicrotask(flush), (_shared, items) => {
    for (let at = 0; at < items.length; at += BATCH_MAX) {
      send(items.slice(at, at + BATCH_MAX));
    }
  });

/** Calls `flush` a moment later. `first` is the item that waits. */
type Schedule<T> = (flush: () => void, first: T) => void;

/** Sends what has waited for a receiver, in the order in which it came. */
type SendAll<T> = (receiver: string, items: readonly T[]) => void;

/**
 * Collects items until `schedule`, which is called with the first of them, flushes: one
 * message to a receiver carries all of them. Keeps nothing for a receiver, which may be
 * gone for good.
 */
export class Outbox<T> {
  readonly #schedule: Schedule<T>;
  readonly #send: SendAll<T>;
  /** Made once, since `schedule` is called for every message. */
  readonly #flush: () => void;
  #waiting = new Map<string, T[]>();

  constructor(schedule: Schedule<T>, send: SendAll<T>) {
    this.#schedule = schedule;
    this.#send = send;
    this.#flush = this.flush.bind(this);
  }

  /** Receivers for which something waits. */
  get size(): number {
    return this.#waiting.size;
  }

  /** Adds an item for a receiver. */
  add(receiver: string, item: T): void {
    const items = this.#waiting.get(receiver);
    if (items !== undefined) {
      items.push(item);
      return;
    }
    this.#waiting.set(receiver, [item]);
    if (this.#waiting.size === 1) this.#schedule(this.#flush, item);
  }

  /** Sends now what waits. */
  flush(): void {
    const all = this.#waiting;
    this.#waiting = new Map();
    for (const [receiver, items] of all) this.#send(receiver, items);
  }
}
