/**
 * The leases of this edge's requests in Redis, from their admission to their
 * settlement.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { BATCH_MAX, createBatches } from "@gateway/shared/bus/outbox";
import * as record from "@gateway/shared/keys/record";
import type { LeaseHold } from "./budgets/lease_budgets.ts";
import { LiveMap } from "@gateway/shared/process/maps";
import type { Log } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  accountOf,
  type Reservation,
  settleCall,
  type Settlement,
} from "./settlement.ts";
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
/** The same for one that had been settled before. */
const NOT_SETTLED = 0;

type Lease = Pick<Reservation, "id" | "principal">;

interface HeldLease extends Lease {
  renewedAtMs: number;
  /** What nobody but this edge can have changed; null: it must be read. */
  hold: LeaseHold | null;
}

interface Unsettled extends Settlement {
  mayHaveRun: boolean;
  /** Redis has refused it, and the refusal was logged. */
  isReported: boolean;
  readonly onAttempted: (isSettled: boolean) => void;
}

/** What {@link Leases} needs. */
export interface LeasesOptions {
  redis: Pick<RedisLink, "state" | "evalScript">;
  now: MonotonicNow;
  log: Log;
  /** The running requests of a key must end. */
  onStopped?: (keyId: string) => void;
  /** Beyond this many that failed, the oldest are dropped. Default: 50,000. */
  unsettledMax?: number;
}

/**
 * Renews leases, and delivers settlements exactly once, however long Redis is away; at
 * most once if it lost the lease.
 */
