/** Bounds requests that only count tokens, which cost none and have no other limit. */
import { COUNT_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { remember } from "@gateway/shared/process/maps";

const MS_PER_SECOND = 1_000;
const { intervalMs, burst, keysMax } = COUNT_LIMITS;

/** The bound of each key at this edge: GCRA, in memory. */
export class CountLimit {
  /** When the requests that each key has made will be paid off. */
  readonly #paidAtMs = new Map<string, number>();
  readonly #now: MonotonicNow;

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /** Counts a request of a key. Throws `rate_limit_exceeded` if there were too many. */
  take(keyId: string): void {
    const nowMs = this.#now();
    const paidAtMs = Math.max(nowMs, this.#paidAtMs.get(keyId) ?? 0);
    const waitMs = paidAtMs - nowMs - (burst - 1) * intervalMs;
    if (waitMs > 0) throw tooMany(waitMs);
    remember(this.#paidAtMs, {
      key: keyId,
      value: paidAtMs + intervalMs,
      sizeMax: keysMax,
    });
  }
}

function tooMany(waitMs: number): ApiError {
  const seconds = Math.ceil(waitMs) / MS_PER_SECOND;
  return new ApiError(
    "rate_limit_exceeded",
    `Too many requests to count tokens. Please try again in ${seconds}s.`,
    { retryAfterMs: Math.max(1, waitMs) },
  );
}
