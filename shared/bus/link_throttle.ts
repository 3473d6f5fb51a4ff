import type { MonotonicNow } from "../process/clock.ts";

/**
 * Lets at most one log line through per interval, so that a fault in what happens
 * per token does not become a flood of lines.
 *
 * The returned function answers `undefined` when the line must not be written,
 * else how many were held back since the last one that was.
 */
export function createThrottle(
  now: MonotonicNow,
  intervalMs: number,
): () => number | undefined {
  let nextAt = -Infinity;
  let heldBack = 0;
  return () => {
    if (now() < nextAt) {
      heldBack++;
      return undefined;
    }
    const result = heldBack;
    heldBack = 0;
    nextAt = now() + intervalMs;
    return result;
  };
}
