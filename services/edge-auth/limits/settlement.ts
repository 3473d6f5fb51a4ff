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

/**
 * The settlement of a request that has ended. Both token counts are integers or null.
 * Without a cost, it undoes an admission that may or may not have happened, including
 * the request it counted.
 */
export function settlementOf(
  { id, principal, atMs, reservedTokens }: SettledAdmission,
  cost: Cost | null,
): Settlement {
  const day = usageDay(atMs);
  const { ownerId } = principal;
  const { promptTokens = 0, completionTokens = 0, kind } = cost ?? {};
  const used = promptTokens === null || completionTokens === null
    ? reservedTokens
    : promptTokens + completionTokens;
  return {
    leaseId: id,
    keys: [
      limiterKey(principal),
      leaseKey(principal),
      ownerLimiterKey(ownerId),
      ownerLeaseKey(ownerId),
      usageKey(principal, day),
      ownerUsageKey(ownerId, day),
    ],
    terms: [
      String(used - reservedTokens),
      cost === null ? "1" : "0",
      cost === null ? "" : String(limiterDay(atMs)),
      cost === null ? "" : usageHour(atMs),
      String(promptTokens ?? 0),
      String(completionTokens ?? 0),
      kind === "failed" ? "1" : "0",
    ],
    isRelease: cost === null,
  };
}

type SettledAdmission = Pick<
  Admitted,
  "id" | "principal" | "atMs" | "reservedTokens"
>;

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
    const settle = (withoutLease: "" | "1") =>
      redis.evalScript(SETTLE, keys, [leaseId, withoutLease, ...terms], {
        deadlineMs: DEADLINE_MS,
      });
    let isLeaseLost = false;
    try {
      const settled = await settle("");
      isLeaseLost = settled === 0 && !isRelease && !pending.mayHaveRun;
      if (!isLeaseLost) return true;
      log.warn("settle_late", { leaseId });
      await settle("1");
      return true;
    } catch (error) {
      if (error instanceof RedisUnavailableError) {
        pending.mayHaveRun ||= error.mayHaveRun;
      } else {
        if (!pending.isReported) log.error("settle_failed", { leaseId, error });
        pending.isReported = true;
      }
      // Without a lease it is impossible to find out whether it has run.
      const isGivenUp = isLeaseLost && pending.mayHaveRun;
      if (isGivenUp) lose(1, "unanswered");
      return isGivenUp;
    }
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

  const pending = () => running + waiting.length;

  return {
    /** Settlements not confirmed yet. */
    get pending(): number {
      return pending();
    },
    /**
     * Queues a settlement, which is sent in this turn of the event loop if Redis is
     * available. `onAttempted` is called after the first attempt, successful or not.
     */
    add(settlement: Settlement, onAttempted = () => {}): void {
      const pending = { settlement, mayHaveRun: false, isReported: false };
      void send(pending).then(onAttempted);
    },
    /** Waits until all are delivered, at most `timeoutMs`, then stops. Returns the number that were not. */
    async drain(timeoutMs: number): Promise<number> {
      const endsAtMs = now() + timeoutMs;
      while (pending() > 0 && now() < endsAtMs) await delay(POLL_MS);
      isStopped = true;
      if (timer !== null) clearTimeout(timer);
      if (pending() > 0) lose(pending(), "shutdown");
      return pending();
    },
  };
}
