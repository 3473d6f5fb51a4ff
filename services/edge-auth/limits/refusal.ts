/**
 * Why a request may not run, the HTTP errors that say so, and the state of the limits.
 */
import {
  BUDGET_WINDOWS,
  type BudgetState,
} from "@gateway/shared/keys/budget_state";
import {
  END_USER_REASONS,
  type FailureReason,
} from "@gateway/shared/keys/limiter_state";
import type { Principal } from "@gateway/shared/keys/record";
import type { PriceTable } from "@gateway/shared/models/price_list";
import { formatAmount } from "@gateway/shared/money/amount";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { HeaderFields } from "../http/exchange.ts";

/**
 * Why a key may not be used: the error, and the reason under which `failed_requests.ts`
 * counts it.
 */
const KEY_ERRORS = {
  unknown: ["unauthorized", "unauthorized", null],
  expired: ["unauthorized", "unauthorized", "key_expired"],
  disabled: ["key_disabled", "unauthorized", "key_disabled"],
  scope: [
    "forbidden",
    "This API key is not allowed to use this endpoint.",
    "endpoint_forbidden",
  ],
  model: [
    "forbidden",
    "This API key is not allowed to use this model.",
    "model_forbidden",
  ],
  address: [
    "forbidden",
    "This API key may not be used from your address.",
    "address_forbidden",
  ],
  unpriced: [
    "forbidden",
    "This model has no price, so the budget of this API key or its account " +
    "would not count it. Use a model with a price, or ask the operator to " +
    "give it one.",
    "model_unpriced",
  ],
} as const satisfies Record<
  string,
  readonly [ErrorCode, message: string, FailureReason | null]
>;

/**
 * The limits: the error, and the reason under which it is counted, which messages use
 * as its name.
 */
const LIMIT_ERRORS = {
  requests: ["rate_limit_exceeded", "requests_per_minute"],
  tokens: ["token_limit_exceeded", "tokens_per_minute"],
  day: ["daily_limit_exceeded", "tokens_per_day"],
  concurrency: ["concurrency_limit_exceeded", "concurrency"],
  images_per_day: ["media_limit_exceeded", "images_per_day"],
  characters_per_day: ["media_limit_exceeded", "characters_per_day"],
  audio_seconds_per_day: ["media_limit_exceeded", "audio_seconds_per_day"],
  video_seconds_per_day: ["media_limit_exceeded", "video_seconds_per_day"],
  video_jobs: ["concurrency_limit_exceeded", "video_jobs"],
  budget_day: ["insufficient_quota", "budget_day"],
  budget_month: ["insufficient_quota", "budget_month"],
  budget_total: ["insufficient_quota", "budget_total"],
  budget_held: ["budget_held", "budget_held"],
} as const satisfies Record<string, readonly [ErrorCode, FailureReason]>;

/** The limits whose reason is not their name. */
const NAMES: { readonly [limit: string]: string } = {
  concurrency: "requests at the same time",
  video_jobs: "videos at the same time",
};

/** Why a key may not be used, in the words of the admission script. */
export type KeyRefusal = keyof typeof KEY_ERRORS;
/** A limit, in the words of the admission script and of metrics. */
export type LimitName = keyof typeof LIMIT_ERRORS;
/** The names of all limits, as the admission script writes them. */
export const LIMIT_NAMES: readonly string[] = Object.keys(LIMIT_ERRORS);

/** How much of a limit per minute is left. */
export interface RateState {
  limit: number;
  remaining: number;
  /** Time until `remaining` reaches `limit` again if there are no further requests. */
  resetMs: number;
}

/** The tighter of key and owner for each; null where neither has such a limit. */
export interface Rates {
  requests: RateState | null;
  tokens: RateState | null;
}

/** Why a request may not run. Nothing was consumed. */
export type Refusal =
  & { readonly isAdmitted: false }
  & ({ reason: KeyRefusal } | LimitRefusal);

/** The holders of limits, as callers read them. */
const HOLDERS = {
  key: "this API key",
  owner: "your account",
  user: "this end user",
} as const;
/** Whose a limit is: of a key, of its owner, or of an end user of the key. */
export type Holder = keyof typeof HOLDERS;

