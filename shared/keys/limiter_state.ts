/**
 * What edges keep next to a key's record: limits, usage and why requests failed.
 * `record.ts` has the Redis keys.
 */
import { KEY_FIELDS } from "./record.ts";

/**
 * Fields of `lim:{owner}:<key id>` and `lim:{owner}`.
 *
 * The state is seven little-endian doubles, because one packed field takes a third
 * of the time of text fields, and doubles are read back exactly:
 *
 * ```
 * 0  last admission           ms since LIMITER_EPOCH_MS, with fractions
 * 1  requests: arrival time   the same; at most a minute ahead (GCRA)
 * 2  tokens: full again at    the same; more than a minute ahead is debt
 * 3  day of the next field    days since LIMITER_EPOCH_MS
 * 4  tokens of that day       used, and reserved by running requests
 * 5  requests per minute      the limits that fields 1 and 2 were written under;
 * 6  tokens per minute        0: none
 * ```
 *
 * States of earlier versions lack the last two and are used as they are, so that
 * limits hold while edges are upgraded.
 *
 * What requests without tokens make is counted in a further field for each unit, which
 * is named as its limit in the record ({@link dayLimitField}): two doubles, the day
 * and the count of that day, as in fields 3 and 4.
 */
export const LIMITER_FIELDS = {
  state: "s",
  /** Unix ms of an admission, at most a minute before the last one: "last used". */
  lastUsedAtMs: "lu",
} as const;

/**
 * A midnight, so that days are UTC days. Times since 1970 would leave a double too few
 * digits for fast limits.
 */
export const LIMITER_EPOCH_MS = 1_735_689_600_000;

/** A key's last use is known for this long. Limits alone would need two days. */
export const LAST_USE_DAYS_KEPT = 90;

const DAY_MS = 86_400_000;
/** An hour in ms, by which usage is counted. */
export const HOUR_MS = 3_600_000;

/**
 * The hourly counters in `use:{owner}:<key id>:<yyyymmdd>` and
 * `use:{owner}:<yyyymmdd>`.
 */
export const USAGE_KINDS = {
  /** Requests that ran and ended, successful or not. */
  requests: "req",
  promptTokens: "in",
  completionTokens: "out",
  /** Prompt tokens that were read from the cache of a model server. */
  cachedTokens: "cin",
  /** Prompt tokens that were written to that cache, where the server says so. */
  cacheWriteTokens: "cwr",
  images: "img",
  /** Characters of text that was spoken. */
  characters: "chr",
  /** Seconds of recordings that were transcribed. */
  audioSeconds: "aus",
  videoSeconds: "vis",
  /** Requests that ran and failed, which count as requests, too. */
  errors: "err",
  /** Further requests, which were refused before they ran. */
  refused: "ref",
  /** Money, in billionths of the unit of the currency. */
  cost: "cost",
  /** Requests to models without a price, where others have one. */
  unpriced: "unp",
  /** Requests whose edge was lost, which are charged what they had reserved. */
  lostRequests: "lor",
  /** The part of the cost that those requests were charged. */
  lostCost: "loc",
} as const;

/** What is counted of requests without tokens. */
export const USAGE_UNITS = [
  "images",
  "characters",
  "audioSeconds",
  "videoSeconds",
] as const;
/** A member of {@link USAGE_UNITS}, which is also one of {@link USAGE_KINDS}. */
export type UsageUnit = typeof USAGE_UNITS[number];

/**
 * The limit of a UTC day on a unit, as a field of a record and of the state:
 * `images_per_day`.
 */
export const dayLimitField = (unit: UsageUnit) => KEY_FIELDS[`${unit}PerDay`];

/** A unit as a label of metrics: `audio_seconds`. */
export const unitLabel = (unit: UsageUnit) =>
  dayLimitField(unit).replace("_per_day", "");

/** What usage counts, by our name. */
export type UsageKind = keyof typeof USAGE_KINDS;

/** Days after which the usage of a day is gone. */
export const USAGE_DAYS_KEPT = 400;

/** Days for which it is kept by hours; key-admin then adds them up. */
export const USAGE_HOURS_KEPT_DAYS = 40;

/**
 * What is counted: one of {@link USAGE_KINDS}, or why requests were refused or failed.
 */
export type Counter = typeof USAGE_KINDS[UsageKind] | FailureReason;

/** The endpoints that usage is counted by. */
export const USAGE_ENDPOINTS = [
  "chat",
  "messages",
  "responses",
  "completions",
  "embeddings",
  "rerank",
  "images",
  "speech",
  "transcriptions",
  "videos",
] as const;
/** A member of {@link USAGE_ENDPOINTS}. */
export type UsageEndpoint = typeof USAGE_ENDPOINTS[number];

