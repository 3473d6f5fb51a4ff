import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Sleep } from "./sleep.ts";

/** Work after which the event loop gets a turn. */
const WORK_MS_MAX = 2;

/**
 * Keeps the answers of one simulator from holding up everything else in the
 * process. All of them together may work 2 ms; then each waits, at its next
 * stop, for one turn of the event loop.
 */
export class TurnKeeper {
  readonly now: MonotonicNow;
  readonly #sleep: Sleep;
  #workedMs = 0;
  #turn: Promise<void> | undefined;

  constructor(options: { now: MonotonicNow; sleep: Sleep }) {
    this.now = options.now;
    this.#sleep = options.sleep;
  }

  /** Notes work that began at `startedAt` and ended now. */
  worked(startedAt: number): void {
    this.#workedMs += this.now() - startedAt;
  }

  /** Whether it is time to wait for {@link turn}. */
  get isDue(): boolean {
    return this.#turn !== undefined || this.#workedMs > WORK_MS_MAX;
  }

  /** Resolves after the event loop had a turn. */
  turn(): Promise<void> {
    return this.#turn ??= this.#sleep(0).then(() => {
      this.#workedMs = 0;
      this.#turn = undefined;
    });
  }
}
