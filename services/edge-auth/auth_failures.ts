import type { MonotonicNow } from "@gateway/shared/clock";

/** How many failures are too many. */
export interface FailureLimits {
  /** Failures allowed in a window. */
  failuresMax: number;
  windowMs: number;
  /** Names remembered; the longest unused is dropped. */
  entriesMax: number;
}

/** Failed authentication per client address. Enough for a fleet behind one address to roll out a wrong key. */
export const AUTH_FAILURE_LIMITS: FailureLimits = {
  failuresMax: 20,
  windowMs: 60_000,
  entriesMax: 10_000,
};

/**
 * Bodies that do not parse, per key: they cost no quota, but 1 MB of hostile JSON
 * costs the parser up to 29 ms. 50 in 10 s is at most 15 % of a core per key.
 */
export const BAD_BODY_LIMITS: FailureLimits = {
  failuresMax: 50,
  windowMs: 10_000,
  entriesMax: 10_000,
};

/**
 * Counts failures by name (a client address, a key id) in windows that begin with
 * the first failure. In memory of this process, bounded, without timers.
 */
export interface FailureLimiter {
  /** How long this name must wait, ms; 0: it may go on. */
  waitMs(name: string): number;
  /** Counts a failure. Returns how long the name must wait now: more than 0 when this failure was one too many. */
  fail(name: string): number;
}

interface Window {
  failures: number;
  endsAtMs: number;
}

/** Makes a limiter that has seen no failure. */
export function createFailureLimiter(
  limits: FailureLimits,
  now: MonotonicNow,
): FailureLimiter {
  const { failuresMax, windowMs, entriesMax } = limits;
  const windows = new Map<string, Window>();

  const current = (name: string): Window | undefined => {
    const window = windows.get(name);
    if (window === undefined || now() < window.endsAtMs) return window;
    windows.delete(name);
    return undefined;
  };

  return {
    waitMs(name) {
      const window = current(name);
      if (window === undefined || window.failures < failuresMax) return 0;
      return Math.ceil(window.endsAtMs - now());
    },
    fail(name) {
      const window = current(name) ??
        { failures: 0, endsAtMs: now() + windowMs };
      window.failures += 1;
      // Set again, so that the busiest names are the last to be dropped.
      windows.delete(name);
      windows.set(name, window);
      if (windows.size > entriesMax) {
        for (const oldest of windows.keys()) {
          windows.delete(oldest);
          break;
        }
      }
      return window.failures > failuresMax
        ? Math.ceil(window.endsAtMs - now())
        : 0;
    },
  };
}