/** Whether a word of the script says whose a limit is. */
export const isHolder = (word: string | undefined): word is Holder =>
  word !== undefined && Object.hasOwn(HOLDERS, word);

/** The reason under which a refusal is counted. */
function countedReason({ limit, holder }: LimitRefusal): FailureReason {
  const [, reason] = LIMIT_ERRORS[limit];
  if (holder === "key") return reason;
  if (holder === "owner") return `${reason}.owner`;
  return END_USER_REASONS.find((each) => each === `${reason}.user`) ?? reason;
}

/** A limit that refuses a request. */
interface LimitRefusal {
  reason: "limited";
  limit: LimitName;
  holder: Holder;
  /**
   * The same request is admitted after this long, unless others come first; Infinity
   * where a budget must be raised first.
   */
  waitMs: number;
  /** The state of the budget, if it is one that refuses. */
  budget?: BudgetState;
  rates: Rates;
}

/** The `Retry-After` of a request whose key could not be checked. */
const UNREACHABLE_RETRY_MS = 1_000;
const MS_PER_SECOND = 1_000;
/** Seconds of a minute and minutes of an hour. */
const SIXTY = 60;
const SECONDS_PER_MINUTE = SIXTY;
/** When the budgets of a day are reset. */
const DAY_END = ", at 00:00 UTC";
const MS_PER_MINUTE = 60 * MS_PER_SECOND;
const MS_PER_HOUR = 60 * MS_PER_MINUTE;

/** Whether the script refused the key itself. */
export const isKeyRefusal = (word: unknown): word is KeyRefusal =>
  typeof word === "string" && Object.hasOwn(KEY_ERRORS, word);
/** Whether a word of the script is a limit that this edge knows. */
export const isLimitName = (word: string | undefined): word is LimitName =>
  word !== undefined && Object.hasOwn(LIMIT_ERRORS, word);

/** The 401 for a key that is missing, malformed or unknown: always the same. */
export function unauthorized(): ApiError {
  const [code, message] = KEY_ERRORS.unknown;
  return new ApiError(code, message);
}

/** The same 401 for a key that was deleted: only the log of its account differs. */
export class DeletedKeyError extends ApiError {
  constructor(readonly principal: Principal) {
    const [code, message] = KEY_ERRORS.unknown;
    super(code, message);
  }
}

/**
 * A key that cannot be checked means 503, never 401. Any other fault, which a retry
 * does not fix, is rethrown.
 */
export function redisFailure(cause: unknown): unknown {
  if (!(cause instanceof RedisUnavailableError || isDenied(cause))) {
    return cause;
  }
  return new ApiError(
    "service_unavailable",
    "The service cannot check API keys at the moment. Please try again shortly.",
    { retryAfterMs: UNREACHABLE_RETRY_MS, cause },
  );
}

/** Redis answers but holds no data, so every key would look unknown. */
export const storeIsEmpty = () =>
  new RedisUnavailableError("empty", "it holds no keys");

/**
 * The answer to a refused request. Some clients read the seconds to wait from its text.
 * The prices name the currency of budgets.
 */
export function refusalError(
  refusal: Refusal,
  { currency }: Pick<PriceTable, "currency"> = { currency: "" },
): ApiError {
  if (refusal.reason !== "limited") {
    const [code, message, reason] = KEY_ERRORS[refusal.reason];
    return new ApiError(code, message, { reason });
  }
  const [code, reason] = LIMIT_ERRORS[refusal.limit];
  const name = NAMES[refusal.limit] ?? reason.replaceAll("_", " ");
  const whose = HOLDERS[refusal.holder];
  if (refusal.budget) return budgetError(refusal, refusal.budget, currency);
  const isOfDay = reason.endsWith("_per_day");
  const when = `in ${waitText(refusal.waitMs)}${isOfDay ? DAY_END : ""}`;
  return new ApiError(
    code,
    `Limit of ${name} reached for ${whose}. Please try again ${when}.`,
    {
      retryAfterMs: Math.max(1, refusal.waitMs),
      reason: countedReason(refusal),
      headers: rateLimitHeaders(refusal.rates),
    },
  );
}

