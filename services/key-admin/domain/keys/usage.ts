/**
 * Usage from the counters that edges keep per key, owner, hour of the UTC day, endpoint
 * and model.
 */
import {
  FAILURE_REASONS,
  LIMITER_FIELDS,
  parseUsageField,
  USAGE_KINDS,
  USAGE_UNITS,
  usageDay,
  usageHour,
} from "@gateway/shared/keys/limiter_state";
import {
  type KeyRecord,
  limiterKey,
  ownerUsageKey,
  usageKey,
} from "@gateway/shared/keys/record";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import { asList, asNumber, readHash } from "../store/redis.ts";
import totalsLua from "./lua/totals.lua" with { type: "text" };

/**
 * The counts of every model. `requests` ran, `failed` are those of them that failed;
 * `refused` did not run.
 */
export const MAIN_COUNTS = [
  "requests",
  "failed",
  "refused",
  "inputTokens",
  "outputTokens",
] as const;
/**
 * Counts of input tokens that model servers read from their caches, and that they wrote
 * there.
 */
export const CACHE_COUNTS = ["cachedTokens", "cacheWriteTokens"] as const;
/** Counts of money, in billionths of the currency; shown if there is any. */
export const COST_COUNTS = ["cost", "estimatedCost"] as const;
/**
 * Requests to models without a price, where others have one; and those whose edge was
 * lost, which are charged what they had reserved.
 */
export const REQUEST_COUNTS = ["unpriced", "estimated"] as const;
/** All counts: those above, the units of media, and why requests failed. */
export const COUNTS = [
  ...MAIN_COUNTS,
  ...CACHE_COUNTS,
  ...COST_COUNTS,
  ...REQUEST_COUNTS,
  ...USAGE_UNITS,
  ...FAILURE_REASONS,
];
type CountName = typeof COUNTS[number];

/** Numbers by their name; a missing one is 0. */
export type Counts = { [Name in CountName]?: number };

/** What was counted in an hour or a day. */
export interface Bucket extends Counts {
  /** When it began, in ms since 1970. */
  startMs: number;
}

