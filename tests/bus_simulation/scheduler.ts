interface Event {
  atMs: number;
  order: number;
  run: () => void;
}

/** Simulated time: runs what was planned, in order of time, then of planning. */
export class Scheduler {
  /** A binary heap, the earliest event first. */
  readonly #heap: Event[] = [];
  #nowMs = 0;
  #order = 0;

  get nowMs(): number {
    return this.#nowMs;
  }

  get isIdle(): boolean {
    return this.#heap.length === 0;
  }

  /** Plans `run` for `delayMs` from now. */
  after(delayMs: number, run: () => void): void {
    this.at(this.#nowMs + delayMs, run);
  }

  /** Plans `run` for a time, at once if it has passed. */
  at(atMs: number, run: () => void): void {
    const event = {
      atMs: Math.max(atMs, this.#nowMs),
      order: ++this.#order,
      run,
    };
    let index = this.#heap.length;
    this.#heap.push(event);
    while (index > 0) {
      const parentIndex = (index - 1) >> 1;
      const parent = this.#heap[parentIndex];
      if (parent === undefined || isBefore(parent, event)) break;
      this.#heap[index] = parent;
      index = parentIndex;
    }
    this.#heap[index] = event;
  }

  /** Runs the next event. False when there is none before `untilMs`. */
  step(untilMs: number): boolean {
    const first = this.#heap[0];
    if (first === undefined || first.atMs > untilMs) return false;
    const last = this.#heap.pop();
    if (last !== undefined && last !== first) this.#sink(last);
    this.#nowMs = first.atMs;
    first.run();
    return true;
  }

  #sink(event: Event): void {
    let index = 0;
    for (;;) {
      const left = this.#heap[2 * index + 1];
      const right = this.#heap[2 * index + 2];
      const isRight = left !== undefined && right !== undefined &&
        isBefore(right, left);
      const child = isRight ? right : left;
      if (child === undefined || isBefore(event, child)) break;
      this.#heap[index] = child;
      index = 2 * index + (isRight ? 2 : 1);
    }
    this.#heap[index] = event;
  }
}

function isBefore(a: Event, b: Event): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}
