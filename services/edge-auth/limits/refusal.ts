import { ApiError } from "@gateway/shared/openai/error";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import { rateLimitHeaders, type Rates } from "./rate_limit_headers.ts";

/** The four limits: the error code of each, and its name in messages. */
const LIMITS = [
  ["requests", "rate_limit_exceeded", "requests per minute"],
  ["tokens", "token_limit_exceeded", "tokens per minute"],
  ["day", "daily_limit_exceeded", "tokens per day"],
  ["concurrency", "concurrency_limit_exceeded", "requests at the same time"],
] as const;
export type LimitName = typeof LIMITS[number][0];
export const LIMIT_NAMES = LIMITS.map(([name]) => name);

/**
 * Why a key may not be used. `unknown`: it does not exist or was deleted. `scope`,
 * `model`: the key has no right to the endpoint or to the model.
 */
export const KEY_REFUSALS = [
  "unknown",
  "expired",
  "disabled",
  "scope",
  "model",
] as const;

/** Why a request may not run. Nothing was consumed. */
export type Refusal =
  & { readonly isAdmitted: false }
  & (
    | { reason: typeof KEY_REFUSALS[number] }
    | {
      reason: "limited";
      limit: LimitName;
      of: "key" | "owner";
      /** The same request is admitted after this long, unless others come first. */
      waitMs: number;
      rates: Rates;
    }
  );

/** The `Retry-After` of a request whose key could not be checked. */
const UNREACHABLE_RETRY_MS = 1_000;
const MS_PER_SECOND = 1_000;

/** The answer to every failed authentication. */
export function unauthorized(): ApiError {
  return new ApiError("unauthorized", "unauthorized");
}

/** The answer to a key whose refused bodies took too much time; the body is not parsed. */
export function tooManyBadBodies(
  waitMs: number,
  headers: Readonly<Record<string, string>> = {},
): ApiError {
  return new ApiError(
    "rate_limit_exceeded",
    "Too many requests of this API key were refused. " +
      `Please try again in ${waitMs / MS_PER_SECOND}s.`,
    { retryAfterMs: waitMs, headers },
  );
}

/** The answer while Redis cannot check whether a key is valid: never 401. */
export function keysUnreachable(cause: unknown): ApiError {
  return new ApiError(
    "service_unavailable",
    "The service cannot check API keys at the moment. Please try again shortly.",
    { retryAfterMs: UNREACHABLE_RETRY_MS, cause },
  );
}

/**
 * The error to throw for a failed Redis call: 503 if Redis is unavailable. Anything
 * else, such as a corrupt record, is a fault that a retry does not fix: it is
 * rethrown, logged, and answered with 500.
 */
export function redisFailure(cause: unknown): unknown {
  return cause instanceof RedisUnavailableError || isDenied(cause)
    ? keysUnreachable(cause)
    : cause;
}

/** Redis answers but holds no data, so every key would look unknown. */
export function storeIsEmpty(): RedisUnavailableError {
  return new RedisUnavailableError("empty", "it holds no keys");
}

/**
 * The answer to a refused request: 401 for a key that does not exist or has
 * expired, 403 for a disabled key and for one without the right, 429 for a limit. The
 * message of a 429 names the limit, whose it is, and the seconds to wait, a number
 * that some clients read from the text. Its headers give the state of the limits and
 * the time to wait.
 */
export function refusalError(refusal: Refusal): ApiError {
  switch (refusal.reason) {
    case "unknown":
    case "expired":
      return unauthorized();
    case "disabled":
      return new ApiError("key_disabled", "unauthorized");
    case "scope":
    case "model": {
      const what = refusal.reason === "model" ? "model" : "endpoint";
      return new ApiError(
        "forbidden",
        `This API key has no right to this ${what}.`,
      );
    }
    case "limited": {
      const [, code, name] =
        LIMITS.find(([limit]) => limit === refusal.limit) ?? LIMITS[0];
      const whose = refusal.of === "key" ? "this API key" : "your account";
      const seconds = Math.ceil(refusal.waitMs) / MS_PER_SECOND;
      return new ApiError(
        code,
        `Limit of ${name} reached for ${whose}. ` +
          `Please try again in ${seconds}s.`,
        {
          retryAfterMs: Math.max(1, refusal.waitMs),
          headers: rateLimitHeaders(refusal.rates),
        },
      );
    }
  }
}
