import { z } from "zod";

/** Limits that refuse requests; with `.owner`, those of all keys of the owner together. */
const LIMIT_REASONS = [
  ...["requests_per_minute", "tokens_per_minute"] as const,
  ...["tokens_per_day", "concurrency"] as const,
  ...["images_per_day", "characters_per_day"] as const,
  ...["audio_seconds_per_day", "video_seconds_per_day", "video_jobs"] as const,
];

/**
 * Why requests are refused or fail, in the order of lists and columns. Edges count each
 * per key, hour and model (`limiter_state.ts`). `request_bodies`: too many bodies of
 * the key were refused, or too large. `cut`: an error ended a stream that had started.
 */
export const FAILURE_REASONS = [
  ...LIMIT_REASONS,
  ...LIMIT_REASONS.map((limit) => `${limit}.owner` as const),
  ...["model_server_limit", "request_bodies", "unknown_model"] as const,
  ...["model_forbidden", "endpoint_forbidden"] as const,
  ...["key_disabled", "key_expired", "invalid_request"] as const,
  ...["server", "cut"] as const,
];
export type FailureReason = typeof FAILURE_REASONS[number];

/** An entry of `failed:{owner}:<key id>` as JSON, without any content of the request. */
export const failedRequestSchema = z.object({
  timeMs: z.number(),
  /** As it was sent: 200 for a stream that had started. */
  status: z.number(),
  /** A {@link FailureReason}, or one of a later version. */
  reason: z.string(),
  code: z.string().nullable(),
  param: z.string().nullable(),
  /** As the client named it, clipped; null if the body was not read. */
  model: z.string().nullable(),
  requestId: z.string(),
});
export type FailedRequest = z.infer<typeof failedRequestSchema>;
