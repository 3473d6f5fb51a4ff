import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import {
  createRedisLink,
  type RedisAddress,
  type RedisLink,
  type RedisLinkOptions,
} from "@gateway/shared/redis/link";

/** A link as services have it, which logs nothing where `options` do not say otherwise. */
export function testRedisLink(
  address: RedisAddress,
  options: Partial<RedisLinkOptions> = {},
): RedisLink {
  const clocks = { now: monotonicNow, random: Math.random };
  return createRedisLink({ address, log: silentLog, ...clocks, ...options });
}
