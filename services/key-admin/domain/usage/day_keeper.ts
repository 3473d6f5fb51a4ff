/**
 * Keeps usage beyond the 40 days for which edges write it: each UTC day that has ended
 * is kept for 400, its sums are added to those of the day before, and the hours of days
 * that are too old for them are added up. One key-admin does this, once a day; a day
 * that is done again is done the same, so one that is killed loses nothing.
 */
import {
  USAGE_DAYS_KEPT,
  USAGE_HOURS_KEPT_DAYS,
  usageDay,
} from "@gateway/shared/keys/limiter_state";
import { ownerUsageKey, usageKey } from "@gateway/shared/keys/record";
import type { WallNow } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import pLimit from "p-limit";
import { keysFrom } from "../keys/key_page.ts";
import {
  addCounts,
  type Counts,
  fieldOf,
  plusUtcDays,
  readDay,
  type UsageScope,
  utcDayMs,
} from "../keys/usage.ts";
import {
  encodeSums,
  GATEWAY,
  lastSummedDay,
  readSums,
  SUMMED_KEY,
  SUMMING_KEY,
  sumsKey,
} from "./day_sums.ts";
import keepLua from "./lua/keep.lua" with { type: "text" };
import type { UsageReports } from "./usage_reports.ts";

const KEEP_SCRIPT = defineScript("key-admin/keep-usage", keepLua, {});

const MINUTE_MS = 60_000;
const DAY_S = 86_400;
/** Edges settle the last requests of a day within this time. */
const SETTLED_MS = 30 * MINUTE_MS;
const POLL_MS = 5 * MINUTE_MS;
/** A key-admin that dies while it adds up lets another one do it after this time. */
const CLAIM_MS = 10 * MINUTE_MS;
/** Hashes that one script call keeps, so that admissions wait for none. */
const BATCH = 20;
/** Hashes that are read at the same time. */
const READS = 20;
/** Fields that one command writes. */
const FIELDS = 200;

/** Dependencies of {@link DayKeeper}. */
export interface DayKeeperOptions {
  readonly redis: RedisLink;
  readonly usage: Pick<UsageReports, "allAccounts">;
  readonly people: { accountIds: () => Promise<string[]> };
  readonly now: WallNow;
  readonly log: Log;
}

/** Keeps the usage of days that have ended. */
export class DayKeeper {
  readonly #options: DayKeeperOptions;
  readonly #stopping = new AbortController();
  #timer: ReturnType<typeof setInterval> | undefined;
  #running: Promise<void> | undefined;

  constructor(options: DayKeeperOptions) {
    this.#options = options;
  }

