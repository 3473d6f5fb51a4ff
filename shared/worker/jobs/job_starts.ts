/**
 * Starts jobs, a few ms long in each turn of the event loop. When hundreds come
 * together, the rest is accepted at once and started in the next turns: an edge waits
 * 250 ms for an acceptance, and a job that starts calls a server, which takes longest
 * at first.
 */
import { DISPATCH_LIMITS } from "../../limits.ts";
import type { MonotonicNow } from "../../process/clock.ts";
import type { Job } from "./job.ts";

/** What starting needs of a job. */
type StartableJob = Pick<Job, "accept" | "start">;

/** What {@link JobStarts} needs. */
export interface JobStartsOptions {
  readonly now: MonotonicNow;
  /** Runs a function after this time; 0: at the end of this turn. */
  readonly schedule: (run: () => void, waitMs: number) => void;
}

/** The jobs of a worker that start, in the order in which they came. */
export class JobStarts {
  readonly #options: JobStartsOptions;
  /** Until when jobs start in this turn; null: none has started in it. */
  #untilMs: number | null = null;
  #waiting: StartableJob[] = [];

  constructor(options: JobStartsOptions) {
    this.#options = options;
  }

  /** Starts a job, or accepts it and starts it in one of the next turns. */
  start(job: StartableJob, acceptance: "at once" | "by the next tick"): void {
    const nowMs = this.#options.now();
    if (this.#untilMs === null) this.#openTurn(nowMs);
    const isInTime = nowMs < (this.#untilMs ?? Infinity);
    if (this.#waiting.length === 0 && isInTime) {
      return job.start({ acceptance });
    }
    job.accept();
    this.#waiting.push(job);
  }

  #openTurn(nowMs: number): void {
    this.#untilMs = nowMs + DISPATCH_LIMITS.startsMs;
    this.#options.schedule(() => this.#onTurnEnd(), 0);
  }

  #onTurnEnd(): void {
    const { now } = this.#options;
    this.#untilMs = null;
    if (this.#waiting.length === 0) return;
    const nowMs = now();
    this.#openTurn(nowMs);
    let count = 0;
    for (const job of this.#waiting) {
      if (count > 0 && now() - nowMs >= DISPATCH_LIMITS.startsMs) break;
      job.start({ acceptance: "at once" });
      count += 1;
    }
    this.#waiting = this.#waiting.slice(count);
  }
}
