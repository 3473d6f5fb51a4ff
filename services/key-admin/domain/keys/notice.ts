/** The order to end the running requests of keys. */
import { connectBus } from "@gateway/shared/bus/link_nats";
import { subjects } from "@gateway/shared/bus/subjects";
import { type Principal, stopKey } from "@gateway/shared/keys/record";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import {
  type BusAccess,
  INBOX_PREFIXES,
} from "@gateway/shared/process/service_variables";
import type { RedisLink } from "@gateway/shared/redis/link";

/**
 * Makes every edge end the running requests of these keys. Resolves when the server has
 * the notices; rejects after about a second otherwise.
 */
export type SendStop = (principals: readonly Principal[]) => Promise<void>;

/** A page waits for this, and running requests have to stop within 1 s. */
const TIMING = { dialMs: 700, firstConnectMs: 1_000, flushMs: 500 };
/** Longer than any request runs. */
const ORDER_MS = 86_400_000;

/**
 * Opens a connection each time: a new one cannot have died unnoticed, so either the
 * server gets the notices, or the caller learns that it did not. Edges that miss them
 * find the orders in Redis.
 */
export function createStopSender({ access, writer, log }: {
  access: BusAccess;
  writer: Pick<RedisLink, "command">;
  log: Log;
}): SendStop {
  return async (principals) => {
    if (principals.length === 0) return;
    const ordered = Promise.all(
      principals.map(stopKey).flatMap((order) => [
        writer.command(["HSET", order, "at", String(wallNow())]),
        writer.command(["PEXPIREAT", order, String(wallNow() + ORDER_MS)]),
      ]),
    );
    await ordered.catch(() => {}); // Thrown below: a notice alone reaches most edges.
    const bus = await connectBus({
      ...access,
      name: "key-admin",
      inboxPrefix: INBOX_PREFIXES.admin,
      log,
      now: monotonicNow,
      random: Math.random,
      timing: TIMING,
    });
    try {
      for (const { keyId, ownerId } of principals) {
        const notice = JSON.stringify({ keyId, ownerId, action: "stop" });
        bus.publish(subjects.keyChanged, new TextEncoder().encode(notice));
      }
      await bus.flush();
    } finally {
      await bus.close();
    }
    await ordered;
  };
}
