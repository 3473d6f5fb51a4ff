/** A limit that no store needs to know of: bodies that do not parse. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { dropOldest } from "./keys/drop_oldest.ts";

/** How many failures are too many. */
export interface FailureLimits {
  /** Failures allowed in a window. */
  failuresMax: number;
  windowMs: number;
  /** Names remembered; the longest unused is dropped. */
  entriesMax: number;
}

/**
 * Bodies that are refused after parsing, per key, in MiB: they cost no quota, but
 * 1 MB of hostile JSON costs the parser up to 29 ms. 50 MiB in 10 s are at most
 * 15 % of a core per key. Weighed by size because small ones cost next to nothing:
 * a client that is being written may send hundreds of them.
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
  /** Failures allowed in a window. */
  readonly failuresMax: number;
  /** How long this name must wait, ms; 0: it may go on. */
  waitMs(name: string): number;
  /** What this name has failed in the present window. */
  failures(name: string): number;
  /**
   * Counts a failure, as `weight` of them. Returns how long the name must wait
   * now: more than 0 when this failure was one too many.
   */
  fail(name: string, weight?: number): number;
}

/** From this weight of bad bodies in a window on, a key's bodies take the lane of `parse_lane.ts`. */
export const SUSPECT_BODY_WEIGHT = 1;

const MIB = 1024 * 1024;
/** Reading and answering a request costs as much as parsing this much. */
const BAD_BODY_BYTES_MIN = 4 * 1024;

/** What a bad body counts for in {@link BAD_BODY_LIMITS}. */
export function badBodyWeight(bytes: number): number {
  return Math.max(bytes, BAD_BODY_BYTES_MIN) / MIB;
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
    failuresMax,
    waitMs(name) {
      const window = current(name);
      if (window === undefined || window.failures < failuresMax) return 0;
      return Math.ceil(window.endsAtMs - now());
    },
    failures: (name) => current(name)?.failures ?? 0,
    fail(name, weight = 1) {
      const window = current(name) ??
        { failures: 0, endsAtMs: now() + windowMs };
      window.failures += weight;
      // Set again, so that the busiest names are the last to be dropped.
      windows.delete(name);
      windows.set(name, window);
      dropOldest(windows, entriesMax);
      return window.failures > failuresMax
        ? Math.ceil(window.endsAtMs - now())
        : 0;
    },
  };
}
