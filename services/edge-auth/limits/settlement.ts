/** Settles admitted requests: builds the calls and delivers them to Redis. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import {
  lateKey,
  limiterDay,
  usageDay,
  usageHour,
} from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerLimiterKey,
  ownerLimitsKey,
  ownerUsageKey,
  type Principal,
  recordKey,
  usageKey,
} from "@gateway/shared/keys/record";
import type { Cost } from "./charge.ts";
import type { Admitted } from "./limiter.ts";
import { SETTLE } from "./settle.lua.ts";

/** One call of the settle script, see `settle.lua.ts`. */
export interface Settlement {
  leaseId: string;
  keys: readonly string[];
  mode: "held" | "late" | "release";
  /** The arguments behind the mode. */
  terms: readonly string[];
}

/** The settlement of a request that has ended. Both counts are whole numbers or null. */
export function settlementOf(
  admitted: Admitted,
  cost: Cost,
): Settlement {
  const { principal, terms } = admitted;
  return {
    leaseId: admitted.id,
    keys: settleKeys(principal, admitted.id, terms.atMs),
    mode: admitted.isLost ? "late" : "held",
    terms: [
      String(terms.flags),
      String(terms.keyTokensPerMinute),
      String(terms.ownerTokensPerMinute),
      String(correction(admitted, cost)),
      String(limiterDay(terms.atMs)),
      usageHour(terms.atMs),
      "1",
      String(cost.promptTokens ?? 0),
      String(cost.completionTokens ?? 0),
      cost.kind === "failed" ? "1" : "0",
    ],
  };
}

/** Undoes an admission that may or may not have happened. */
export function releaseOf(
  principal: Principal,
  leaseId: string,
  reservedTokens: number,
): Settlement {
  return {
    leaseId,
    keys: settleKeys(principal, leaseId, 0),
    mode: "release",
    terms: [
      String(reservedTokens),
      recordKey(principal),
      ownerLimitsKey(principal.ownerId),
    ],
  };
}

/** The keys that admissions and settlements of a principal work on. */
export function limiterKeys(principal: Principal): readonly string[] {
  return [
    limiterKey(principal),
    leaseKey(principal),
    ownerLimiterKey(principal.ownerId),
    ownerLeaseKey(principal.ownerId),
  ];
}

function settleKeys(
  principal: Principal,
  leaseId: string,
  atMs: number,
): readonly string[] {
  const day = usageDay(atMs);
  return [
    ...limiterKeys(principal),
    usageKey(principal, day),
    lateKey(principal.ownerId, leaseId),
    ownerUsageKey(principal.ownerId, day),
  ];
}

/** Tokens used minus tokens charged so far. A reservation lost by the server counts as not charged. */
function correction(admitted: Admitted, cost: Cost): number {
  const { promptTokens, completionTokens } = cost;
  const charged = admitted.isLost ? 0 : admitted.reservedTokens;
  if (promptTokens === null || completionTokens === null) {
    return admitted.reservedTokens - charged;
  }
  return promptTokens + completionTokens - charged;
}

/** A settlement is not urgent; a shorter deadline would only cause repeats. */
const DEADLINE_MS = 1_000;
const RETRY_FIRST_MS = 50;
/** Redis must be usable again within 2 s of its return, and leases hold slots until settled. */
const RETRY_MAX_MS = 1_000;
const BATCH = 256;
/** Half a kilobyte each. At 1,000 requests per second this is 50 s of outage. */
const WAITING_MAX = 50_000;
/** The guard of a late settlement lives for an hour; after that, exactly once cannot be guaranteed. */
const AGE_MAX_MS = 3_600_000;

/** A settlement on its way. */
interface Pending {
  settlement: Settlement;
  addedAtMs: number;
  /** An attempt may have succeeded without a reply. */
  mayHaveRun: boolean;
  /** Redis has refused it, and that was logged. */
  isReported: boolean;
}

