import type { MonotonicNow } from "@gateway/shared/process/clock";

/** Counts what happened within the last `windowMs`, in steps of a tenth of it. */
export interface SlidingCounter {
  add(): void;
  /** Events within the window, the oldest step included in part. */
  readonly sum: number;
  reset(): void;
}

const BUCKETS = 10;

/** Makes a counter at 0. Constant memory and constant work. */
export function createSlidingCounter(
  windowMs: number,
  now: MonotonicNow,
): SlidingCounter {
  const bucketMs = windowMs / BUCKETS;
  const counts = new Array<number>(BUCKETS).fill(0);
  let newest = Math.floor(now() / bucketMs);
  let sum = 0;

  const forget = () => {
    const current = Math.floor(now() / bucketMs);
    const steps = Math.min(current - newest, BUCKETS);
    for (let i = 1; i <= steps; i++) {
      const slot = (newest + i) % BUCKETS;
      sum -= counts[slot] ?? 0;
      counts[slot] = 0;
    }
    newest = Math.max(newest, current);
  };

  return {
    add() {
      forget();
      const slot = newest % BUCKETS;
      counts[slot] = (counts[slot] ?? 0) + 1;
      sum++;
    },
    get sum() {
      forget();
      return sum;
    },
    reset() {
      counts.fill(0);
      sum = 0;
    },
  };
}
