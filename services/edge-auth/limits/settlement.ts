/** Settles admitted requests: builds the calls and delivers them to Redis. */
import { setTimeout as delay } from "node:timers/promises";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import {
  limiterDay,
  usageDay,
  usageHour,
} from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerLimiterKey,
  ownerUsageKey,
  type Principal,
  usageKey,
} from "@gateway/shared/keys/record";
import type { Cost } from "./cost.ts";
import type { Admitted } from "./limiter.ts";
import { SETTLE } from "./scripts.ts";

/** One call of the settle script, see `scripts.ts`. */
export interface Settlement {
  readonly leaseId: string;
  readonly keys: readonly string[];
  /** The arguments from the third on. */
  readonly terms: readonly string[];
  /** The lease may not exist, in which case there is nothing to do. */
  readonly isRelease: boolean;
}

/** The settlement of a request that has ended. Both token counts are integers or null. */
export function settlementOf(
  { id, principal, atMs, reservedTokens }: Admitted,
  { promptTokens, completionTokens, kind }: Cost,
): Settlement {
  const used = promptTokens === null || completionTokens === null
    ? reservedTokens
    : promptTokens + completionTokens;
  return {
    leaseId: id,
    keys: settleKeys(principal, atMs),
    terms: [
      String(used - reservedTokens),
      "0",
      String(limiterDay(atMs)),
      usageHour(atMs),
      String(promptTokens ?? 0),
      String(completionTokens ?? 0),
      kind === "failed" ? "1" : "0",
    ],
    isRelease: false,
  };
}

/** Undoes an admission that may or may not have happened, including the request it counted. */
export function releaseOf(
  principal: Principal,
  leaseId: string,
  reservedTokens: number,
): Settlement {
  return {
    leaseId,
    keys: settleKeys(principal, 0),
    terms: [String(-reservedTokens), "1", "", "", "0", "0", "0"],
    isRelease: true,
  };
}

function settleKeys(principal: Principal, atMs: number): readonly string[] {
  const day = usageDay(atMs);
  return [
    limiterKey(principal),
    leaseKey(principal),
    ownerLimiterKey(principal.ownerId),
    ownerLeaseKey(principal.ownerId),
    usageKey(principal, day),
    ownerUsageKey(principal.ownerId, day),
  ];
}

/** A settlement is not urgent; a shorter deadline would only cause repeats. */
const DEADLINE_MS = 1_000;
/** Redis must be usable again within 2 s of its return, and leases hold slots until settled. */
const RETRY_MS = 500;
const BATCH = 256;
/** Half a kilobyte each. At 1,000 requests per second, enough for an outage of 50 s. */
const WAITING_MAX = 50_000;
/** At shutdown, the queue is checked this often. */
const POLL_MS = 10;

/** A settlement that is being delivered. */
interface Pending {
  readonly settlement: Settlement;
  /** The server has lost the lease. */
  isLeaseLost: boolean;
  /** An attempt may have succeeded without a reply. */
  mayHaveRun: boolean;
  /** Redis has refused it, and the refusal was logged. */
  isReported: boolean;
}

/**
 * Delivers settlements to Redis, each exactly once, however long Redis is unavailable.
 * A settlement whose lease Redis has lost is delivered at most once.
 */
export function createSettleQueue(
  { redis, now, random, log, waitingMax = WAITING_MAX }: {
    redis: RedisLink;
    now: MonotonicNow;
    random: () => number;
    log: Log;
    /** Beyond this many undelivered settlements, the oldest are dropped. */
    waitingMax?: number;
  },
) {
  const waiting: Pending[] = [];
  let running = 0;
  let timer: ReturnType<typeof setTimeout> | null = null;
  let isStopped = false;

  const lose = (count: number, reason: string) =>
    log.error("settle_lost", { count, reason });

  /** Makes one attempt. Returns false if it has to be retried. */
  const attempt = async (pending: Pending): Promise<boolean> => {
    const { leaseId, keys, terms, isRelease } = pending.settlement;
    try {
      const done = await redis.evalScript(
        SETTLE,
        keys,
        [leaseId, pending.isLeaseLost ? "1" : "", ...terms],
        { deadlineMs: DEADLINE_MS },
      );
      if (done === 1 || isRelease || pending.mayHaveRun) return true;
    } catch (error) {
      if (error instanceof RedisUnavailableError) {
        pending.mayHaveRun ||= error.mayHaveRun;
      } else {
        if (!pending.isReported) log.error("settle_failed", { leaseId, error });
        pending.isReported = true;
      }
      // Without a lease it is impossible to find out whether it has run.
      const isGivenUp = pending.isLeaseLost && pending.mayHaveRun;
      if (isGivenUp) lose(1, "unanswered");
      return isGivenUp;
    }
    // The first attempt found no lease, so it changed nothing.
    log.warn("settle_late", { leaseId });
    pending.isLeaseLost = true;
    return await attempt(pending);
  };

  const send = async (pending: Pending): Promise<boolean> => {
    running += 1;
    const isDone = await attempt(pending);
    running -= 1;
    if (isDone) return true;
    waiting.push(pending);
    if (waiting.length > waitingMax) {
      lose(waiting.splice(0, Math.min(BATCH, waitingMax)).length, "full");
    }
    retryLater();
    return false;
  };

  const retryLater = () => {
    if (isStopped) return;
    timer ??= setTimeout(() => {
      timer = null;
      void retry();
    }, RETRY_MS * (1 - random() / 2));
  };

  const retry = async (): Promise<void> => {
    while (redis.state !== "offline" && redis.state !== "stalled") {
      const results = await Promise.all(waiting.splice(0, BATCH).map(send));
      if (waiting.length === 0) return;
      if (!results.every(Boolean)) break;
    }
    retryLater();
  };

  return {
    /** Settlements not confirmed yet. */
    get pending(): number {
      return running + waiting.length;
    },
    /**
     * Queues a settlement, which is sent in this turn of the event loop if Redis is
     * available. `onAttempted` is called after the first attempt, successful or not.
     */
    add(settlement: Settlement, onAttempted = () => {}): void {
      const state = {
        isLeaseLost: false,
        mayHaveRun: false,
        isReported: false,
      };
      void send({ settlement, ...state }).then(onAttempted);
    },
    /** Waits until all are delivered, at most `timeoutMs`, then stops. Returns the number that were not. */
    async drain(timeoutMs: number): Promise<number> {
      const endsAtMs = now() + timeoutMs;
      const pending = () => running + waiting.length;
      while (pending() > 0 && now() < endsAtMs) await delay(POLL_MS);
      isStopped = true;
      if (timer !== null) clearTimeout(timer);
      if (pending() > 0) lose(pending(), "shutdown");
      return pending();
    },
  };
}