export class Leases {
  readonly #options: LeasesOptions;
  readonly #unsettledMax: number;
  readonly #leases = new LiveMap<HeldLease>();
  readonly #failed: Unsettled[] = [];
  readonly #settlements = createBatches<Unsettled>((batch) =>
    void this.#send(batch)
  );
  #unsettled = 0;
  #timer: ReturnType<typeof setInterval> | undefined;
  /** The round of renewals and repeats that is running. */
  #round: Promise<void> | null = null;
  #isStopped = false;

  constructor(options: LeasesOptions) {
    this.#options = options;
    this.#unsettledMax = options.unsettledMax ?? UNSETTLED_MAX;
  }

  /** Requests that hold a lease. */
  get running(): number {
    return this.#leases.size;
  }

  /** Settlements that Redis has not confirmed. */
  get unsettled(): number {
    return this.#unsettled;
  }

  /**
   * Keeps a lease that was just taken alive until it is released. `hold` is what it
   * says that its request holds of budgets, if that is so.
   */
  hold({ id, principal }: Lease, hold: LeaseHold | null = null): void {
    const renewedAtMs = this.#options.now();
    this.#leases.set(id, { id, principal, renewedAtMs, hold });
    this.#watch();
  }

  /** A request may hold something else from now on than its lease says. */
  doubtHold(id: string): void {
    const lease = this.#leases.get(id);
    if (lease !== null) lease.hold = null;
  }

  /** Returns null when the request has already ended. */
  release(id: string): Pick<HeldLease, "hold"> | null {
    const lease = this.#leases.get(id);
    this.#leases.delete(id);
    return lease;
  }

  /**
   * Renews the leases that are due; false if Redis did not confirm all of them. All
   * calls are made in one turn of the event loop, so they go out in one write.
   */
  async renew(): Promise<boolean> {
    const { now, log } = this.#options;
    const dueMs = now() - RENEW_AFTER_MS;
    const due = this.#leases.values().filter(({ renewedAtMs }) =>
      renewedAtMs <= dueMs
    );
    const calls: Promise<void>[] = [];
    const byKey = Map.groupBy(due, ({ principal }) => principal.keyId);
    for (const leases of byKey.values()) {
      while (leases.length > 0) {
        calls.push(this.#renewBatch(leases.splice(0, BATCH_MAX)));
      }
    }
    const results = await Promise.allSettled(calls);
    const failure = results.find((result) => result.status === "rejected");
    if (failure === undefined) return true;
    const { reason: error } = failure;
    log.warn("slots_not_renewed", { requests: this.#leases.size, error });
    return false;
  }

  /** Has all leases renewed, and orders to stop noticed, within half a second. */
  renewSoon(): void {
    for (const lease of this.#leases.values()) lease.renewedAtMs = -Infinity;
  }

  /**
   * Sends a settlement, in this turn of the event loop if Redis is available. Resolves
   * after the first attempt: to whether that has settled the request. False: it had
   * been settled before, or Redis has not confirmed it.
   */
  settle(settlement: Settlement): Promise<boolean> {
    this.#watch();
    this.#unsettled += 1;
    return new Promise((onAttempted) => {
      this.#settlements.add(accountOf(settlement), {
        ...settlement,
        mayHaveRun: false,
        isReported: false,
        onAttempted,
      });
    });
  }

  /**
   * Waits for settlements for at most `timeoutMs`, then stops. Returns the number that
   * were lost.
   */
  async stop(timeoutMs: number): Promise<number> {
    const { now } = this.#options;
    const endsAtMs = now() + timeoutMs;
    while (this.#unsettled > 0 && now() < endsAtMs) await delay(POLL_MS);
    this.#isStopped = true;
    clearInterval(this.#timer);
    await this.#round;
    const lost = this.#unsettled;
    if (lost > 0) this.#lose(lost, "the edge stopped before Redis was back");
    return lost;
  }

  /** Makes rounds while anything is held or unsettled. */
  #watch(): void {
    if (this.#isStopped) return;
    this.#timer ??= setInterval(() => {
      if (this.#leases.size + this.#unsettled === 0) {
        clearInterval(this.#timer);
        this.#timer = undefined;
      }
      this.#round ??= this.#makeRound();
    }, ROUND_MS);
  }

  async #makeRound(): Promise<void> {
    try {
      await Promise.all([this.renew(), this.#resend()]);
    } finally {
      this.#round = null;
    }
  }

  async #renewBatch(leases: readonly HeldLease[]): Promise<void> {
    const [first] = leases;
    if (first === undefined) return;
    const { redis, now, onStopped } = this.#options;
    const { principal } = first;
    const sentAtMs = now();
    // They may have been lost meanwhile, or charged as those of a lost edge.
    for (const lease of leases) lease.hold = null;
    const keys = [
      record.leaseKey(principal),
      record.ownerLeaseKey(principal.ownerId),
    ];
    const args = [record.stopKey(principal), ...leases.map(({ id }) => id)];
    const isStopped = await redis.evalScript(RENEW, { keys, args }, PATIENT);
    for (const lease of leases) lease.renewedAtMs = sentAtMs;
    if (isStopped === 1) onStopped?.(principal.keyId);
  }

  /** Repeats what failed, until something fails again. */
  async #resend(): Promise<void> {
    const { redis } = this.#options;
    const failed = this.#failed;
    while (redis.state !== "offline" && redis.state !== "stalled") {
      const byAccount = Map.groupBy(failed.splice(0, BATCH_MAX), accountOf);
      const results = await Promise.all(
        byAccount.values().map((batch) => this.#send(batch)),
      );
      if (failed.length === 0 || !results.every(Boolean)) return;
    }
  }

  /**
   * Makes one attempt for settlements of one account. Returns false if they have to be
   * repeated.
   */
  async #send(batch: readonly Unsettled[]): Promise<boolean> {
    const { redis, log } = this.#options;
    let replies: readonly unknown[] | undefined;
    try {
      const input = settleCall(batch);
      const reply = await redis.evalScript(SETTLE, input, PATIENT);
      this.#unsettled -= batch.length;
      replies = Array.isArray(reply) ? reply : [];
      const requests = replies.filter((each) => each === SETTLED_LATE).length;
      const principal = batch[0]?.reservation.principal;
      if (requests > 0) {
        log.warn("usage_recorded_late", { ...principal, requests });
      }
    } catch (error) {
      this.#keep(batch, error);
    }
    for (const [nth, { onAttempted }] of batch.entries()) {
      onAttempted(replies !== undefined && replies[nth] !== NOT_SETTLED);
    }
    return replies !== undefined;
  }

  /** Keeps settlements that failed for the next round. */
  #keep(batch: readonly Unsettled[], error: unknown): void {
    this.#failed.push(...batch);
    if (error instanceof RedisUnavailableError) {
      for (const each of batch) each.mayHaveRun ||= error.mayHaveRun;
    } else {
      const principal = batch[0]?.reservation.principal;
      const requests = batch.filter(({ isReported }) => !isReported).length;
      const fields = { ...principal, requests, error };
      if (requests > 0) this.#options.log.error("usage_not_recorded", fields);
      for (const each of batch) each.isReported = true;
    }
    if (this.#failed.length <= this.#unsettledMax) return;
    const dropped = this.#failed.splice(0, BATCH_MAX).length;
    this.#unsettled -= dropped;
    this.#lose(dropped, "too many wait for Redis");
  }

  #lose(requests: number, reason: string): void {
    this.#options.log.error("usage_lost", { requests, reason });
  }
}
