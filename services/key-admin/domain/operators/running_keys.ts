/** The keys of an owner with running requests, and the orders to stop these. */
import {
  KEY_FIELDS,
  keysKey,
  leaseKey,
  type Principal,
  recordKey,
  stopKey,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asNumber, asTexts } from "../store/redis.ts";

/** Keys that are looked at together. */
const BATCH = 200;

/** The keys of an owner, a batch at a time. */
async function* batchesOf(
  redis: RedisLink,
  ownerId: string,
): AsyncGenerator<Principal[]> {
  for (let at = 0;; at += BATCH) {
    const range = ["ZREVRANGE", keysKey(ownerId), `${at}`, `${at + BATCH - 1}`];
    const ids = asTexts(await redis.command(range));
    if (ids.length === 0) return;
    yield ids.map((keyId) => ({ keyId, ownerId }));
  }
}

/**
 * Returns the keys of an owner with running requests: each holds a lease while it runs.
 */
export async function runningKeys(
  redis: RedisLink,
  ownerId: string,
): Promise<Principal[]> {
  const running: Principal[] = [];
  for await (const batch of batchesOf(redis, ownerId)) {
    const leases = await Promise.all(
      batch.map((principal) =>
        redis.command(["ZCOUNT", leaseKey(principal), "-inf", "+inf"])
      ),
    );
    running.push(...batch.filter((_, at) => asNumber(leases[at]) > 0));
  }
  return running;
}

/**
 * Takes back the orders to stop the requests of an owner's keys, when the owner may
 * send requests again. Those of disabled keys stay.
 */
export async function dropStopOrders(
  { redis, writer }: { redis: RedisLink; writer: RedisLink },
  ownerId: string,
): Promise<void> {
  for await (const batch of batchesOf(redis, ownerId)) {
    const states = await Promise.all(
      batch.map((principal) =>
        redis.command(["HMGET", recordKey(principal), KEY_FIELDS.state])
      ),
    );
    const enabled = batch.filter((_, at) =>
      asTexts(states[at]).includes("enabled")
    );
    if (enabled.length === 0) continue;
    await writer.command(["DEL", ...enabled.map(stopKey)]);
  }
}
