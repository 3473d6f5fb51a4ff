/**
 * Collects what is to be sent to each of several receivers, so that one message carries
 * all of a moment.
 */
export class Outbox<T> {
  readonly #schedule: (flush: () => void, first: T) => void;
  readonly #send: (receiver: string, items: readonly T[]) => void;
  readonly #items = new Map<string, T[]>();

  /** `schedule` is called with the first item, and calls `flush` in a moment. */
  constructor(
    schedule: (flush: () => void, first: T) => void,
    send: (receiver: string, items: readonly T[]) => void,
  ) {
    this.#schedule = schedule;
    this.#send = send;
  }

  /** Receivers for which something waits. */
  get size(): number {
    return this.#items.size;
  }

  add(receiver: string, item: T): void {
    const items = this.#items.get(receiver);
    if (items !== undefined) return void items.push(item);
    this.#items.set(receiver, [item]);
    if (this.#items.size === 1) this.#schedule(() => this.flush(), item);
  }

  /** Sends everything now. Keeps nothing for a receiver, which may be gone for good. */
  flush(): void {
    const all = [...this.#items];
    this.#items.clear();
    for (const [receiver, items] of all) this.#send(receiver, items);
  }
}
