import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { SETTLE } from "./settle.lua.ts";
import type { Settlement } from "./settlement.ts";

export interface SettleQueueOptions {
  redis: RedisLink;
  now: MonotonicNow;
  random: () => number;
  log: Log;
  /** Beyond this many undelivered ones, the oldest are given up. */
  waitingMax?: number;
}

/** Delivers settlements to Redis, each exactly once, however long Redis is away. */
export interface SettleQueue {
  /** Settlements not yet known to have worked. */
  readonly pending: number;
  /**
   * Takes one. It is sent in this turn of the event loop when Redis is there.
   * `onAttempted` is called after the first attempt, whatever came of it.
   */
  add(settlement: Settlement, onAttempted?: () => void): void;
  /** Waits until all are delivered, at most `timeoutMs`, then stops. Returns how many were not. */
  drain(timeoutMs: number): Promise<number>;
}

/** A settlement is not urgent; a shorter deadline would only cause repeats. */
const DEADLINE_MS = 1_000;
const RETRY_FIRST_MS = 50;
/** Redis must be usable again within 2 s of its return, and leases hold slots until settled. */
const RETRY_MAX_MS = 1_000;
const BATCH = 256;
/** Half a kilobyte each. At 1,000 requests per second this is 50 s of outage. */
const WAITING_MAX = 50_000;
/** The guard of a late settlement is kept for an hour; beyond, once is no longer certain. */
const AGE_MAX_MS = 3_600_000;

interface Entry {
  settlement: Settlement;
  addedAtMs: number;
  /** An attempt may have worked without our knowing. */
  mayHaveRun: boolean;
  /** Redis has refused it, and the log says so. */
  isReported: boolean;
}

/** Makes an empty queue. */
export function createSettleQueue(options: SettleQueueOptions): SettleQueue {
  const { redis, now, random, log } = options;
  const waitingMax = options.waitingMax ?? WAITING_MAX;
  const waiting: Entry[] = [];
  const idleWaiters = new Set<() => void>();
  let running = 0;
  let isPumping = false;
  let isStopped = false;
  let wake: (() => void) | null = null;

  /** One attempt. Returns false when it has to be made again. */
  const attempt = async (entry: Entry): Promise<boolean> => {
    const { leaseId, keys, mode, terms } = entry.settlement;
    try {
      const done = await redis.evalScript(
        SETTLE,
        keys,
        [leaseId, mode, ...terms],
        { deadlineMs: DEADLINE_MS },
      );
      if (done === 1 || mode !== "held" || entry.mayHaveRun) return true;
      // The first attempt found no lease, so the server has lost it: the work
      // was not done, and the guard of a late settlement takes its place.
      log.warn("settle_late", { leaseId });
      entry.settlement = { ...entry.settlement, mode: "late" };
      return await attempt(entry);
    } catch (error) {
      if (error instanceof RedisUnavailableError) {
        entry.mayHaveRun ||= error.mayHaveRun;
      } else {
        if (!entry.isReported) log.error("settle_failed", { leaseId, error });
        entry.isReported = true;
      }
      return false;
    }
  };

  const run = async (entry: Entry): Promise<boolean> => {
    running += 1;
    const isDone = await attempt(entry);
    running -= 1;
    if (!isDone) keep(entry);
    if (running === 0 && waiting.length === 0) {
      for (const idle of idleWaiters) idle();
    }
    return isDone;
  };

  const keep = (entry: Entry) => {
    if (now() - entry.addedAtMs > AGE_MAX_MS) return lose([entry], "too_old");
    if (waiting.length === 0) log.warn("settle_waiting");
    waiting.push(entry);
    if (waiting.length <= waitingMax) return;
    lose(waiting.splice(0, Math.min(BATCH, waitingMax)), "full");
  };

  const lose = (entries: readonly Entry[], reason: string) => {
    log.error("settle_lost", { count: entries.length, reason });
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
    get pending() {
      return running + waiting.length;
    },
    add(settlement, onAttempted = () => {}) {
      const entry = {
        settlement,
        addedAtMs: now(),
        mayHaveRun: false,
        isReported: false,
      };
      void run(entry).then(async (isDone) => {
        onAttempted();
        if (!isDone) await pump();
      }).catch((error) => log.error("settle_fault", { error }));
    },
    async drain(timeoutMs) {
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
