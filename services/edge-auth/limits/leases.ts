/**
 * The leases of this edge's requests in Redis, from their admission to their
 * settlement.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { BATCH_MAX, createBatches } from "@gateway/shared/bus/outbox";
import * as record from "@gateway/shared/keys/record";
import { LiveMap } from "@gateway/shared/process/maps";
import type { Log } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  accountOf,
  type Reservation,
  settleCall,
  type Settlement,
} from "./cost.ts";
import { RENEW, SETTLE } from "./scripts.ts";

/** A third of a lease's lifetime, so two renewals may fail. */
const RENEW_AFTER_MS = 10_000;
/**
 * Redis must be usable again within 2 s of its return, and leases hold slots until
 * settled.
 */
const ROUND_MS = 500;
/** None of the calls is urgent; a shorter deadline would only cause repeats. */
const PATIENT = { deadlineMs: 1_000 };
/** Half a kilobyte each. At 1,000 requests per second, enough for an outage of 50 s. */
const UNSETTLED_MAX = 50_000;
const POLL_MS = 10;
/** The script's reply for a request whose lease was lost. */
const SETTLED_LATE = 2;

type Lease = Pick<Reservation, "id" | "principal">;

interface Held extends Lease {
  renewedAtMs: number;
}

interface Unsettled extends Settlement {
  mayHaveRun: boolean;
  /** Redis has refused it, and the refusal was logged. */
  isReported: boolean;
  readonly onAttempted: () => void;
}

/**
 * Renews leases, and delivers settlements exactly once, however long Redis is away; at
 * most once if it lost the lease.
 */
export function createLeases(
  { redis, now, log, onStopped, unsettledMax = UNSETTLED_MAX }: {
    redis: RedisLink;
    now: MonotonicNow;
    log: Log;
    /** The running requests of a key must end. */
    onStopped?: (keyId: string) => void;
    /** Beyond this many that failed, the oldest are dropped. */
    unsettledMax?: number;
  },
) {
  const held = new LiveMap<Held>();
  const failed: Unsettled[] = [];
  const ended = createBatches<Unsettled>((batch) => void send(batch));
  let unsettled = 0;
  let timer: ReturnType<typeof setInterval> | undefined;
  let round: Promise<unknown> | null = null;
  let isStopped = false;

  const lose = (requests: number, reason: string) =>
    log.error("usage_lost", { requests, reason });

  const renewBatch = async (leases: readonly Held[]): Promise<void> => {
    const [first] = leases;
    if (first === undefined) return;
    const { principal } = first;
    const sentAtMs = now();
    const keys = [
      record.leaseKey(principal),
      record.ownerLeaseKey(principal.ownerId),
    ];
    const args = [record.stopKey(principal), ...leases.map(({ id }) => id)];
    const isStopped = await redis.evalScript(RENEW, { keys, args }, PATIENT);
    for (const lease of leases) lease.renewedAtMs = sentAtMs;
    if (isStopped === 1) onStopped?.(principal.keyId);
  };

  /** All calls are made in one turn of the event loop, so they go out in one write. */
  const renew = async (): Promise<boolean> => {
    const dueMs = now() - RENEW_AFTER_MS;
    const due = held.values().filter((lease) => lease.renewedAtMs <= dueMs);
    const calls: Promise<void>[] = [];
    const byKey = Map.groupBy(due, ({ principal }) => principal.keyId);
    for (const leases of byKey.values()) {
      while (leases.length > 0) {
        calls.push(renewBatch(leases.splice(0, BATCH_MAX)));
      }
    }
    const results = await Promise.allSettled(calls);
    const failure = results.find((result) => result.status === "rejected");
    if (failure === undefined) return true;
    const { reason: error } = failure;
    log.warn("slots_not_renewed", { requests: held.size, error });
    return false;
  };

  /**
   * Makes one attempt for settlements of one account. Returns false if they have to be
   * repeated.
   */
  const send = async (batch: readonly Unsettled[]): Promise<boolean> => {
    const { keys, args } = settleCall(batch);
    const principal = batch[0]?.reservation.principal;
    let isSettled = false;
    try {
      const reply = await redis.evalScript(SETTLE, { keys, args }, PATIENT);
      isSettled = true;
      unsettled -= batch.length;
      const replies = Array.isArray(reply) ? reply : [];
      const requests = replies.filter((each) => each === SETTLED_LATE).length;
      if (requests > 0) {
        log.warn("usage_recorded_late", { ...principal, requests });
      }
    } catch (error) {
      failed.push(...batch);
      if (error instanceof RedisUnavailableError) {
        for (const each of batch) each.mayHaveRun ||= error.mayHaveRun;
      } else {
        const requests = batch.filter(({ isReported }) => !isReported).length;
        const fields = { ...principal, requests, error };
        if (requests > 0) log.error("usage_not_recorded", fields);
        for (const each of batch) each.isReported = true;
      }
    }
    if (failed.length > unsettledMax) {
      const dropped = failed.splice(0, BATCH_MAX).length;
      unsettled -= dropped;
      lose(dropped, "too many wait for Redis");
    }
    for (const { onAttempted } of batch) onAttempted();
    return isSettled;
  };

  /** Repeats what failed, until something fails again. */
  const resend = async (): Promise<void> => {
    while (redis.state !== "offline" && redis.state !== "stalled") {
      const byAccount = Map.groupBy(failed.splice(0, BATCH_MAX), accountOf);
      const sent = await Promise.all(byAccount.values().map(send));
      if (failed.length === 0 || !sent.every(Boolean)) return;
    }
  };

  const watch = () => {
    if (isStopped) return;
    timer ??= setInterval(() => {
      if (held.size + unsettled === 0) {
        clearInterval(timer);
        timer = undefined;
      }
      round ??= Promise.all([renew(), resend()]).finally(() => round = null);
    }, ROUND_MS);
  };

  return {
    get running(): number {
      return held.size;
    },
    get unsettled(): number {
      return unsettled;
    },
    hold({ id, principal }: Lease): void {
      held.set(id, { id, principal, renewedAtMs: now() });
      watch();
    },
    /** Returns false when the request has already ended. */
    release: (id: string): boolean => held.delete(id),
    renew,
    /** Has all leases renewed, and orders to stop noticed, within half a second. */
    renewSoon(): void {
      for (const lease of held.values()) lease.renewedAtMs = -Infinity;
    },
    /**
     * Sends a settlement, in this turn of the event loop if Redis is available.
     * Resolves after the first attempt.
     */
    settle(settlement: Settlement): Promise<void> {
      watch();
      unsettled += 1;
      const attempts = { mayHaveRun: false, isReported: false };
      return new Promise((onAttempted) => {
        const one = { ...settlement, ...attempts, onAttempted };
        ended.add(accountOf(settlement), one);
      });
    },
    /**
     * Waits for settlements for at most `timeoutMs`, then stops. Returns the number
     * that were lost.
     */
    async stop(timeoutMs: number): Promise<number> {
      const endsAtMs = now() + timeoutMs;
      while (unsettled > 0 && now() < endsAtMs) await delay(POLL_MS);
      isStopped = true;
      clearInterval(timer);
      await round;
      const lost = unsettled;
      if (lost > 0) lose(lost, "the edge stopped before Redis was back");
      return lost;
    },
  };
}
