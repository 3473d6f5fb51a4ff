/**
 * What reading a stream of any dialect has in common: its pace, deadlines and breaks.
 */
import { UpstreamError } from "@gateway/shared/upstream/http/errors";
import type { ServerResponse } from "@gateway/shared/upstream/model_server";

/**
 * An incomplete event of this many bytes or characters counts as memory that the answer
 * holds.
 */
export const LONG_EVENT_MIN = 64 * 1024;
/**
 * After the end of the answer only its usage and an end mark follow, which do not
 * justify a long wait.
 */
const AFTER_FINISH_MS = 5_000;
/** A stream that brings more in one read is a fast one, and does not pause. */
const PAUSE_READ_BYTES_MAX = 4_096;

/** How far a model has come with its answer. */
export interface StreamProgress {
  /** The model has begun to answer. */
  readonly hasBegun: boolean;
  /** The model has said that it has finished. */
  readonly isFinished: boolean;
}

/** Whether a busy worker may pause a stream that has brought this piece. */
export function mayPauseAfter(
  piece: Uint8Array,
  { hasBegun, isFinished }: StreamProgress,
): boolean {
  return hasBegun && !isFinished && piece.length <= PAUSE_READ_BYTES_MAX;
}

/** Allows the server the time until its next sign of life. */
export function armNext(
  { deadlines, server }: ServerResponse,
  { hasBegun, isFinished }: StreamProgress,
): void {
  const { between_tokens_ms: betweenMs, first_token_ms: firstMs } =
    server.config.deadlines;
  if (!hasBegun) return deadlines.arm("firstToken", firstMs);
  const mostMs = isFinished ? AFTER_FINISH_MS : Infinity;
  deadlines.arm("betweenTokens", Math.min(betweenMs, mostMs));
}

/** Whether an answer broke off or stalled, as opposed to being invalid. */
export function isCut(error: unknown): boolean {
  return error instanceof UpstreamError &&
    /^(truncated|timeout|deadline)$/.test(error.fault);
}
