import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import {
  rateLimitHeaders,
  type Rates,
  spreadWaitMs,
} from "./rate_limit_headers.ts";

/** The four limits. */
export const LIMIT_NAMES = [
  "requests",
  "tokens",
  "day",
  "concurrency",
] as const;
export type LimitName = typeof LIMIT_NAMES[number];

/** Why a request may not run. Nothing was consumed. */
export type Refusal =
  & { readonly isAdmitted: false }
  & (
    | {
      /**
       * `unknown`: no such key, as far as anybody outside may know. `scope`,
       * `model`: the key has no right to the endpoint or to the model.
       */
      reason: "unknown" | "expired" | "disabled" | "scope" | "model";
    }
    | {
      reason: "limited";
      limit: LimitName;
      of: "key" | "owner";
      /** After this long, the same request passes unless others come first. */
      waitMs: number;
      rates: Rates;
    }
  );

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
  refusal: Refusal,
  random: () => number,
): ApiError {
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
      const whose = refusal.of === "key" ? "this API key" : "your account";
      const seconds = Math.ceil(refusal.waitMs) / MS_PER_SECOND;
      return new ApiError(
        CODE_OF_LIMIT[refusal.limit],
        `Limit of ${NAME_OF_LIMIT[refusal.limit]} reached for ${whose}. ` +
          `Please try again in ${seconds}s.`,
        {
          retryAfterMs: Math.max(1, spreadWaitMs(refusal.waitMs, random)),
          headers: rateLimitHeaders(refusal.rates),
        },
      );
    }
  }
}
