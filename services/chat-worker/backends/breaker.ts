import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { AttemptResult } from "./errors.ts";

/** When a breaker opens, and for how long. */
export const BREAKER_LIMITS = {
  /** Failures without a success in between. */
  consecutiveFailuresMax: 5,
  /** The window over which the share of failures is taken. */
  windowMs: 10_000,
  /** Fewer attempts than this in the window say nothing about the share. */
  windowAttemptsMin: 20,
  /** From this share of failures on, it opens. */
  failureShareMax: 0.5,
  /** The first time without attempts; doubles with each probe that fails. */
  openMs: 1_000,
  openMsMax: 30_000,
} as const;

const LIMITS = BREAKER_LIMITS;

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
  readonly #attempts: SlidingCounter;
  readonly #failures: SlidingCounter;
  readonly #overloads: SlidingCounter;
  #consecutive = 0;
  #openMs: number = LIMITS.openMs;
  #openUntilMs = 0;
  /** While half-open: an attempt has not begun yet. */
  #isProbing = false;
  /** Rises with each change of state: a report from before it says nothing about now. */
  #era = 0;

  constructor(now: MonotonicNow) {
    this.#now = now;
    this.#attempts = new SlidingCounter(LIMITS.windowMs, now);
    this.#failures = new SlidingCounter(LIMITS.windowMs, now);
    this.#overloads = new SlidingCounter(LIMITS.windowMs, now);
  }

  /** Milliseconds until the next probe may go, 0 if an attempt may go now. */
  get waitMs(): number {
    if (this.state === "closed") return 0;
    // How long the probe will take nobody knows.
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
    this.#attempts.add();
    if (result === "success") this.#consecutive = 0;
    else if (result === "overloaded") this.#overloads.add();
    else {
      this.#failures.add();
      this.#consecutive++;
    }
    if (result !== "success" && this.#isTooMuch()) this.#open();
  }

  /** Room that is never found is a failure too. */
  #isTooMuch(): boolean {
    const [attempts, failures] = [this.#attempts.sum, this.#failures.sum];
    return this.#consecutive >= LIMITS.consecutiveFailuresMax ||
      (attempts >= LIMITS.windowAttemptsMin &&
        (failures >= attempts * LIMITS.failureShareMax ||
          failures + this.#overloads.sum >= attempts));
  }

  #judgeProbe(result: AttemptResult): void {
    switch (result) {
      case "success":
        this.#change("closed");
        this.#consecutive = 0;
        this.#openMs = LIMITS.openMs;
        for (const each of [this.#attempts, this.#failures, this.#overloads]) {
          each.reset();
        }
        break;
      case "failure":
        this.#openMs = Math.min(this.#openMs * 2, LIMITS.openMsMax);
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

const BUCKETS = 10;

/** Counts what happened within the last `windowMs`, in steps of a tenth of it. */
export class SlidingCounter {
  readonly #now: MonotonicNow;
  readonly #bucketMs: number;
  readonly #counts = new Array<number>(BUCKETS).fill(0);
  #newest: number;
  #sum = 0;

  constructor(windowMs: number, now: MonotonicNow) {
    this.#now = now;
    this.#bucketMs = windowMs / BUCKETS;
    this.#newest = Math.floor(now() / this.#bucketMs);
  }

  add(): void {
    this.#forget();
    const slot = this.#newest % BUCKETS;
    this.#counts[slot] = (this.#counts[slot] ?? 0) + 1;
    this.#sum++;
  }

  /** Events within the window, the oldest step included in part. */
  get sum(): number {
    this.#forget();
    return this.#sum;
  }

  reset(): void {
    this.#counts.fill(0);
    this.#sum = 0;
  }

  #forget(): void {
    const current = Math.floor(this.#now() / this.#bucketMs);
    const steps = Math.min(current - this.#newest, BUCKETS);
    for (let i = 1; i <= steps; i++) {
      const slot = (this.#newest + i) % BUCKETS;
      this.#sum -= this.#counts[slot] ?? 0;
      this.#counts[slot] = 0;
    }
    this.#newest = Math.max(this.#newest, current);
  }
}
