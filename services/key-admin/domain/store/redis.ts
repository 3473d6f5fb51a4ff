import { monotonicNow } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import {
  createRedisLink,
  type RedisAddress,
  type RedisLink,
} from "@gateway/shared/redis/link";
import { barrierKey } from "./names.ts";

/** People wait for these answers, so there is more time than at an edge. */
const DEADLINE_MS = 2_000;

/** Which server, and how long to wait for it. */
export interface ConnectOptions {
  address: RedisAddress;
  log: Log;
  /** How long to wait for the first connection. */
  waitMs: number;
}

/** Opens a link and waits until it stands. Rejects with `RedisUnavailableError`, whose cause says why, when it does not. */
export async function connectRedis(
  { address, log, waitMs }: ConnectOptions,
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
