import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { Limiter } from "./limiter.ts";

/** A limiter for tests with a single edge. */
export function loneEdge(redis: RedisLink): Limiter & AsyncDisposable {
  const limiter = new Limiter({
    redis,
    now: monotonicNow,
    log: silentLog,
    // These tests must also pass on a busy machine.
    deadlineMs: 1_000,
  });
  const stop = async () => void await limiter.stop(1_000);
  return Object.assign(limiter, { [Symbol.asyncDispose]: stop });
}
