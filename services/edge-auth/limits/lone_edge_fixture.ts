import { monotonicNow } from "@gateway/shared/process/clock";
import { type Log, silentLog } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { Limiter } from "./limiter.ts";

/** The limiter of the only edge there is. */
export function loneEdge(redis: RedisLink, log: Log = silentLog): Limiter {
  return new Limiter({
    redis,
    now: monotonicNow,
    random: Math.random,
    log,
    // A busy machine must not decide these tests.
    deadlineMs: 1_000,
  });
}
