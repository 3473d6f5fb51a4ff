/** The pauses of a busy worker between two reads of its streams. */

/**
 * A busy worker pauses between two reads of a stream, the longer the more jobs it runs:
 * a read then brings several tokens, and costs the gateway no more than a read of one.
 * A model generates a token every 10 to 50 ms, and few readers notice 40 ms.
 */
const PAUSE_MS_MIN = 25;
const PAUSE_MS_PER_JOB = 0.3;
const PAUSE_MS_MAX = 80;
/**
 * How long a stream that must stop may read what arrived during the pause, which
 * counts.
 */
const LAST_READ_MS = 5;
/** With fewer jobs than this, pauses are rarely worthwhile. */
export const BUSY_JOBS_MIN = 16;

/** Runs a function after `waitMs`. */
type Schedule = (run: () => void, waitMs: number) => void;

/** All pauses end at once, so that one message carries what all streams read then. */
export class StreamPauses {
  readonly #schedule: Schedule;
  #current: PromiseWithResolvers<void> | null = null;

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
  }

  /** Resolves at the end of the pause; undefined if so few jobs are running. */
  pause(jobsRunning: number): Promise<void> | undefined {
    if (jobsRunning < BUSY_JOBS_MIN) return;
    if (this.#current === null) {
      this.#current = Promise.withResolvers();
      const wantedMs = PAUSE_MS_MIN + jobsRunning * PAUSE_MS_PER_JOB;
      const waitMs = Math.min(wantedMs, PAUSE_MS_MAX);
      this.#schedule(() => this.#end(), waitMs);
    }
    return this.#current.promise;
  }

  /**
   * Ends a pause and runs this when its streams have read what had arrived; else runs
   * it at once.
   */
  after(run: () => void): void {
    if (this.#current === null) return run();
    this.#end();
    this.#schedule(run, LAST_READ_MS);
  }

  #end(): void {
    this.#current?.resolve();
    this.#current = null;
  }
}
