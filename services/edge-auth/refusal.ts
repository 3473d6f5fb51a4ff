import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { LimitName } from "./admit_reply.ts";
import type { Refused } from "./admitted.ts";
import { rateLimitHeaders, spreadWaitMs } from "./rate_limit_headers.ts";

/** Told to a caller whose key nobody could check. */
const UNREACHABLE_RETRY_MS = 1_000;
const MS_PER_SECOND = 1_000;

/** The one answer to every failed authentication. */
export function unauthorized(): ApiError {
  return new ApiError("unauthorized", "unauthorized");
}

/** The answer to a key too many of whose bodies were refused, here before this one is parsed. */
export function tooManyBadBodies(
  waitMs: number,
  headers: Readonly<Record<string, string>> = {},
): ApiError {
  return new ApiError(
    "rate_limit_exceeded",
    "Too many requests of this API key could not be understood. " +
      `Please try again in ${waitMs / MS_PER_SECOND}s.`,
    { retryAfterMs: waitMs, headers },
  );
}

/** The one answer while Redis cannot say whose key it is and what it may: nobody is called unknown. */
export function keysUnreachable(cause: unknown): ApiError {
  return new ApiError(
    "service_unavailable",
    "The service cannot check API keys at the moment. Please try again shortly.",
    { retryAfterMs: UNREACHABLE_RETRY_MS, cause },
  );
}

/**
 * What a failed call of Redis becomes: 503 where Redis cannot serve now. Anything
 * else, such as a corrupt record, is a fault that waiting does not cure: it stays
 * what it is, which the log tells and the caller hears as 500.
 */
export function redisFailure(cause: unknown): unknown {
  return cause instanceof RedisUnavailableError || isDenied(cause)
    ? keysUnreachable(cause)
    : cause;
}

/** Why keys are unreachable in a Redis that answers: without its data it would call every key unknown. */
export function storeIsEmpty(): RedisUnavailableError {
  return new RedisUnavailableError("empty", "it holds no keys");
}

const CODE_OF_LIMIT: Record<LimitName, ErrorCode> = {
  requests: "rate_limit_exceeded",
  tokens: "token_limit_exceeded",
  day: "daily_limit_exceeded",
  concurrency: "concurrency_limit_exceeded",
};

const NAME_OF_LIMIT: Record<LimitName, string> = {
  requests: "requests per minute",
  tokens: "tokens per minute",
  day: "tokens per day",
  concurrency: "requests at the same time",
};

/**
 * The answer to a refused request: 401 for a key that does not exist or has run
 * out, 403 for a disabled key and for one without the right, 429 for a limit. The
 * message of a 429 says which limit, whose, and in how many seconds to try again;
 * some clients read that number from the text. Its headers say where the limits
 * stand, and how long to wait, spread by `random` (0 ≤ x < 1).
 */
export function refusalError(
  refused: Refused,
  random: () => number,
): ApiError {
  switch (refused.reason) {
    case "unknown":
    case "expired":
      return unauthorized();
    case "disabled":
      return new ApiError("key_disabled", "unauthorized");
    case "forbidden":
      return new ApiError(
        "forbidden",
        refused.what === "model"
          ? "This API key has no right to this model."
          : "This API key has no right to this endpoint.",
      );
    case "limited": {
      const whose = refused.of === "key" ? "this API key" : "your account";
      const seconds = Math.ceil(refused.waitMs) / MS_PER_SECOND;
      return new ApiError(
        CODE_OF_LIMIT[refused.limit],
        `Limit of ${NAME_OF_LIMIT[refused.limit]} reached for ${whose}. ` +
          `Please try again in ${seconds}s.`,
        {
          retryAfterMs: Math.max(1, spreadWaitMs(refused.waitMs, random)),
          headers: rateLimitHeaders(refused.rates),
        },
      );
    }
  }
}
