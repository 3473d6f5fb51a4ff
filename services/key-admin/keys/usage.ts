import { USAGE_KINDS, usageDay } from "@gateway/shared/keys/limiter_state";
import { keysKey, usageKey } from "@gateway/shared/keys/record";
import { defineScript } from "@gateway/shared/redis/script";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asNumber, asTexts } from "../store/reply.ts";

/**
 * Usage for charts, from the counters that the edges keep per key and hour of
 * the UTC day: fields `09:req`, `09:in`, `09:out`, `09:err`.
 */

/** What is counted. */
export interface Counts {
  requests: number;
  /** Requests that ended in an error of ours or of the backend. */
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
  /** False: the owner has more keys than one view adds up, so the newest were taken. */
  isComplete: boolean;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Keys whose counters one view adds up, and how many one call takes. */
const KEYS_MAX = 2_000;
const KEYS_PER_CALL = 100;

/**
 * KEYS: 1 the owner's list of keys, for its slot. ARGV: 1 `hour` or `day` for what
 * is kept apart, then the counters of some keys, one owner's, hence in that slot:
 * what stands in KEYS has to be writable, and here nobody may write these. Reply: `{ requests, errors, in, out }` of every
 * hour (24 of them) or of the day as a whole, added up over the keys.
 */
const SUM_SCRIPT = defineScript(
  "key-admin/usage",
  `
local perHour = ARGV[1] == 'hour'
local place = {
  ['${USAGE_KINDS.requests}'] = 1, ['${USAGE_KINDS.errors}'] = 2,
  ['${USAGE_KINDS.promptTokens}'] = 3, ['${USAGE_KINDS.completionTokens}'] = 4
}
local sums = {}
for i = 1, (perHour and 24 or 1) * 4 do sums[i] = 0 end
for at = 2, #ARGV do
  local flat = redis.call('HGETALL', ARGV[at])
  for at = 1, #flat, 2 do
    local hour, kind = string.match(flat[at], '^(%d%d):(%a+)$')
    local slot = kind and place[kind]
    if slot then
      local base = perHour and tonumber(hour) * 4 or 0
      if sums[base + slot] then
        sums[base + slot] = sums[base + slot] + (tonumber(flat[at + 1]) or 0)
      end
    end
  end
end
for i, sum in ipairs(sums) do sums[i] = string.format('%.0f', sum) end
return sums
`,
);

/** Adds up the usage of one key, or of all keys of the owner when `keyId` is null. */
export async function readUsage(
  redis: RedisLink,
  ownerId: string,
  keyId: string | null,
  range: UsageRange,
  nowMs: number,
): Promise<Usage> {
  const keyIds = keyId === null ? await newestKeys(redis, ownerId) : [keyId];
  const isComplete = keyIds.length <= KEYS_MAX;
  const counted = keyIds.slice(0, KEYS_MAX);
  const buckets = range === "24h"
    ? await hourBuckets(redis, ownerId, counted, nowMs)
    : await dayBuckets(redis, ownerId, counted, nowMs);
  return {
    range,
    bucketMs: range === "24h" ? HOUR_MS : DAY_MS,
    buckets,
    total: buckets.reduce(add, NOTHING),
    isComplete,
  };
}

/** The last `count` days, oldest first, today included. */
function lastDays(nowMs: number, count: number): string[] {
  return Array.from(
    { length: count },
    (_, at) => usageDay(nowMs - (count - 1 - at) * DAY_MS),
  );
}

const NOTHING: Counts = {
  requests: 0,
  errors: 0,
  inputTokens: 0,
  outputTokens: 0,
};

async function newestKeys(
  redis: RedisLink,
  ownerId: string,
): Promise<string[]> {
  return asTexts(
    await redis.command(
      ["ZREVRANGE", keysKey(ownerId), "0", String(KEYS_MAX)],
    ),
  );
}

async function hourBuckets(
  redis: RedisLink,
  ownerId: string,
  keyIds: readonly string[],
  nowMs: number,
): Promise<Bucket[]> {
  const lastStartMs = Math.floor(nowMs / HOUR_MS) * HOUR_MS;
  const [yesterday = "", today = ""] = lastDays(nowMs, 2);
  const [before, now] = await Promise.all([
    sum(redis, ownerId, keyIds, yesterday, "hour"),
    sum(redis, ownerId, keyIds, today, "hour"),
  ]);
  return Array.from({ length: 24 }, (_, at) => {
    const startMs = lastStartMs - (23 - at) * HOUR_MS;
    const isToday = Math.floor(startMs / DAY_MS) === Math.floor(nowMs / DAY_MS);
    const hour = new Date(startMs).getUTCHours();
    return { startMs, ...countsAt(isToday ? now : before, hour) };
  });
}

async function dayBuckets(
  redis: RedisLink,
  ownerId: string,
  keyIds: readonly string[],
  nowMs: number,
): Promise<Bucket[]> {
  const todayMs = Math.floor(nowMs / DAY_MS) * DAY_MS;
  const days = lastDays(nowMs, 30);
  const sums = await Promise.all(
    days.map((day) => sum(redis, ownerId, keyIds, day, "day")),
  );
  return sums.map((numbers, at) => ({
    startMs: todayMs - (days.length - 1 - at) * DAY_MS,
    ...countsAt(numbers, 0),
  }));
}

/** Four numbers per hour, or four in all. Many keys are taken in several bounded calls. */
async function sum(
  redis: RedisLink,
  ownerId: string,
  keyIds: readonly string[],
  day: string,
  apart: "hour" | "day",
): Promise<number[]> {
  const total = Array<number>(apart === "hour" ? 96 : 4).fill(0);
  for (let at = 0; at < keyIds.length; at += KEYS_PER_CALL) {
    const counters = keyIds.slice(at, at + KEYS_PER_CALL)
      .map((keyId) => usageKey({ ownerId, keyId }, day));
    const part = asTexts(
      await redis.evalScript(SUM_SCRIPT, [keysKey(ownerId)], [
        apart,
        ...counters,
      ]),
    );
    part.forEach((value, place) => {
      total[place] = (total[place] ?? 0) + asNumber(value);
    });
  }
  return total;
}

function countsAt(numbers: readonly number[], hour: number): Counts {
  const [requests = 0, errors = 0, inputTokens = 0, outputTokens = 0] = numbers
    .slice(hour * 4, hour * 4 + 4);
  return { requests, errors, inputTokens, outputTokens };
}

function add(a: Counts, b: Counts): Counts {
  return {
    requests: a.requests + b.requests,
    errors: a.errors + b.errors,
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
  };
}
