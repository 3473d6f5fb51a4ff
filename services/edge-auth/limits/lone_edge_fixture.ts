import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { createLimiter, type Limiter } from "./limiter.ts";

/** The admission of the only edge there is. */
export function loneEdge(redis: RedisLink): Limiter {
  return createLimiter({
    redis,
    now: monotonicNow,
    random: Math.random,
    log: silentLog,
    // A busy machine must not decide these tests.
    deadlineMs: 1_000,
  });
}