/** Delivers settlements to Redis, each exactly once, however long Redis is away. */
export function createSettleQueue(
  { redis, now, random, log, waitingMax = WAITING_MAX }: {
    redis: RedisLink;
    now: MonotonicNow;
    random: () => number;
    log: Log;
    /** Beyond this many undelivered ones, the oldest are given up. */
    waitingMax?: number;
  },
) {
  const waiting: Pending[] = [];
  const idleWaiters = new Set<() => void>();
  let running = 0;
  let isPumping = false;
  let isStopped = false;
  let wake: (() => void) | null = null;

  /** One attempt. Returns false when it has to be retried. */
  const attempt = async (pending: Pending): Promise<boolean> => {
    const { leaseId, keys, mode, terms } = pending.settlement;
    try {
      const done = await redis.evalScript(
        SETTLE,
        keys,
        [leaseId, mode, ...terms],
        { deadlineMs: DEADLINE_MS },
      );
      if (done === 1 || mode !== "held" || pending.mayHaveRun) return true;
      // The first attempt found no lease, so the server has lost it: nothing was
      // done yet, and the guard of a late settlement replaces the lease.
      log.warn("settle_late", { leaseId });
      pending.settlement = { ...pending.settlement, mode: "late" };
      return await attempt(pending);
    } catch (error) {
      if (error instanceof RedisUnavailableError) {
        pending.mayHaveRun ||= error.mayHaveRun;
      } else {
        if (!pending.isReported) log.error("settle_failed", { leaseId, error });
        pending.isReported = true;
      }
      return false;
    }
  };

  const run = async (pending: Pending): Promise<boolean> => {
    running += 1;
    const isDone = await attempt(pending);
    running -= 1;
    if (!isDone) keep(pending);
    if (running === 0 && waiting.length === 0) {
      for (const idle of idleWaiters) idle();
    }
    return isDone;
  };

  const keep = (pending: Pending) => {
    if (now() - pending.addedAtMs > AGE_MAX_MS) {
      return lose([pending], "too_old");
    }
    if (waiting.length === 0) log.warn("settle_waiting");
    waiting.push(pending);
    if (waiting.length <= waitingMax) return;
    lose(waiting.splice(0, Math.min(BATCH, waitingMax)), "full");
  };

  const lose = (settlements: readonly Pending[], reason: string) => {
    log.error("settle_lost", { count: settlements.length, reason });
  };

  const pump = async () => {
    if (isPumping) return;
    isPumping = true;
    let failures = 0;
    while (waiting.length > 0 && !isStopped) {
      await pause(retryMs(failures, random));
      if (redis.state === "offline" || redis.state === "stalled") {
        failures += 1;
        continue;
      }
      const done = await Promise.all(waiting.splice(0, BATCH).map(run));
      failures = done.every(Boolean) ? 0 : failures + 1;
      if (waiting.length === 0) log.info("settle_caught_up");
    }
    isPumping = false;
  };

  const pause = (ms: number) =>
    new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });

  return {
    /** Settlements not confirmed yet. */
    get pending(): number {
      return running + waiting.length;
    },
    /**
     * Queues one. It is sent in this turn of the event loop when Redis is available.
     * `onAttempted` is called after the first attempt, whatever came of it.
     */
    add(settlement: Settlement, onAttempted = () => {}): void {
      const pending = {
        settlement,
        addedAtMs: now(),
        mayHaveRun: false,
        isReported: false,
      };
      void run(pending).then(async (isDone) => {
        onAttempted();
        if (!isDone) await pump();
      }).catch((error) => log.error("settle_fault", { error }));
    },
    /** Waits until all are delivered, at most `timeoutMs`, then stops. Returns how many were not. */
    async drain(timeoutMs: number): Promise<number> {
      if (running + waiting.length > 0) {
        const idle = Promise.withResolvers<void>();
        const timer = setTimeout(idle.resolve, timeoutMs);
        idleWaiters.add(idle.resolve);
        await idle.promise;
        clearTimeout(timer);
        idleWaiters.delete(idle.resolve);
      }
      isStopped = true;
      wake?.();
      const left = running + waiting.length;
      if (left > 0) lose(waiting, "shutdown");
      return left;
    },
  };
}

/** 50, 100, 200 … 1000 ms, each shortened by up to half. None after success. */
function retryMs(failures: number, random: () => number): number {
  const fullMs = Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** failures);
  return fullMs * (1 - random() / 2);
}
