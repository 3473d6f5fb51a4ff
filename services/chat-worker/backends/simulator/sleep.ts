import { setImmediate } from "node:timers";

/**
 * Waits, and ends at once when the signal aborts; never rejects, so the caller
 * looks at the signal. 0 waits for one turn of the event loop.
 */
export type Sleep = (ms: number, signal?: AbortSignal) => Promise<void>;

/** Longer waits overflow the timer and would end at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** {@link Sleep} with the timers of the process. */
export const timerSleep: Sleep = (ms, signal) => {
  if (ms <= 0) return new Promise((resolve) => setImmediate(resolve));
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, Math.min(ms, TIMER_MS_MAX));
    signal?.addEventListener("abort", end);
  });
};
