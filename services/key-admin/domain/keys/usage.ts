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
} from "@gateway/shared/keys/limiter_state";
import {
  type KeyRecord,
  limiterKey,
  ownerUsageKey,
  usageKey,
} from "@gateway/shared/keys/record";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import { readHashes } from "../store/hashes.ts";
import { asList, asNumber, asTexts } from "../store/redis.ts";
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
/** What is counted: requests, units of usage, costs, and reasons of failures. */
export type CountName = typeof COUNTS[number];

/** Numbers by their name; a missing one is 0. */
export type Counts = { [Name in CountName]?: number };

const DAY_MS = 24 * 3_600_000;

/** The last days in UTC as `yyyymmdd`, today first. */
export const lastDays = (count: number, nowMs: number): string[] =>
  Array.from({ length: count }, (_, n) => usageDay(nowMs - n * DAY_MS));

/** When a UTC day, `yyyymmdd`, begins. */
export const utcDayMs = (day: string): number =>
  Date.parse(day.replace(/(\d{4})(\d\d)(\d\d)/, "$1-$2-$3"));

/** The UTC day this many days after another one, both as `yyyymmdd`. */
export const plusUtcDays = (day: string, days: number): string =>
  usageDay(utcDayMs(day) + days * DAY_MS);

/** The owner whose usage is read: of one key, or of all keys when `keyId` is null. */
export interface UsageScope {
  ownerId: string;
  keyId: string | null;
}

const NAMES: ReadonlySet<string> = new Set(COUNTS);
const isName = (name: string): name is CountName => NAMES.has(name);

/** The names of the counts that are there: of forty that there may be, mostly few. */
const namesIn = (counts: Counts): CountName[] =>
  Object.keys(counts).filter(isName);

/** Adds counts to a sum, name by name; changes the sum. */
export function addCounts(sum: Counts, counts: Counts): void {
  for (const name of namesIn(counts)) {
    const count = counts[name];
    if (count) sum[name] = (sum[name] ?? 0) + count;
  }
}

/** Returns the rest of a sum without these counts, not below 0. */
export function withoutCounts(sum: Counts, counts: Counts): Counts {
  const rest: Counts = {};
  for (const name of namesIn(sum)) {
    // More may have been counted since the sum was read.
    const left = Math.max(0, (sum[name] ?? 0) - (counts[name] ?? 0));
    if (left > 0) rest[name] = left;
  }
  return rest;
}

/** Whether anything was counted. */
export const isUsed = (counts: Counts): boolean =>
  Object.values(counts).some((count) => count !== 0);

/** The sum of this name, which may be new. */
export function sumOf<Name>(sums: Map<Name, Counts>, name: Name): Counts {
  const sum = sums.get(name) ?? {};
  sums.set(name, sum);
  return sum;
}

/** What was counted of one endpoint and model in an hour of a UTC day. */
export interface UsageRow {
  /** `yyyymmdd`. */
  day: string;
  /** `00` to `23`; empty if the hours of the day have been added up. */
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
    for (const counted of await readDay(redis, { ownerId, keyId }, day)) {
      const { name, count, hour, endpoint, model } = counted;
      const at = `${day} ${hour} ${endpoint} ${model}`;
      const row = rows.get(at) ?? { day, hour, endpoint, model, counts: {} };
      row.counts[name] = count;
      rows.set(at, row);
    }
  }));
  return rows;
}

/** One counter of an hour. */
export interface Counted extends Omit<UsageRow, "day" | "counts"> {
  name: CountName;
  count: number;
}

/** The name of the counters of a UTC day in Redis. */
export const usageHash = ({ ownerId, keyId }: UsageScope, day: string) =>
  keyId === null
    ? ownerUsageKey(ownerId, day)
    : usageKey({ ownerId, keyId }, day);

/** The counters of a UTC day, in no order. */
export async function readDay(
  redis: RedisLink,
  scope: UsageScope,
  day: string,
): Promise<Counted[]> {
  const flat = await redis.command(["HGETALL", usageHash(scope, day)]);
  return countersIn(asTexts(flat), new Map());
}

/** The same of each of these days. */
export async function readDays(
  redis: RedisLink,
  scope: UsageScope,
  days: readonly string[],
): Promise<Counted[][]> {
  const keys = days.map((day) => usageHash(scope, day));
  const fields: FieldCounters = new Map();
  return (await readHashes(redis, keys))
    .map((flat) => countersIn(flat, fields));
}

/** The counters of fields that were read before; null: of a later version. */
type FieldCounters = Map<string, Omit<Counted, "count"> | null>;

/** The counters of a hash. Most days have the same fields. */
function countersIn(flat: readonly string[], fields: FieldCounters): Counted[] {
  const found: Counted[] = [];
  for (let at = 0; at < flat.length; at += 2) {
    const field = flat[at] ?? "";
    const counter = fields.get(field) ?? counterOf(field);
    fields.set(field, counter);
    if (counter === null) continue;
    const { name, hour, endpoint, model } = counter;
    found.push({ name, count: Number(flat[at + 1]), hour, endpoint, model });
  }
  return found;
}

/** Reads the name of a counter; null: an edge of a later version counts more. */
function counterOf(field: string): Omit<Counted, "count"> | null {
  const { hour, counter, endpoint, model } = parseUsageField(field);
  const name = NAME_OF_COUNTER.get(counter);
  return name === undefined ? null : { name, hour, endpoint, model };
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

/** The count of a counter in Redis; undefined for one of a later version. */
export const countOf = (counter: string): CountName | undefined =>
  NAME_OF_COUNTER.get(counter);

const COUNTER_OF_NAME: ReadonlyMap<CountName, string> = new Map(
  Array.from(NAME_OF_COUNTER, ([counter, name]) => [name, counter]),
);

/** The field that {@link readDay} reads as this. */
export const fieldOf = (
  { hour, name, endpoint, model }: Omit<Counted, "count">,
): string =>
  `${hour}:${COUNTER_OF_NAME.get(name)}${endpoint && `@${endpoint}`}${
    model && `:${model}`
  }`;

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
