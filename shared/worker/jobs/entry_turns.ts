/** When the entries of kept answers are written: those of all answers together. */
import { KEPT_LIMITS } from "../../kept/limits.ts";

/** Runs a function after `waitMs`. */
type Schedule = (run: () => void, waitMs: number) => void;

/**
 * The pauses of a worker between two entries of an answer. They end at the same time
 * for all answers, so that they share a timer, and their entries a write to the bus.
 */
export class EntryTurns {
  readonly #schedule: Schedule;
  #waiting: (() => void)[] = [];

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
  }

  /**
   * Runs a function at the end of the pause, which is longer if the worker runs many
   * jobs; it must not throw.
   */
  after(run: () => void, jobsRunning: number): void {
    this.#waiting.push(run);
    if (this.#waiting.length > 1) return;
    this.#schedule(() => this.#end(), pauseMs(jobsRunning));
  }

  #end(): void {
    const all = this.#waiting;
    this.#waiting = [];
    for (const run of all) run();
  }
}

/** The pause between two entries of an answer, in ms. */
const pauseMs = (jobsRunning: number): number =>
  Math.min(
    KEPT_LIMITS.entryMsMax,
    Math.max(KEPT_LIMITS.entryMs, jobsRunning * KEPT_LIMITS.entryMsPerJob),
  );