  /** Looks every few minutes whether a day has ended. */
  start(): void {
    const work = () => {
      this.#running ??= this.keep()
        .catch((error) => this.#options.log.warn("usage_not_kept", { error }))
        .finally(() => {
          this.#running = undefined;
        });
    };
    work();
    this.#timer = setInterval(work, POLL_MS);
  }

  /** Ends, with what is under way. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#stopping.abort();
    await this.#running;
  }

  /** Keeps all days that have ended and are not kept yet, the oldest first. */
  async keep(): Promise<void> {
    const { redis, now } = this.#options;
    const today = usageDay(now() - SETTLED_MS);
    const first = plusUtcDays(today, -USAGE_HOURS_KEPT_DAYS);
    const summed = await lastSummedDay(redis);
    // Without a gap, as sums are those of the day before and more.
    let day = summed === "" ? first : plusUtcDays(summed, 1);
    if (day >= today) return;
    const claim = ["SET", SUMMING_KEY, "1", "NX", "PX", String(CLAIM_MS)];
    if (await redis.command(claim) === null) return;
    try {
      for (; day < today; day = plusUtcDays(day, 1)) {
        await this.#keepDay(day, await this.#options.people.accountIds());
        if (this.#stopping.signal.aborted) return;
        await redis.command(["SET", SUMMED_KEY, day]);
        const renewal = ["SET", SUMMING_KEY, "1", "PX", String(CLAIM_MS)];
        await redis.command(renewal);
      }
    } finally {
      await redis.command(["DEL", SUMMING_KEY]);
    }
  }

  /** Keeps a day of all accounts, and of the gateway. */
  async #keepDay(day: string, ids: readonly string[]): Promise<void> {
    const { usage } = this.#options;
    const old = plusUtcDays(day, -USAGE_HOURS_KEPT_DAYS);
    const used = new Map<string, Counts>();
    for (const ownerId of ids) {
      if (this.#stopping.signal.aborted) return;
      const keyIds = await this.#keyIds(ownerId);
      const scopes = [null, ...keyIds].map((keyId) => ({ ownerId, keyId }));
      await this.#extend(scopes, day, "");
      await this.#extend(scopes, old, "add");
      const place = pLimit(READS);
      const ofKeys = await place.map(
        keyIds,
        async (keyId) =>
          [keyId, await this.#countsOf({ ownerId, keyId }, day)] as const,
      );
      await this.#addSums(ownerId, day, new Map(ofKeys));
      used.set(ownerId, await this.#countsOf({ ownerId, keyId: null }, day));
    }
    await this.#addSums(GATEWAY, day, used);
    await this.#writeGateway(day, await usage.allAccounts(day));
    await this.#extend([{ ownerId: GATEWAY, keyId: null }], old, "add");
  }

  async #keyIds(ownerId: string): Promise<string[]> {
    const ids: string[] = [];
    for await (const { keyId } of keysFrom(this.#options.redis, ownerId)) {
      ids.push(keyId);
    }
    return ids;
  }

  /** Lets hashes of a day of one account be kept, and their hours be added up. */
  async #extend(
    scopes: readonly UsageScope[],
    day: string,
    what: "" | "add",
  ): Promise<void> {
    const { redis } = this.#options;
    const args = [String(secondsLeft(day, this.#options.now())), what];
    for (let at = 0; at < scopes.length; at += BATCH) {
      const keys = scopes.slice(at, at + BATCH).map(({ ownerId, keyId }) =>
        keyId === null
          ? ownerUsageKey(ownerId, day)
          : usageKey({ ownerId, keyId }, day)
      );
      await redis.evalScript(KEEP_SCRIPT, { keys, args });
    }
  }

  async #countsOf(scope: UsageScope, day: string): Promise<Counts> {
    const counts: Counts = {};
    const { redis } = this.#options;
    for (const { name, count } of await readDay(redis, scope, day)) {
      counts[name] = (counts[name] ?? 0) + count;
    }
    return counts;
  }

  /** Writes the sums of the parts of a whole: those of the day before, and this day. */
  async #addSums(
    wholeId: string,
    day: string,
    used: ReadonlyMap<string, Counts>,
  ): Promise<void> {
    const { redis, now } = this.#options;
    const sums = await readSums(redis, wholeId, plusUtcDays(day, -1));
    for (const [id, counts] of used) {
      const sum = { ...sums.get(id) };
      addCounts(sum, counts);
      if (Object.keys(sum).length > 0) sums.set(id, sum);
    }
    const fields = [...sums].filter(([id]) => used.has(id))
      .flatMap(([id, counts]) => [id, encodeSums(counts)]);
    await this.#replace(sumsKey(wholeId, day), fields, {
      seconds: secondsLeft(day, now()),
    });
  }

  async #writeGateway(
    day: string,
    counted: Awaited<ReturnType<UsageReports["allAccounts"]>>,
  ): Promise<void> {
    const fields = counted.flatMap((each) => [
      fieldOf(each),
      String(each.count),
    ]);
    await this.#replace(ownerUsageKey(GATEWAY, day), fields, {
      seconds: secondsLeft(day, this.#options.now()),
    });
  }

  /** Replaces a hash by these fields and values. */
  async #replace(
    key: string,
    fields: readonly string[],
    { seconds }: { seconds: number },
  ): Promise<void> {
    const { redis } = this.#options;
    await redis.command(["DEL", key]);
    for (let at = 0; at < fields.length; at += 2 * FIELDS) {
      const some = fields.slice(at, at + 2 * FIELDS);
      await redis.command(["HSET", key, ...some]);
    }
    await redis.command(["EXPIRE", key, String(seconds)]);
  }
}

/** For how long the usage of a UTC day is still kept, in seconds. */
function secondsLeft(day: string, nowMs: number): number {
  const endMs = utcDayMs(plusUtcDays(day, USAGE_DAYS_KEPT + 1));
  return Math.max(DAY_S, Math.ceil((endMs - nowMs) / 1_000));
}
