/** The errors of jobs that do not come from a model server. */
import { ApiError } from "../../openai/error.ts";

/** The error for a request that the edge has checked but that is malformed here. */
export function corruptedRequest(): ApiError {
  return new ApiError(
    "internal_error",
    "The request was corrupted in transit.",
  );
}

/** The error for a request whose answer is to be kept, where there is no log. */
export function notKept(): ApiError {
  const message = "The answer could not be kept: its worker has no log.";
  return new ApiError("keep_failed", message);
}

/** Why a job is stopped whose edge needs it no more. */
export const CANCELLED = {
  code: "worker_lost",
  message: "The request was cancelled.",
} as const;
