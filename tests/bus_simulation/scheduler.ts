interface Event {
  atMs: number;
  run: () => void;
}

/** Simulated time: runs what was planned, in order of time, then of planning. */
export class Scheduler {
  /** The latest event first. */
  readonly #events: Event[] = [];
  nowMs = 0;

  get isIdle(): boolean {
    return this.#events.length === 0;
  }

  /** Plans `run` for `delayMs` from now. */
  after(delayMs: number, run: () => void): void {
    this.at(this.nowMs + delayMs, run);
  }

  /** Plans `run` for a time, at once if it has passed. */
  at(wantedMs: number, run: () => void): void {
    const atMs = Math.max(wantedMs, this.nowMs);
    let low = 0;
    for (let high = this.#events.length; low < high;) {
      const middle = (low + high) >> 1;
      if ((this.#events[middle]?.atMs ?? 0) > atMs) low = middle + 1;
      else high = middle;
    }
    this.#events.splice(low, 0, { atMs, run });
  }

  /** Runs the next event. False when there is none before `untilMs`. */
  step(untilMs: number): boolean {
    const first = this.#events.at(-1);
    if (first === undefined || first.atMs > untilMs) return false;
    this.#events.pop();
    this.nowMs = first.atMs;
    first.run();
    return true;
  }
}