/** The usage of a key or of an owner in a range of time. */
export interface KeyUsage {
  range: UsageRange;
  /** Oldest first; the last one is still filling. */
  buckets: Bucket[];
  total: Counts;
  /** By model; empty: a model that does not exist, or counted by an earlier version. */
  models: Map<string, Counts>;
  /** By endpoint; empty: none is known, or counted by an earlier version. */
  endpoints: Map<string, Counts>;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const RANGES = {
  "24h": { bars: 24, bucketMs: HOUR_MS },
  "30d": { bars: 30, bucketMs: DAY_MS },
};

/** The ranges that the console shows: hours of a day, or days of a month. */
export type UsageRange = keyof typeof RANGES;

/** The last days in UTC as `yyyymmdd`, today first. */
export const lastDays = (count: number, nowMs: number): string[] =>
  Array.from({ length: count }, (_, n) => usageDay(nowMs - n * DAY_MS));

/** The owner whose usage is read: of one key, or of all keys when `keyId` is null. */
export interface UsageScope {
  ownerId: string;
  keyId: string | null;
}

/** Reads the usage of a range of time that ends now. */
export async function readUsage(
  redis: RedisLink,
  scope: UsageScope,
  { range, nowMs }: { range: UsageRange; nowMs: number },
): Promise<KeyUsage> {
  const { bars, bucketMs } = RANGES[range];
  const lastMs = Math.floor(nowMs / bucketMs) * bucketMs;
  const buckets = Array.from({ length: bars }, (_, at): Bucket => ({
    startMs: lastMs - (bars - 1 - at) * bucketMs,
  }));
  const total: Counts = {};
  const models = new Map<string, Counts>();
  const endpoints = new Map<string, Counts>();
  const days = Map.groupBy(buckets, ({ startMs }) => usageDay(startMs));
  const rows = await readRows(redis, scope, [...days.keys()]);
  for (const { day, hour, endpoint, model, counts } of rows.values()) {
    const bucket = days.get(day)?.find(({ startMs }) =>
      bucketMs !== HOUR_MS || usageHour(startMs) === hour
    );
    if (bucket === undefined) continue;
    const sums = [sumOf(models, model), sumOf(endpoints, endpoint)];
    for (const sum of [bucket, total, ...sums]) add(sum, counts);
  }
  return { range, buckets, total, models, endpoints };
}

/** The sum of this name, which may be new. */
function sumOf(sums: Map<string, Counts>, name: string): Counts {
  const sum = sums.get(name) ?? {};
  sums.set(name, sum);
  return sum;
}

function add(sum: Counts, counts: Counts): void {
  for (const name of COUNTS) sum[name] = (sum[name] ?? 0) + (counts[name] ?? 0);
}

/** What was counted of one endpoint and model in an hour of a UTC day. */
export interface UsageRow {
  /** `yyyymmdd`. */
  day: string;
  /** `00` to `23`. */
  hour: string;
  /** Empty: none is known, or counted by an earlier version. */
  endpoint: string;
  model: string;
  counts: Counts;
}

/**
 * The counters of these days by day, hour, endpoint and model, of a key or of all keys
 * of the owner.
 */
export async function readRows(
  redis: RedisLink,
  { ownerId, keyId }: UsageScope,
  days: readonly string[],
): Promise<Map<string, UsageRow>> {
  const rows = new Map<string, UsageRow>();
  await Promise.all(days.map(async (day) => {
    const key = keyId === null
      ? ownerUsageKey(ownerId, day)
      : usageKey({ ownerId, keyId }, day);
    const fields = Object.entries(await readHash(redis, key) ?? {});
    for (const [field, count] of fields) {
      const { hour, counter, endpoint, model } = parseUsageField(field);
      const name = NAME_OF_COUNTER.get(counter);
      // An edge of a later version may count more.
      if (name === undefined) continue;
      const at = `${day} ${hour} ${endpoint} ${model}`;
      const row = rows.get(at) ?? { day, hour, endpoint, model, counts: {} };
      row.counts[name] = asNumber(count);
      rows.set(at, row);
    }
  }));
  return rows;
}

const NAME_OF_COUNTER: ReadonlyMap<string, CountName> = new Map([
  [USAGE_KINDS.requests, "requests"],
  [USAGE_KINDS.errors, "failed"],
  [USAGE_KINDS.refused, "refused"],
  [USAGE_KINDS.promptTokens, "inputTokens"],
  [USAGE_KINDS.completionTokens, "outputTokens"],
  [USAGE_KINDS.cachedTokens, "cachedTokens"],
  [USAGE_KINDS.cacheWriteTokens, "cacheWriteTokens"],
  [USAGE_KINDS.cost, "cost"],
  [USAGE_KINDS.lostCost, "estimatedCost"],
  [USAGE_KINDS.unpriced, "unpriced"],
  [USAGE_KINDS.lostRequests, "estimated"],
  ...USAGE_UNITS.map((unit) => [USAGE_KINDS[unit], unit] as const),
  ...FAILURE_REASONS.map((reason) => [reason, reason] as const),
]);

/** The sums of counters. */
export interface Totals {
  requests: number;
  /** Input and output. */
  tokens: number;
  /** In billionths. */
  cost: number;
}

const TOTALS_SCRIPT = defineScript("key-admin/totals", totalsLua, {
  REQUESTS: USAGE_KINDS.requests,
  PROMPT_TOKENS: USAGE_KINDS.promptTokens,
  COMPLETION_TOKENS: USAGE_KINDS.completionTokens,
  COST: USAGE_KINDS.cost,
});

/** Adds up the counters of these hashes, `use:…`, which are of one owner. */
export async function readTotals(
  redis: RedisLink,
  names: readonly string[],
): Promise<Totals> {
  const sums = asList(await redis.evalScript(TOTALS_SCRIPT, { keys: names }));
  const [requests, tokens, cost] = sums.map(asNumber);
  return { requests: requests ?? 0, tokens: tokens ?? 0, cost: cost ?? 0 };
}

/**
 * Returns when a key was last used, in Unix ms; null if it never was, or so long ago
 * that the limiter has dropped it.
 */
export async function readLastUse(
  redis: RedisLink,
  { ownerId, id }: Pick<KeyRecord, "ownerId" | "id">,
): Promise<number | null> {
  const key = limiterKey({ ownerId, keyId: id });
  const { lastUsedAtMs } = LIMITER_FIELDS;
  const reply = await redis.command(["HGET", key, lastUsedAtMs]);
  return reply === null ? null : asNumber(reply);
}
