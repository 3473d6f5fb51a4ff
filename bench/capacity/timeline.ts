/** A virtual clock, and what is to happen on it. */

interface Event {
  readonly atMs: number;
  /** Events of the same time happen in the order in which they were planned. */
  readonly order: number;
  readonly run: () => void;
}

/** Runs what is planned, in the order of its times, without waiting. */
export class Timeline {
  /** A heap: no event is later than the two below it. */
  readonly #events: Event[] = [];
  #nowMs = 0;
  #planned = 0;

  /** The time, in ms from 0. */
  get nowMs(): number {
    return this.#nowMs;
  }

  /** Plans something. */
  after(waitMs: number, run: () => void): void {
    this.#planned += 1;
    const event = { atMs: this.#nowMs + waitMs, order: this.#planned, run };
    const events = this.#events;
    let at = events.push(event) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = events[above];
      if (parent === undefined || !isBefore(event, parent)) break;
      events[at] = parent;
      at = above;
    }
    events[at] = event;
  }

  /** Plans something for every `periodMs`, for the first time after a share of it. */
  every(periodMs: number, phase: number, run: () => void): void {
    const again = () => {
      run();
      this.after(periodMs, again);
    };
    this.after(periodMs * phase, again);
  }

  /** Runs all that is planned until then, and the microtasks of each event. */
  async runTo(endMs: number): Promise<void> {
    for (;;) {
      const event = this.#events[0];
      if (event === undefined || event.atMs > endMs) break;
      this.#removeFirst();
      this.#nowMs = event.atMs;
      event.run();
      await null;
    }
    this.#nowMs = endMs;
  }

  #removeFirst(): void {
    const events = this.#events;
    const last = events.pop();
    if (last === undefined || events.length === 0) return;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      const [a, b] = [events[left], events[left + 1]];
      if (a === undefined) break;
      const isRight = b !== undefined && isBefore(b, a);
      const child = isRight ? b : a;
      if (!isBefore(child, last)) break;
      events[at] = child;
      at = isRight ? left + 1 : left;
    }
    events[at] = last;
  }
}

const isBefore = (a: Event, b: Event): boolean =>
  a.atMs < b.atMs || a.atMs === b.atMs && a.order < b.order;
