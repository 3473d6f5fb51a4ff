import type { MonotonicNow } from "@gateway/shared/process/clock";
import { createSlidingCounter } from "./sliding_counter.ts";

/** How much may be tried again. */
const RETRY_LIMITS = {
  windowMs: 10_000,
  /** Retries as a share of requests. */
  share: 0.1,
  /** Retries that are always allowed in a window, so that a quiet model has some. */
  floor: 5,
} as const;

/**
 * Bounds what retries add to a model server's load: when everything fails, every
 * request tried twice would double it at the worst moment.
 */
export interface RetryBudget {
  /** A request has come. */
  request(): void;
  /** Whether one more retry is within the budget; if so it is taken. */
  tryTake(): boolean;
}

/** Makes a full budget. Pure but for its clock. */
export function createRetryBudget(now: MonotonicNow): RetryBudget {
  const { windowMs, share, floor } = RETRY_LIMITS;
  const requests = createSlidingCounter(windowMs, now);
  const retries = createSlidingCounter(windowMs, now);
  return {
    request: () => requests.add(),
    tryTake() {
      if (retries.sum >= Math.max(floor, requests.sum * share)) return false;
      retries.add();
      return true;
    },
  };
}
