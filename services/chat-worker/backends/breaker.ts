import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { AttemptResult } from "./errors.ts";

/** Failures without a success in between that open it. */
const CONSECUTIVE_FAILURES_MAX = 5;
/** Or half of this many attempts, or all of them finding no room. */
const JUDGED_ATTEMPTS = 20;
const FAILURES_MAX = JUDGED_ATTEMPTS / 2;
/** The first time without attempts; doubles with each probe that fails. */
const OPEN_MS = 1_000;
const OPEN_MS_MAX = 30_000;

/** `half-open`: attempts go out one at a time, to see whether the backend is well again. */
export type BreakerState = "closed" | "open" | "half-open";

/** The right to one attempt. */
export interface Permit {
  /** The answer has begun: while half-open, the next attempt may go. */
  begun(): void;
  /** Reports what became of it, once, at its end. */
  report(result: AttemptResult): void;
}

/**
 * Keeps attempts away from a backend that fails. Closed, it lets all through.
 * After too many failures it is open and lets none through for a while; then it
 * is half-open: the first success closes it, the first failure opens it for twice
 * as long. A long answer blocks nobody: once it has begun, the next may be tried.
 */
export class CircuitBreaker {
  state: BreakerState = "closed";
  readonly #now: MonotonicNow;
  /** Of the last attempts while closed, the newest at the end. */
  #results: AttemptResult[] = [];
  #consecutive = 0;
  #openMs = OPEN_MS;
  #openUntilMs = 0;
  /** While half-open: an attempt has not begun yet. */
  #isProbing = false;
  /** Rises with each change of state: a report from before it says nothing about now. */
  #era = 0;

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /** Milliseconds until the next probe may go, 0 if an attempt may go now. */
  get waitMs(): number {
    if (this.state === "closed") return 0;
    // Nobody knows how long the probe will take.
    if (this.state === "half-open") return this.#isProbing ? this.#openMs : 0;
    return Math.max(0, this.#openUntilMs - this.#now());
  }

  /** A permit, or null: not now. Every permit must be reported. */
  enter(): Permit | null {
    if (this.state !== "closed") {
      if (this.waitMs > 0) return null;
      if (this.state === "open") this.#change("half-open");
      this.#isProbing = true;
    }
    const era = this.#era;
    return {
      begun: () => {
        if (this.#era === era) this.#isProbing = false;
      },
      report: (result) => {
        if (this.#era !== era) return;
        if (this.state === "closed") this.#count(result);
        else this.#judgeProbe(result);
      },
    };
  }

  #count(result: AttemptResult): void {
    if (result === "ignored") return;
    this.#results.push(result);
    if (this.#results.length > JUDGED_ATTEMPTS) this.#results.shift();
    if (result === "success") this.#consecutive = 0;
    else if (result === "failure") this.#consecutive++;
    if (result !== "success" && this.#isTooMuch()) this.#open();
  }

  #isTooMuch(): boolean {
    if (this.#consecutive >= CONSECUTIVE_FAILURES_MAX) return true;
    if (this.#results.length < JUDGED_ATTEMPTS) return false;
    return !this.#results.includes("success") ||
      this.#results.filter((each) => each === "failure").length >= FAILURES_MAX;
  }

  #judgeProbe(result: AttemptResult): void {
    switch (result) {
      case "success":
        this.#change("closed");
        this.#consecutive = 0;
        this.#results = [];
        this.#openMs = OPEN_MS;
        break;
      case "failure":
        this.#openMs = Math.min(this.#openMs * 2, OPEN_MS_MAX);
        this.#open();
        break;
      case "overloaded":
        // Room may be there in a moment: no reason to wait longer than before.
        this.#open();
        break;
      case "ignored":
        this.#isProbing = false;
    }
  }

  #open(): void {
    this.#change("open");
    this.#openUntilMs = this.#now() + this.#openMs;
  }

  #change(state: BreakerState): void {
    this.state = state;
    this.#era++;
  }
}
