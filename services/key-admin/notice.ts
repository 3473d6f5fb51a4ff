import { connectBus } from "@gateway/shared/bus/link";
import { keyChangedSubject } from "@gateway/shared/bus/subjects";
import { monotonicNow } from "@gateway/shared/clock";
import { silentLog } from "@gateway/shared/log";
import { type BusAccess, INBOX_PREFIXES } from "@gateway/shared/store_access";

/** Tells every edge to end the running requests of a key. */
export interface StopNotice {
  keyId: string;
  ownerId: string;
}

/** Resolves when the notice is with the server; rejects when it is not after a second. */
export type SendStop = (notice: StopNotice) => Promise<void>;

/** One attempt, so that whoever waits for the page learns of a failure in time. */
const ONCE = { firstConnectMs: 0, dialMs: 1_000, flushMs: 1_000 };

/**
 * A sender that connects for each notice. They are rare, and a connection made
 * now cannot be one that died unnoticed yesterday: either the notice reaches the
 * server or the caller learns that it did not.
 */
export function createStopSender(access: BusAccess): SendStop {
  return async ({ keyId, ownerId }) => {
    const link = await connectBus({
      ...access,
      name: "key-admin",
      inboxPrefix: INBOX_PREFIXES.admin,
      log: silentLog,
      now: monotonicNow,
      random: Math.random,
      timing: ONCE,
    });
    try {
      const notice = JSON.stringify({ keyId, ownerId, action: "stop" });
      link.publish(keyChangedSubject, new TextEncoder().encode(notice));
      await link.flush();
    } finally {
      await link.close();
    }
  };
}
