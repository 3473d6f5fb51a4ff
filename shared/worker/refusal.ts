/** Why a worker does not run a job now. */
import type { JobMessage } from "../bus/job.ts";
import type { RejectPayload } from "../bus/stream/payloads.ts";

/** What an edge hears of a refusal, besides the worker's id. */
export type Refusal = Omit<RejectPayload, "worker">;

/** The refusal of a job in a form that this worker does not read. */
export const UNSUPPORTED: Refusal = {
  reason: "unsupported_version",
  retryAfterMs: null,
};

/** What decides whether a worker takes a job. */
export interface RefusingWorker {
  /** The worker was stalled, and jobs may have piled up meanwhile. */
  readonly isWaking: boolean;
  readonly isDraining: boolean;
  readonly inFlight: number;
  readonly slots: number;
  readonly runners: {
    has(model: string): boolean;
    /** How long the servers of a model stay at their limits; 0: they are not. */
    saturatedMs?(model: string): number;
  };
}

/** A full worker asks edges to send nothing for this long, or until its next beat. */
const FULL_RETRY_MS = 100;

/**
 * Why this job cannot run here now; null: it can. The model of a job that comes in
 * pieces is not known yet: such a job waits here if its servers are at limits.
 */
export function refusalOf(
  { request }: Pick<JobMessage, "request">,
  { isWaking, isDraining, inFlight, slots, runners }: RefusingWorker,
): Refusal | null {
  if (isWaking) return { reason: "stale", retryAfterMs: null };
  if (isDraining) return { reason: "draining", retryAfterMs: null };
  if (inFlight >= slots) return { reason: "full", retryAfterMs: FULL_RETRY_MS };
  if (request === undefined) return null;
  if (!runners.has(request.model)) {
    return { reason: "unknown_model", retryAfterMs: null };
  }
  const waitMs = runners.saturatedMs?.(request.model) ?? 0;
  return waitMs > 0 ? { reason: "saturated", retryAfterMs: waitMs } : null;
}
