import { monotonicNow, type WallNow } from "@gateway/shared/process/clock";
import type { RandomBytes } from "@gateway/shared/process/ids";
import {
  createRedisLink,
  type RedisLink,
  type RedisLinkOptions,
} from "@gateway/shared/redis/link";
import { barrierKey } from "./names.ts";

/** Longer than at an edge, since people rather than programs wait. */
const DEADLINE_MS = 2_000;

/** Dependencies of the stores. */
export interface StoreDeps {
  redis: RedisLink;
  /** A separate connection, since waiting for the disk blocks everything behind it. */
  writer: RedisLink;
  randomBytes: RandomBytes;
  now: WallNow;
}

/** Opens a link and waits for the first connection. Rejects with `RedisUnavailableError`, whose cause says why. */
export async function connectRedis(
  { address, log, waitMs }:
    & Pick<RedisLinkOptions, "address" | "log">
    & { waitMs: number },
): Promise<RedisLink> {
  const link = createRedisLink({
    address: { ...address, clientName: "key-admin" },
    log,
    now: monotonicNow,
    random: Math.random,
    deadlineMs: DEADLINE_MS,
    probe: ["SET", barrierKey, "1", "EX", "60"],
  });
  try {
    await link.ready(waitMs);
    return link;
  } catch (cause) {
    await link.close();
    throw cause;
  }
}
