/** Links to Redis with what tests need. */
import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import {
  createRedisLink,
  type RedisLink,
  type RedisLinkOptions,
} from "@gateway/shared/redis/link";
import type { RedisAddress } from "@gateway/shared/redis/connection";
import { until } from "../wait_for.ts";

/** How long a call waits for a connection that was lost on a busy machine. */
const LOST_MS = 2_000;

/** The link, whose calls wait if it is not connected at the moment. */
export function waiting(link: RedisLink): RedisLink {
  const connected = async () => {
    if (link.state !== "offline") return;
    await until(() => link.state !== "offline", LOST_MS).catch(() => {
      // The call says it.
    });
  };
  return changedLink(link, {
    command: (...call) => connected().then(() => link.command(...call)),
    evalScript: (...call) => connected().then(() => link.evalScript(...call)),
  });
}

/** A link that does some things in another way. */
export function changedLink(
  link: RedisLink,
  changes: Partial<Omit<RedisLink, "state">>,
): RedisLink {
  return {
    get state() {
      return link.state;
    },
    command: (...call) => link.command(...call),
    evalScript: (...call) => link.evalScript(...call),
    ready: (timeoutMs) => link.ready(timeoutMs),
    close: () => link.close(),
    ...changes,
  };
}

/**
 * A link as services have it, which logs nothing where `options` do not say otherwise.
 */
export function testRedisLink(
  address: RedisAddress,
  options: Partial<RedisLinkOptions> = {},
): RedisLink {
  const clocks = { now: monotonicNow, random: Math.random };
  return createRedisLink({ address, log: silentLog, ...clocks, ...options });
}
