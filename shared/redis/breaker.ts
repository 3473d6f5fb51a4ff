import type { MonotonicNow } from "../process/clock.ts";

/** When a circuit opens. */
export interface BreakerOptions {
  now: MonotonicNow;
  /** This many failures in a row … */
  failuresMax: number;
  /** … within this time. */
  windowMs: number;
}

/** Counts failures of one dependency. It has no timer: its user probes while it is open. */
export interface Breaker {
  /** While true, no ordinary call should be made. */
  readonly isOpen: boolean;
  /** Tells of a failed call or probe. Returns true when this opened the circuit. */
  failed(): boolean;
  /** Tells of a call or probe that worked. Returns true when this closed the circuit. */
  succeeded(): boolean;
}

/**
 * Opens after `failuresMax` failures in a row within `windowMs`, closes at the
 * first success. Failures must be in a row because a busy server that misses one
 * deadline in ten thousand is not away. Example with 5 in 1000 ms: failures at
 * 0, 300, 600, 900 and 990 open it at 990; with the first one at -20 they do not.
 */
export function createBreaker(options: BreakerOptions): Breaker {
  const { now, failuresMax, windowMs } = options;
  const failedAtMs: number[] = [];
  let isOpen = false;
  return {
    get isOpen() {
      return isOpen;
    },
    failed() {
      if (isOpen) return false;
      const nowMs = now();
      failedAtMs.push(nowMs);
      if (failedAtMs.length > failuresMax) failedAtMs.shift();
      const [firstMs = nowMs] = failedAtMs;
      isOpen = failedAtMs.length === failuresMax && nowMs - firstMs <= windowMs;
      return isOpen;
    },
    succeeded() {
      // The common case, once per reply: nothing to forget.
      if (failedAtMs.length === 0 && !isOpen) return false;
      failedAtMs.length = 0;
      const wasOpen = isOpen;
      isOpen = false;
      return wasOpen;
    },
  };
}
