import {
  LIMITER_FIELDS,
  USAGE_KINDS,
  usageDay,
  usageHour,
} from "@gateway/shared/keys/limiter_state";
import {
  type KeyRecord,
  limiterKey,
  ownerUsageKey,
  usageKey,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asNumber, readHash } from "../store/redis.ts";

/**
 * Usage for charts, from the counters that the edges keep per key, per owner and
 * hour of the UTC day: fields `09:req`, `09:in`, `09:out`, `09:err`.
 */

/** The counters. */
export interface Counts {
  requests: number;
  /** Requests that ended in an error of the gateway or the backend. */
  errors: number;
  inputTokens: number;
  outputTokens: number;
}

/** One bar of a chart. */
export interface Bucket extends Counts {
  startMs: number;
}

/** Hours for the last day, days for the last month. */
export type UsageRange = "24h" | "30d";

/** The counters of a range, ready for a chart. */
export interface Usage {
  range: UsageRange;
  bucketMs: number;
  /** Oldest first; the last one is still filling. */
  buckets: Bucket[];
  total: Counts;
}

const HOUR_MS = 3_600_000;
const RANGES: Readonly<Record<UsageRange, { bars: number; bucketMs: number }>> =
  {
    "24h": { bars: 24, bucketMs: HOUR_MS },
    "30d": { bars: 30, bucketMs: 24 * HOUR_MS },
  };

/** Reads the usage of one key, or of all keys of the owner when `keyId` is null. */
export async function readUsage(
  redis: RedisLink,
  ownerId: string,
  keyId: string | null,
  range: UsageRange,
  nowMs: number,
): Promise<Usage> {
  const { bars, bucketMs } = RANGES[range];
  const lastMs = Math.floor(nowMs / bucketMs) * bucketMs;
  const buckets = Array.from({ length: bars }, (_, at): Bucket => ({
    startMs: lastMs - (bars - 1 - at) * bucketMs,
    ...NOTHING,
  }));
  const total = { ...NOTHING };
  const isHourly = bucketMs === HOUR_MS;
  const days = Map.groupBy(buckets, ({ startMs }) => usageDay(startMs));
  await Promise.all([...days].map(async ([day, ofDay]) => {
    const key = keyId === null
      ? ownerUsageKey(ownerId, day)
      : usageKey({ ownerId, keyId }, day);
    const counters = await readHash(redis, key) ?? {};
    for (const [field, value] of Object.entries(counters)) {
      const [hour, kind = ""] = field.split(":");
      const count = COUNT_OF_KIND.get(kind);
      const bucket = ofDay.find(({ startMs }) =>
        !isHourly || usageHour(startMs) === hour
      );
      if (count === undefined || bucket === undefined) continue;
      bucket[count] += asNumber(value);
      total[count] += asNumber(value);
    }
  }));
  return { range, bucketMs, buckets, total };
}

/** When a key was last used; null: never, or so long ago that the limiter has dropped it. */
export async function readLastUse(
  redis: RedisLink,
  { ownerId, id }: Pick<KeyRecord, "ownerId" | "id">,
): Promise<number | null> {
  const key = limiterKey({ ownerId, keyId: id });
  const reply = await redis.command(["HGET", key, LIMITER_FIELDS.lastUsedAtMs]);
  return reply === null ? null : asNumber(reply);
}

const NOTHING = { requests: 0, errors: 0, inputTokens: 0, outputTokens: 0 };

const COUNT_OF_KIND: ReadonlyMap<string, keyof Counts> = new Map([
  [USAGE_KINDS.requests, "requests"],
  [USAGE_KINDS.errors, "errors"],
  [USAGE_KINDS.promptTokens, "inputTokens"],
  [USAGE_KINDS.completionTokens, "outputTokens"],
]);
