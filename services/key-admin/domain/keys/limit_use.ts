/** Reads how much of the limits of a key and of its owner is in use now. */
import {
  dayLimitField,
  LIMITER_EPOCH_MS,
  LIMITER_FIELDS,
  limiterDay,
  USAGE_UNITS,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import {
  type BudgetDays,
  TOTAL_WINDOW,
} from "@gateway/shared/keys/budget_calendar";
import {
  type KeyRecord,
  leaseKey,
  limiterKey,
  type Limits,
  ownerLeaseKey,
  ownerLimiterKey,
  ownerSpendKey,
  ownerVideoLeaseKey,
  spendKey,
  videoLeaseKey,
} from "@gateway/shared/keys/record";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import { keysOf } from "@gateway/shared/process/env";
import { asList, asNumber } from "../store/redis.ts";
import metersLua from "./lua/meters.lua" with { type: "text" };

/** Use against a limit of a key or of its owner, from the state that the edges keep. */
export interface Meter {
  whose: "key" | "owner";
  name: keyof Limits;
  limit: number;
  /** More than the limit if a large request has left tokens to wait for. */
  used: number;
  /** The same with the fraction of a request or token that is not free yet. */
  exact: number;
  /** What running requests hold of a budget, and when it is reset (null: never). */
  held?: number;
  resetMs?: number | null;
}

const METERS_SCRIPT = defineScript("key-admin/meters", metersLua, {
  LIMITER_EPOCH_MS,
  STATE_FIELD: LIMITER_FIELDS.state,
});

/** Sums of fractions are not exact: as at admission, a hundredth is nothing. */
const TOLERANCE = 0.01;

/**
 * What the numbers of a state say about limits, as the admission script counts. Use per
 * minute falls evenly with time, and tokens beyond their limit are debt: with 60
 * requests per minute, 10 are used right after a burst of 10, and 5 five seconds later.
 */
function limitUse(numbers: readonly number[], limits: Limits, nowMs: number) {
  const now = nowMs - LIMITER_EPOCH_MS;
  const [running = 0, videos = 0, ...state] = numbers;
  const [lastAtMs = 0, requestsAtMs = 0, tokensAtMs = 0, ...days] = state;
  // A clock that was set back moves the times of the state with it.
  const ahead = Math.max(0, lastAtMs - now);
  const perMinute = (fullAtMs: number, limit: number) =>
    Math.max(0, fullAtMs - ahead - now) * limit / 60_000;
  const usedToday = (nth: number) => {
    const [day = 0, count = 0] = days.slice(2 * nth);
    const aheadDays = day - limiterDay(nowMs);
    // A clock that was set back may have counted on the next day already.
    return aheadDays === 0 || aheadDays === 1 ? count : 0;
  };
  const unitsToday = (unit: UsageUnit) =>
    usedToday(1 + USAGE_UNITS.indexOf(unit));
  return {
    requestsPerMinute: perMinute(requestsAtMs, limits.requestsPerMinute),
    tokensPerMinute: perMinute(tokensAtMs, limits.tokensPerMinute),
    tokensPerDay: usedToday(0),
    concurrency: running,
    imagesPerDay: unitsToday("images"),
    charactersPerDay: unitsToday("characters"),
    audioSecondsPerDay: unitsToday("audioSeconds"),
    videoSecondsPerDay: unitsToday("videoSeconds"),
    videoJobs: videos,
  };
}

/** A key or its owner, whose limits are read. */
interface Side {
  readonly whose: Meter["whose"];
  readonly limits: Limits;
  /** The Redis key of its budget in a window of time. */
  readonly budgetKey: (window: string) => string;
}

/** When limits are read, by Redis' clock, and in which windows budgets count then. */
interface ReadTime {
  readonly nowMs: number;
  readonly days: BudgetDays;
}

/** The budgets that are set, with what is spent and held in their present windows. */
async function readBudgets(
  redis: RedisLink,
  { whose, limits, budgetKey }: Side,
  { nowMs, days }: ReadTime,
): Promise<Meter[]> {
  const { day, month } = days.at(nowMs);
  const windows = [
    { name: "budgetDay", window: day.name, resetMs: day.endMs },
    { name: "budgetMonth", window: month.name, resetMs: month.endMs },
    { name: "budgetTotal", window: TOTAL_WINDOW, resetMs: null },
  ] as const;
  const isSet = ({ name }: (typeof windows)[number]) => limits[name] > 0;
  return await Promise.all(
    windows.filter(isSet).map(async ({ name, window, resetMs }) => {
      const read = ["HMGET", budgetKey(window), "s", "h"];
      const [spent, held] = asList(await redis.command(read))
        .map((text) => Number(text ?? 0));
      const used = spent ?? 0;
      const limit = limits[name];
      return {
        whose,
        name,
        limit,
        used,
        exact: used,
        held: held ?? 0,
        resetMs,
      };
    }),
  );
}

/** The meters of one side: `state` is what the script has returned of it. */
async function readSide(
  redis: RedisLink,
  { state, ...side }: Side & { state: unknown },
  time: ReadTime,
): Promise<Meter[]> {
  const { whose, limits } = side;
  const used = limitUse(asList(state).map(asNumber), limits, time.nowMs);
  const meters = keysOf(used).map((name): Meter => ({
    whose,
    name,
    limit: limits[name],
    exact: used[name],
    used: Math.max(0, Math.ceil(used[name] - TOLERANCE)),
  })).filter(({ limit }) => limit > 0);
  return [...meters, ...await readBudgets(redis, side, time)];
}

/**
 * Reads the meters of the limits that are set of an owner and, if one is given, of a
 * key of this owner; `nowMs` is the time by Redis' clock.
 */
export async function readMeters(
  redis: RedisLink,
  { ownerId, limits, days }: {
    ownerId: string;
    limits: Limits;
    days: BudgetDays;
  },
  key?: Pick<KeyRecord, "id" | "limits">,
) {
  const ids = { ownerId, keyId: key?.id ?? "" };
  const names = [
    ownerLimiterKey(ownerId),
    ownerLeaseKey(ownerId),
    ownerVideoLeaseKey(ownerId),
  ];
  if (key !== undefined) {
    names.push(limiterKey(ids), leaseKey(ids));
    names.push(videoLeaseKey(ids));
  }
  const fields = USAGE_UNITS.map(dayLimitField);
  const [now, ownerState, keyState] = asList(
    await redis.evalScript(METERS_SCRIPT, { keys: names, args: fields }),
  );
  const nowMs = asNumber(now);
  const time = { nowMs, days };
  const ownerMeters = await readSide(redis, {
    whose: "owner",
    limits,
    state: ownerState,
    budgetKey: (window) => ownerSpendKey(ownerId, window),
  }, time);
  if (key === undefined) return { nowMs, meters: ownerMeters };
  const keyMeters = await readSide(redis, {
    whose: "key",
    limits: key.limits,
    state: keyState,
    budgetKey: (window) => spendKey(ids, window),
  }, time);
  return { nowMs, meters: [...keyMeters, ...ownerMeters] };
}

/**
 * The limit of which the largest share is used: it refuses requests first. Undefined
 * while none is used.
 */
export const bindingMeter = (meters: readonly Meter[]): Meter | undefined =>
  meters.filter(({ used }) => used > 0)
    .toSorted((a, b) => b.used / b.limit - a.used / a.limit)[0];
