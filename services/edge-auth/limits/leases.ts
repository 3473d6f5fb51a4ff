import type { MonotonicNow } from "@gateway/shared/process/clock";
import {
  leaseKey,
  ownerLeaseKey,
  type Principal,
} from "@gateway/shared/keys/record";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { LEASE_MS, LEASES_TTL_MS } from "./admit.lua.ts";
import { LIMITER_EPOCH_MS } from "@gateway/shared/keys/limiter_state";
import { defineScript, type RedisScript } from "@gateway/shared/redis/script";

/**
 * Renews leases of running requests of one key.
 *
 * ```
 * KEYS  1 lease:{owner}:<key>   2 lease:{owner}
 * ARGV  1 "1": the owner counts leases as well   2 … lease ids
 * reply the lease ids that were not there
 * ```
 *
 * A missing lease (the server lost data) is created again, because its request is
 * still running and must count. Its reservation is gone, so the edge is told.
 */
export const RENEW: RedisScript = defineScript(
  "renew",
  `
local call = redis.call
local time = call('TIME')
local ends = math.floor((time[1] - ${
    LIMITER_EPOCH_MS / 1000
  }) * 1000 + time[2] / 1000) + ${LEASE_MS}
local missing = {}
for i = 2, #ARGV do
  if call('ZADD', KEYS[1], ends, ARGV[i]) == 1 then missing[#missing + 1] = ARGV[i] end
  if ARGV[1] == '1' then call('ZADD', KEYS[2], ends, ARGV[i]) end
end
call('PEXPIRE', KEYS[1], ${LEASES_TTL_MS})
if ARGV[1] == '1' then call('PEXPIRE', KEYS[2], ${LEASES_TTL_MS}) end
return missing
`,
);

/** A slot that a running request holds. */
export interface Lease {
  readonly id: string;
  readonly principal: Principal;
  /** The owner counts it as well. */
  readonly isOwnerCounted: boolean;
  /** Set when the server has lost it, together with its reservation. */
  isLost: boolean;
}

/** A third of a lease's life: two renewals may fail. */
const RENEW_EVERY_MS = 10_000;
/** Sooner after a failure. */
const RENEW_AGAIN_MS = 1_000;
/** Most requests are shorter: a young lease is left for the next round. */
const YOUNG_MS = 5_000;
const DEADLINE_MS = 1_000;
/** Leases per call, so that no call blocks the server for long. */
const BATCH = 200;

interface Held {
  lease: Lease;
  sinceMs: number;
}

/** Keeps the leases of this edge's running requests alive. */
export function createLeaseKeeper({ redis, now, log }: {
  redis: RedisLink;
  now: MonotonicNow;
  log: Log;
}) {
  const held = new Map<string, Held>();
  let timer: ReturnType<typeof setTimeout> | null = null;
  let round: Promise<void> = Promise.resolve();
  let isRunning = false;

  const renewBatch = async (leases: readonly Lease[]): Promise<void> => {
    const [first] = leases;
    if (first === undefined) return;
    const missing = await redis.evalScript(
      RENEW,
      [leaseKey(first.principal), ownerLeaseKey(first.principal.ownerId)],
      [first.isOwnerCounted ? "1" : "0", ...leases.map((lease) => lease.id)],
      { deadlineMs: DEADLINE_MS },
    );
    if (!Array.isArray(missing)) return;
    const lost = leases.filter((lease) =>
      !lease.isLost && missing.includes(lease.id)
    );
    if (lost.length === 0) return;
    for (const lease of lost) lease.isLost = true;
    const { keyId } = first.principal;
    log.warn("lease_lost", { keyId, count: lost.length });
  };

  /** All calls are made in one turn of the event loop, so they go out in one write. */
  const renew = async (): Promise<boolean> => {
    const batches = batchesOf(held.values(), now());
    const results = await Promise.allSettled(batches.map(renewBatch));
    const failure = results.find((result) => result.status === "rejected");
    if (failure === undefined) return true;
    log.warn("lease_renew_failed", { held: held.size, error: failure.reason });
    return false;
  };

  const schedule = (ms: number) => {
    timer = setTimeout(() => {
      round = renew().then((isDone) => {
        if (isRunning) schedule(isDone ? RENEW_EVERY_MS : RENEW_AGAIN_MS);
      });
    }, ms);
  };

  return {
    get held(): number {
      return held.size;
    },
    hold(lease: Lease): void {
      held.set(lease.id, { lease, sinceMs: now() });
    },
    /** Returns false when the request has already ended. */
    release: (id: string): boolean => held.delete(id),
    /** Renews all leases that are not young, now. Returns false when that failed. */
    renew,
    /** Renews every 10 s from now on, sooner after a failure. */
    start(): void {
      if (isRunning) return;
      isRunning = true;
      schedule(RENEW_EVERY_MS);
    },
    /** Stops renewing. Leases still held expire by themselves. */
    async stop(): Promise<void> {
      isRunning = false;
      if (timer !== null) clearTimeout(timer);
      timer = null;
      await round;
    },
  };
}

/** Leases that are not young, by key and by what their owner counts. */
function batchesOf(held: Iterable<Held>, nowMs: number): Lease[][] {
  const open = new Map<string, Lease[]>();
  const batches: Lease[][] = [];
  for (const { lease, sinceMs } of held) {
    if (nowMs - sinceMs < YOUNG_MS) continue;
    const group = lease.principal.keyId + (lease.isOwnerCounted ? "+" : "");
    let batch = open.get(group);
    if (batch === undefined || batch.length === BATCH) {
      batch = [];
      open.set(group, batch);
      batches.push(batch);
    }
    batch.push(lease);
  }
  return batches;
}
