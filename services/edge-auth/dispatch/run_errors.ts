/** The errors of requests that no worker could finish, or that were stopped. */
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";

/** The `Retry-After` for clients: workers become free, or are started, all the time. */
const RETRY_MS = 1_000;

/** The error of a request whose key was disabled together with its running requests. */
export function keyRevoked(): ApiError {
  return new ApiError("key_revoked", "The API key was revoked.");
}

/** The error of a request that its owner or an operator has stopped. */
export function requestStopped(): ApiError {
  return new ApiError("request_stopped", "The request was stopped.");
}

/** 503: all workers of the model have been full for too long. */
export function overloaded(): ApiError {
  return tryAgain("overloaded", "All workers are busy.");
}

/** 429: as many requests wait for the model as may, and are served by then. */
export function queueFull(model: string, retryAfterMs: number): ApiError {
  const message = `Too many requests wait for the model '${model}'. ` +
    "Please try again later.";
  return new ApiError("queue_full", message, { retryAfterMs });
}

/** 429: the servers of the model are at limits of theirs for this long. */
export function saturated(waitMs: number): ApiError {
  const message = "The model servers have reached their limits, " +
    "try again later";
  const retryAfterMs = Math.ceil(waitMs);
  return new ApiError("upstream_rate_limited", message, { retryAfterMs });
}

/** 503: others waited for the slot of an upload that hardly arrived. */
export function uploadTooSlow(): ApiError {
  return tryAgain("overloaded", "The upload was too slow while others waited.");
}

/** 503: others waited for the slot of a download that was hardly read. */
export function downloadTooSlow(): ApiError {
  const what = "The download was too slow while others waited.";
  return tryAgain("overloaded", what);
}

/** 504: the request took longer than the edge or its client allows. */
export function deadlineExceeded(): ApiError {
  return new ApiError("deadline_exceeded", "The request took too long.");
}

/** 503: the bus knows no worker. */
export function noWorker(): ApiError {
  return tryAgain("no_worker", "No worker is available at the moment.");
}

/** 503: NATS cannot be reached. */
export function busUnavailable(): ApiError {
  return tryAgain("bus_unavailable", "The service is temporarily unavailable.");
}

function tryAgain(code: ErrorCode, what: string): ApiError {
  const message = `${what} Please try again shortly.`;
  return new ApiError(code, message, { retryAfterMs: RETRY_MS });
}
