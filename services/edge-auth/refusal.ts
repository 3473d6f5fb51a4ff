import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import type { LimitName } from "./admit_reply.ts";
import type { Refused } from "./admitted.ts";

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
 * some clients read that number from the text.
 */
export function refusalError(refused: Refused): ApiError {
  switch (refused.reason) {
    case "unknown":
    case "expired":
      return new ApiError("unauthorized", "unauthorized");
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
      const seconds = Math.ceil(refused.waitMs) / 1_000;
      return new ApiError(
        CODE_OF_LIMIT[refused.limit],
        `Limit of ${NAME_OF_LIMIT[refused.limit]} reached for ${whose}. ` +
          `Please try again in ${seconds}s.`,
        { retryAfterMs: Math.max(1, refused.waitMs) },
      );
    }
  }
}
