import * as limiterState from "@gateway/shared/keys/limiter_state";
import * as record from "@gateway/shared/keys/record";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import { asList, asNumber, asTexts, readHash } from "../store/redis.ts";

/**
 * Usage from the counters that edges keep per key, owner, hour of the UTC day and
 * model; and the last requests that failed.
 */

/**
 * What is counted of every model. `requests` ran, `failed` are those of them that
 * failed; `refused` did not run.
 */
export const MAIN_COUNTS = [
  ...["requests", "failed", "refused", "inputTokens", "outputTokens"] as const,
];
const { USAGE_KINDS, USAGE_UNITS, FAILURE_REASONS } = limiterState;
export const COUNTS = [...MAIN_COUNTS, ...USAGE_UNITS, ...FAILURE_REASONS];
type CountName = typeof COUNTS[number];

export type Counts = { [Name in CountName]?: number };

export interface Bucket extends Counts {
  startMs: number;
}

export type KeyUsage = Awaited<ReturnType<typeof readUsage>>;

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const RANGES = {
  "24h": { bars: 24, bucketMs: HOUR_MS },
  "30d": { bars: 30, bucketMs: DAY_MS },
};

export type UsageRange = keyof typeof RANGES;

/** The last days in UTC, today first. */
export const lastDays = (count: number, nowMs: number): string[] =>
  Array.from(
    { length: count },
    (_, n) => limiterState.usageDay(nowMs - n * DAY_MS),
  );

/** Reads the usage of one key, or of all keys of the owner when `keyId` is null. */
export async function readUsage(
  redis: RedisLink,
  ownerId: string,
  keyId: string | null,
  range: UsageRange,
  nowMs: number,
) {
  const { bars, bucketMs } = RANGES[range];
  const lastMs = Math.floor(nowMs / bucketMs) * bucketMs;
  /** Oldest first; the last one is still filling. */
  const buckets = Array.from({ length: bars }, (_, at): Bucket => ({
    startMs: lastMs - (bars - 1 - at) * bucketMs,
  }));
  const total: Counts = {};
  /** By model; empty: a model that does not exist, or counted by an earlier version. */
  const models = new Map<string, Counts>();
  const days = Map.groupBy(
    buckets,
    ({ startMs }) => limiterState.usageDay(startMs),
  );
  const rows = await readRows(redis, { ownerId, keyId }, [...days.keys()]);
  for (const { day, hour, model, counts } of rows.values()) {
    const bucket = days.get(day)?.find(({ startMs }) =>
      bucketMs !== HOUR_MS || limiterState.usageHour(startMs) === hour
    );
    if (bucket === undefined) continue;
    const ofModel = models.get(model) ?? {};
    models.set(model, ofModel);
    for (const sum of [bucket, total, ofModel]) add(sum, counts);
  }
  return { range, buckets, total, models };
}

function add(sum: Counts, counts: Counts): void {
  for (const name of COUNTS) sum[name] = (sum[name] ?? 0) + (counts[name] ?? 0);
}

/** What was counted in an hour of a UTC day of requests for a model. */
export interface UsageRow {
  day: string;
  hour: string;
  model: string;
  counts: Counts;
}

/**
 * The counters of these days by day, hour and model, of a key or of all keys of the
 * owner.
 */
export async function readRows(
  redis: RedisLink,
  { ownerId, keyId }: { ownerId: string; keyId: string | null },
  days: readonly string[],
): Promise<Map<string, UsageRow>> {
  const rows = new Map<string, UsageRow>();
  await Promise.all(days.map(async (day) => {
    const key = keyId === null
      ? record.ownerUsageKey(ownerId, day)
      : record.usageKey({ ownerId, keyId }, day);
    const fields = Object.entries(await readHash(redis, key) ?? {});
    for (const [field, count] of fields) {
      const { hour, counter, model } = limiterState.parseUsageField(field);
      const name = NAME_OF_COUNTER.get(counter);
      // An edge of a later version may count more.
      if (name === undefined) continue;
      const at = `${day} ${hour} ${model}`;
      const row = rows.get(at) ?? { day, hour, model, counts: {} };
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
  ...USAGE_UNITS.map((unit) => [USAGE_KINDS[unit], unit] as const),
  ...FAILURE_REASONS.map((reason) => [reason, reason] as const),
]);

/** The last requests of a key that were refused or failed, newest first. */
export async function readFailed(
  redis: RedisLink,
  { ownerId, id: keyId }: Pick<record.KeyRecord, "ownerId" | "id">,
) {
  const key = record.failedKey({ ownerId, keyId });
  const entries = asTexts(await redis.command(["LRANGE", key, "0", "-1"]));
  return entries.map((text): unknown => JSON.parse(text))
    .map((entry) => limiterState.failedRequestSchema.parse(entry))
    .sort((a, b) => b.timeMs - a.timeMs);
}

/** What counters add up to; tokens are input and output. */
export type Totals = Record<"requests" | "tokens", number>;

/** Adds up in Redis, because one owner may have thousands of counters in a month. */
const TOTALS_SCRIPT = defineScript(
  "key-admin/totals",
  `
local requests, tokens = 0, 0
for n = 1, #KEYS do
  local counters = redis.call('HGETALL', KEYS[n])
  for at = 1, #counters, 2 do
    local kind = string.match(counters[at], '^%d+:([%a_]+)')
    local count = counters[at + 1]
    if kind == '${USAGE_KINDS.requests}' then requests = requests + count end
    if kind == '${USAGE_KINDS.promptTokens}' or kind == '${USAGE_KINDS.completionTokens}' then tokens = tokens + count end
  end
end
return {requests, tokens}
`,
);

/** Adds up the counters of these hashes, `use:…`, which are of one owner. */
export async function readTotals(redis: RedisLink, names: readonly string[]) {
  const sums = asList(await redis.evalScript(TOTALS_SCRIPT, { keys: names }));
  return { requests: asNumber(sums[0]), tokens: asNumber(sums[1]) };
}

/**
 * When a key was last used; null: never, or so long ago that the limiter has dropped
 * it.
 */
export async function readLastUse(
  redis: RedisLink,
  { ownerId, id }: Pick<record.KeyRecord, "ownerId" | "id">,
): Promise<number | null> {
  const key = record.limiterKey({ ownerId, keyId: id });
  const { lastUsedAtMs } = limiterState.LIMITER_FIELDS;
  const reply = await redis.command(["HGET", key, lastUsedAtMs]);
  return reply === null ? null : asNumber(reply);
}