/** Names whose budget it is, what is spent, held and allowed, and when it is reset. */
function budgetError(
  refusal: LimitRefusal,
  budget: BudgetState,
  currency: string,
): ApiError {
  const { name, limit: allowed, spent, held, resetMs } = budget;
  const { holder, limit, waitMs, rates } = refusal;
  const [code] = LIMIT_ERRORS[limit];
  const whose = HOLDERS[holder];
  const isHeld = limit === "budget_held";
  const amounts = `${formatAmount(spent)} of ${formatAmount(allowed)}` +
    `${currency && ` ${currency}`} spent, ${formatAmount(held)} held by ` +
    "running requests";
  const reset = resetMs === null
    ? "It is not reset"
    : `It is reset at ${new Date(resetMs).toISOString().slice(0, -5)}Z`;
  const advice = isHeld
    ? `Running requests hold the rest. Please try again in ${waitText(waitMs)}`
    : "Trying again before it is reset or raised does not help";
  return new ApiError(
    code,
    `The budget of ${whose} for ${BUDGET_WINDOWS[name]} does not allow this ` +
      `request: ${amounts}. ${reset}. ${advice}.`,
    {
      ...waitMs < Infinity && { retryAfterMs: Math.max(1, waitMs) },
      reason: countedReason(refusal),
      headers: rateLimitHeaders(rates),
      budget,
    },
  );
}

/**
 * A wait as people read it, rounded up: `29.75s` below a minute, as clients of OpenAI
 * expect it, else `2 min 5 s` or `19 h 56 min`.
 */
export function waitText(waitMs: number): string {
  const seconds = Math.ceil(waitMs) / MS_PER_SECOND;
  if (seconds < SECONDS_PER_MINUTE) return `${seconds}s`;
  const wholeSeconds = Math.ceil(seconds);
  const wholeMinutes = Math.ceil(seconds / SECONDS_PER_MINUTE);
  return wholeSeconds < MS_PER_HOUR / MS_PER_SECOND
    ? unitsOf(wholeSeconds, "min", "s")
    : unitsOf(wholeMinutes, "h", "min");
}

/** `61` of the smaller unit as `1 h 1 min`. */
function unitsOf(count: number, larger: string, smaller: string): string {
  const rest = count % SIXTY;
  const whole = `${Math.floor(count / SIXTY)} ${larger}`;
  return rest === 0 ? whole : `${whole} ${rest} ${smaller}`;
}

/**
 * OpenAI's six `x-ratelimit-*`, for the limits that are set:
 * https://platform.openai.com/docs/guides/rate-limits, 2026.
 */
export function rateLimitHeaders(rates: Rates): HeaderFields {
  const { requests, tokens } = rates;
  return {
    ...requests !== null && {
      "x-ratelimit-limit-requests": String(requests.limit),
      "x-ratelimit-remaining-requests": String(requests.remaining),
      "x-ratelimit-reset-requests": goDuration(requests.resetMs),
    },
    ...tokens !== null && {
      "x-ratelimit-limit-tokens": String(tokens.limit),
      "x-ratelimit-remaining-tokens": String(tokens.remaining),
      "x-ratelimit-reset-tokens": goDuration(tokens.resetMs),
    },
  };
}

/**
 * A duration as Go prints it, which is what OpenAI sends: `0s`, `12ms`, `1.5s`,
 * `1h30m0s`.
 */
export function goDuration(ms: number): string {
  const whole = Math.max(0, Math.ceil(ms));
  if (whole > 0 && whole < MS_PER_SECOND) return `${whole}ms`;
  const hours = Math.floor(whole / MS_PER_HOUR);
  const minutes = Math.floor(whole % MS_PER_HOUR / MS_PER_MINUTE);
  const seconds = whole % MS_PER_MINUTE / MS_PER_SECOND;
  const most = hours > 0 ? `${hours}h` : "";
  return `${most}${whole < MS_PER_MINUTE ? "" : `${minutes}m`}${seconds}s`;
}
