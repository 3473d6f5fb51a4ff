/** Why a request finds nobody who runs it, in the words of its caller. */
import { ApiError } from "@gateway/shared/openai/error";

/** What clients are told to wait: workers become free, or are started, all the time. */
const RETRY_MS = 1_000;

/** All workers had no room for too long. */
export function overloaded(): ApiError {
  return new ApiError(
    "overloaded",
    "All workers are busy. Please try again shortly.",
    { retryAfterMs: RETRY_MS },
  );
}

/** There is no worker. */
export function noWorker(): ApiError {
  return new ApiError(
    "no_worker",
    "No worker is available at the moment. Please try again shortly.",
    { retryAfterMs: RETRY_MS },
  );
}

/** No worker can be asked. */
export function busUnavailable(): ApiError {
  return new ApiError(
    "bus_unavailable",
    "The service is temporarily unavailable. Please try again shortly.",
    { retryAfterMs: RETRY_MS },
  );
}
