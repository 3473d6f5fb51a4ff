import type { MonotonicNow } from "@gateway/shared/process/clock";
import { createSlidingCounter } from "./sliding_counter.ts";

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
  /** The same where those that found no room count too: nothing else was said. */
  uselessShareMax: 1,
  /** The first time without attempts; doubles with each probe that fails. */
  openMs: 1_000,
  openMsMax: 30_000,
} as const;

/** `half-open`: attempts go out one at a time, to see whether the backend is well again. */
export type BreakerState = "closed" | "open" | "half-open";

/**
 * What became of an attempt. `overloaded`: there was no room, which is no failure
 * while others find some. `ignored`: it says nothing about the backend.
 */
export type AttemptResult = "success" | "failure" | "overloaded" | "ignored";

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
export interface CircuitBreaker {
  readonly state: BreakerState;
  /** Milliseconds until the next probe may go, 0 if an attempt may go now. */
  readonly waitMs: number;
  /** A permit, or null: not now. Every permit must be reported. */
  enter(): Permit | null;
}

/** Makes a closed breaker. Pure but for its clock. */
export function createCircuitBreaker(now: MonotonicNow): CircuitBreaker {
  const limits = BREAKER_LIMITS;
  const attempts = createSlidingCounter(limits.windowMs, now);
  const failures = createSlidingCounter(limits.windowMs, now);
  const overloads = createSlidingCounter(limits.windowMs, now);
  let state: BreakerState = "closed";
  let consecutive = 0;
  let openMs: number = limits.openMs;
  let openUntilMs = 0;
  /** While half-open: an attempt has not begun yet. */
  let isProbing = false;
  /** Rises with each change of state: a report from before it says nothing about now. */
  let era = 0;

  const change = (next: BreakerState) => {
    state = next;
    era++;
  };

  const open = () => {
    change("open");
    openUntilMs = now() + openMs;
  };

  const close = () => {
    change("closed");
    consecutive = 0;
    openMs = limits.openMs;
    attempts.reset();
    failures.reset();
    overloads.reset();
  };

  const isShareTooMuch = () => {
    const useless = failures.sum + overloads.sum;
    return failures.sum >= attempts.sum * limits.failureShareMax ||
      useless >= attempts.sum * limits.uselessShareMax;
  };

  const isTooMuch = () =>
    consecutive >= limits.consecutiveFailuresMax ||
    (attempts.sum >= limits.windowAttemptsMin && isShareTooMuch());

  const count = (result: AttemptResult) => {
    if (result === "ignored") return;
    attempts.add();
    if (result === "success") {
      consecutive = 0;
      return;
    }
    if (result === "overloaded") overloads.add();
    else {
      failures.add();
      consecutive++;
    }
    if (isTooMuch()) open();
  };

  const judgeProbe = (result: AttemptResult) => {
    if (result === "success") return close();
    if (result === "failure") {
      openMs = Math.min(openMs * 2, limits.openMsMax);
      return open();
    }
    // Room may be there in a moment: no reason to wait longer than before.
    if (result === "overloaded") return open();
    // The probe was given up for reasons of its own: the next may go at once.
    isProbing = false;
  };

  const permit = (judge: (result: AttemptResult) => void): Permit => {
    const mine = era;
    return {
      begun() {
        if (era === mine) isProbing = false;
      },
      report(result) {
        if (era === mine) judge(result);
      },
    };
  };

  return {
    get state() {
      return state;
    },
    get waitMs() {
      if (state === "closed") return 0;
      // How long the probe will take nobody knows.
      if (state === "half-open") return isProbing ? openMs : 0;
      return Math.max(0, openUntilMs - now());
    },
    enter() {
      if (state === "closed") return permit(count);
      if (state === "open") {
        if (now() < openUntilMs) return null;
        change("half-open");
      } else if (isProbing) return null;
      isProbing = true;
      return permit(judgeProbe);
    },
  };
}
