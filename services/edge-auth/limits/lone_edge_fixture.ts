import { monotonicNow } from "@gateway/shared/process/clock";
import { type Log, silentLog } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { Limiter } from "./limiter.ts";

/** A limiter for tests with a single edge. */
export function loneEdge(redis: RedisLink, log: Log = silentLog): Limiter {
  return new Limiter({
    redis,
    now: monotonicNow,
    random: Math.random,
    log,
    // These tests must also pass on a busy machine.
    deadlineMs: 1_000,
  });
}
