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
import { asNumber, readHash } from "../store/reply.ts";

/**
 * Usage for charts, from the counters that the edges keep per key, per owner and
 * hour of the UTC day: fields `09:req`, `09:in`, `09:out`, `09:err`.
 */

/** What is counted. */
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
  const starts = Array.from(
    { length: bars },
    (_, at) => lastMs - (bars - 1 - at) * bucketMs,
  );
  const days = new Map(
    await Promise.all(
      [...new Set(starts.map(usageDay))].map(async (day) => {
        const key = keyId === null
          ? ownerUsageKey(ownerId, day)
          : usageKey({ ownerId, keyId }, day);
        return [day, await readDay(redis, key)] as const;
      }),
    ),
  );
  const buckets = starts.map((startMs) => {
    const hours = days.get(usageDay(startMs));
    const counts = bucketMs === HOUR_MS
      ? hours?.get(usageHour(startMs)) ?? NOTHING
      : sum([...hours?.values() ?? []]);
    return { startMs, ...counts };
  });
  return { range, bucketMs, buckets, total: sum(buckets) };
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

/** Counts of the hours of one UTC day that have any, by `00` to `23`. */
type Day = ReadonlyMap<string, Counts>;

const COUNT_OF_KIND: ReadonlyMap<string, keyof Counts> = new Map([
  [USAGE_KINDS.requests, "requests"],
  [USAGE_KINDS.errors, "errors"],
  [USAGE_KINDS.promptTokens, "inputTokens"],
  [USAGE_KINDS.completionTokens, "outputTokens"],
]);

async function readDay(redis: RedisLink, key: string): Promise<Day> {
  const day = new Map<string, Counts>();
  for (const [field, value] of await readHash(redis, key)) {
    const [hour = "", kind = ""] = field.split(":");
    const count = COUNT_OF_KIND.get(kind);
    if (count === undefined) continue;
    const counts = day.get(hour) ?? { ...NOTHING };
    counts[count] += asNumber(value);
    day.set(hour, counts);
  }
  return day;
}

function sum(all: readonly Counts[]): Counts {
  const total = { ...NOTHING };
  for (const counts of all) {
    total.requests += counts.requests;
    total.errors += counts.errors;
    total.inputTokens += counts.inputTokens;
    total.outputTokens += counts.outputTokens;
  }
  return total;
}