/** What requests were for. */
export interface UsageSubject {
  /** One of the catalogue, which bounds the fields; empty: none is known. */
  readonly model?: string;
  /** Null or absent: none is known. */
  readonly endpoint?: UsageEndpoint | null | undefined;
}

/**
 * Field of a usage hash: `09:in@chat:small-1`, `09:unknown_model@chat`. Edges of
 * earlier versions record no endpoint, and their fields stay readable: `09:in:small-1`.
 */
export const usageField = (
  hour: string,
  counter: Counter,
  subject: UsageSubject = {},
) => `${hour}:${counter}${usageSuffix(subject)}`;

/** What follows the counter in a usage field: `@chat:small-1`. */
export const usageSuffix = ({ model = "", endpoint }: UsageSubject) =>
  `${endpoint ? `@${endpoint}` : ""}${model && `:${model}`}`;

/** The parts of what follows the counter in a usage field. */
export function parseUsageSuffix(suffix: string) {
  const { endpoint, model } = parseUsageField(`:${suffix}`);
  const knownEndpoint = USAGE_ENDPOINTS.find((each) => each === endpoint) ??
    null;
  return { endpoint: knownEndpoint, model };
}

/** The parts of a usage field. Counter and endpoint may be of a later version. */
export function parseUsageField(field: string) {
  const [hour = "", count = "", ...model] = field.split(":");
  const [counter = "", endpoint = ""] = count.split("@");
  return { hour, counter, endpoint, model: model.join(":") };
}

/** What the year and the month of a day count in the number that names it. */
const DAY_DIGITS = { year: 10_000, month: 100 };
const HOURS_PER_DAY = 24;

/** The UTC day of a time as in key names: `20261120`. */
export function usageDay(unixMs: number): string {
  // Every request asks, and `toISOString` takes ten times as long.
  const date = new Date(unixMs);
  const year = date.getUTCFullYear() * DAY_DIGITS.year;
  const month = (date.getUTCMonth() + 1) * DAY_DIGITS.month;
  return String(year + month + date.getUTCDate());
}

/** The UTC hour of a time as in usage fields: `09`. */
export function usageHour(unixMs: number): string {
  const hour = Math.floor(unixMs / HOUR_MS) % HOURS_PER_DAY;
  return String(hour).padStart(2, "0");
}

/** Days from {@link LIMITER_EPOCH_MS} to the UTC day of a time. */
export function limiterDay(unixMs: number): number {
  return Math.floor((unixMs - LIMITER_EPOCH_MS) / DAY_MS);
}

/**
 * Limits that refuse requests; with `.owner`, those of all keys of the owner together.
 */
const LIMIT_REASONS = [
  "requests_per_minute",
  "tokens_per_minute",
  "tokens_per_day",
  "concurrency",
  "images_per_day",
  "characters_per_day",
  "audio_seconds_per_day",
  "video_seconds_per_day",
  "video_jobs",
  "budget_day",
  "budget_month",
  "budget_total",
  "budget_held",
] as const;

/** Limits of each end user of a key. */
export const END_USER_REASONS = [
  "requests_per_minute.user",
  "tokens_per_minute.user",
  "budget_day.user",
  "budget_held.user",
] as const;

/** Reasons that have no limit, in the order of lists and columns. */
const OTHER_REASONS = [
  "model_server_limit",
  "request_bodies",
  "unknown_model",
  "model_forbidden",
  "model_unpriced",
  "endpoint_forbidden",
  "address_forbidden",
  "key_disabled",
  "key_expired",
  "request_stopped",
  "invalid_request",
  "server",
  "cut",
] as const;

/**
 * Why requests are refused or fail, in the order of lists and columns. Edges count each
 * per key, hour and model ({@link usageField}). `request_bodies`: too many bodies of
 * the key were refused, or too large. `budget_held`: running requests held the rest of
 * a budget. `model_unpriced`: there was a budget, but no price. `cut`: an error ended a
 * stream that had started. `request_stopped`: somebody has stopped it.
 */
export const FAILURE_REASONS = [
  ...LIMIT_REASONS,
  ...LIMIT_REASONS.map((limit) => `${limit}.owner` as const),
  ...END_USER_REASONS,
  ...OTHER_REASONS,
];
/** A member of {@link FAILURE_REASONS}. */
export type FailureReason = typeof FAILURE_REASONS[number];
