/** Bounds requests that only count tokens, which cost none and have no other limit. */
import { COUNT_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { remember } from "@gateway/shared/process/maps";

const MS_PER_SECOND = 1_000;
const { intervalMs, burst, runningMax, keysMax } = COUNT_LIMITS;

/** The bounds of each key at this edge, in memory: GCRA, and those that run at once. */
export class CountLimit {
  /** When the requests that each key has made will be paid off. */
  readonly #paidAtMs = new Map<string, number>();
  /** How many requests of each key have not ended. */
  readonly #running = new Map<string, number>();
  readonly #now: MonotonicNow;

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /**
   * Counts a request of a key, and returns the function that ends it, to be called
   * once. Throws an `ApiError` if there were too many in time, or at once.
   */
  take(keyId: string): () => void {
    const running = this.#running.get(keyId) ?? 0;
    if (running >= runningMax) throw tooManyAtOnce();
    const nowMs = this.#now();
    const paidAtMs = Math.max(nowMs, this.#paidAtMs.get(keyId) ?? 0);
    const waitMs = paidAtMs - nowMs - (burst - 1) * intervalMs;
    if (waitMs > 0) throw tooMany(waitMs);
    remember(this.#paidAtMs, {
      key: keyId,
      value: paidAtMs + intervalMs,
      sizeMax: keysMax,
    });
    this.#running.set(keyId, running + 1);
    return () => this.#end(keyId);
  }

  #end(keyId: string): void {
    const left = (this.#running.get(keyId) ?? 0) - 1;
    if (left > 0) this.#running.set(keyId, left);
    else this.#running.delete(keyId);
  }
}

function tooManyAtOnce(): ApiError {
  return new ApiError(
    "concurrency_limit_exceeded",
    "Too many requests to count tokens at the same time. " +
      "Please try again in 1s.",
    { retryAfterMs: MS_PER_SECOND },
  );
}

function tooMany(waitMs: number): ApiError {
  const seconds = Math.ceil(waitMs) / MS_PER_SECOND;
  return new ApiError(
    "rate_limit_exceeded",
    `Too many requests to count tokens. Please try again in ${seconds}s.`,
    { retryAfterMs: Math.max(1, waitMs) },
  );
}
