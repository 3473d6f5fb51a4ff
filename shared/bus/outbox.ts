/**
 * A script call for many requests costs little more than for one, but must not block
 * Redis for long.
 */
export const BATCH_MAX = 200;

/**
 * Collects what comes in one turn of the event loop, by what it shares; `send` gets up
 * to {@link BATCH_MAX} items.
 */
export const createBatches = <T>(send: (batch: readonly T[]) => void) =>
  createOutbox<T>((flush) => queueMicrotask(flush), (_shared, items) => {
    for (let at = 0; at < items.length; at += BATCH_MAX) {
      send(items.slice(at, at + BATCH_MAX));
    }
  });

/** What {@link createOutbox} returns. */
export type Outbox<T> = ReturnType<typeof createOutbox<T>>;

/**
 * Collects items until `flush`, which `schedule` calls a moment after the first: one
 * message carries all of them.
 */
export function createOutbox<T>(
  schedule: (flush: () => void, first: T) => void,
  send: (receiver: string, items: readonly T[]) => void,
) {
  let waiting = new Map<string, T[]>();
  /** Keeps nothing for a receiver, which may be gone for good. */
  const flush = () => {
    const all = waiting;
    waiting = new Map();
    for (const [receiver, items] of all) send(receiver, items);
  };
  return {
    /** Receivers for which something waits. */
    get size(): number {
      return waiting.size;
    },
    add(receiver: string, item: T): void {
      const items = waiting.get(receiver);
      if (items !== undefined) return void items.push(item);
      waiting.set(receiver, [item]);
      if (waiting.size === 1) schedule(flush, item);
    },
    flush,
  };
}
