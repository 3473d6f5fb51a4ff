/** Keeps the leases of this edge's running requests alive. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import {
  leaseKey,
  ownerLeaseKey,
  type Principal,
} from "@gateway/shared/keys/record";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { RENEW } from "./scripts.ts";

/** A slot that a running request holds. */
export interface Lease {
  readonly id: string;
  readonly principal: Principal;
}

/** A third of a lease's lifetime, so two renewals may fail. */
const RENEW_AFTER_MS = 10_000;
/** How often leases are checked and failed renewals are repeated. */
const ROUND_MS = 1_000;
const DEADLINE_MS = 1_000;
/** Leases per call, so that no call blocks the server for long. */
const BATCH = 200;

interface Held extends Lease {
  /** When it was taken or renewed. */
  renewedAtMs: number;
}

export function createLeaseKeeper({ redis, now, log }: {
  redis: RedisLink;
  now: MonotonicNow;
  log: Log;
}) {
  const held = new Map<string, Held>();
  let timer: ReturnType<typeof setInterval> | undefined;
  let round: Promise<boolean> | null = null;

  const renewBatch = async (leases: readonly Held[]): Promise<void> => {
    const [first] = leases;
    if (first === undefined) return;
    const sentAtMs = now();
    const { principal } = first;
    await redis.evalScript(
      RENEW,
      [leaseKey(principal), ownerLeaseKey(principal.ownerId)],
      leases.map(({ id }) => id),
      { deadlineMs: DEADLINE_MS },
    );
    for (const lease of leases) lease.renewedAtMs = sentAtMs;
  };

  /** All calls are made in one turn of the event loop, so they go out in one write. */
  const renew = async (): Promise<boolean> => {
    const dueMs = now() - RENEW_AFTER_MS;
    const due = held.values().filter((lease) => lease.renewedAtMs <= dueMs);
    const batches = [];
    for (
      const leases of Map.groupBy(due, (each) => each.principal.keyId).values()
    ) {
      for (let from = 0; from < leases.length; from += BATCH) {
        batches.push(leases.slice(from, from + BATCH));
      }
    }
    const results = await Promise.allSettled(batches.map(renewBatch));
    const failure = results.find((result) => result.status === "rejected");
    if (failure === undefined) return true;
    log.warn("lease_renew_failed", { held: held.size, error: failure.reason });
    return false;
  };

  return {
    get held(): number {
      return held.size;
    },
    hold({ id, principal }: Lease): void {
      held.set(id, { id, principal, renewedAtMs: now() });
    },
    /** Returns false when the request has already ended. */
    release: (id: string): boolean => held.delete(id),
    /** Renews all leases that are due. Returns false when that failed. */
    renew,
    start(): void {
      timer ??= setInterval(() => {
        round ??= renew().finally(() => round = null);
      }, ROUND_MS);
    },
    /** Stops renewing. Leases still held expire by themselves. */
    async stop(): Promise<void> {
      clearInterval(timer);
      timer = undefined;
      await round;
    },
  };
}
