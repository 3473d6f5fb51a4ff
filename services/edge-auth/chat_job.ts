/** What a run is given, and what becomes of it. */
import type { CancelReason } from "@gateway/shared/bus/control";
import type { RejectReason } from "@gateway/shared/bus/frame_payload";
import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";
import type { ApiError } from "@gateway/shared/openai/error";

/** A request that is to be run. */
export interface ChatJob {
  requestId: string;
  request: ChatRequest;
  /** W3C trace context. */
  traceparent?: string;
}

/** How a run ended, for the settlement of limits, the log and the metrics. */
export interface RunOutcome {
  kind: "complete" | "failed" | "cancelled";
  /** What the backend counted; null when it did not get that far. */
  usage: Usage | null;
  /** Completion tokens known to have been produced. */
  completionTokens: number;
  /** The worker had the last word; else it may have made more than is known. */
  isHeard: boolean;
  error: ApiError | null;
  workerId: string | null;
  /** Job messages sent. */
  offers: number;
  /** From the start of the run to a worker's acceptance; null when none accepted. */
  dispatchMs: number | null;
  /** From the start of the run to the first bytes of the answer. */
  firstByteMs: number | null;
  /** From the start of the run to its end. */
  durationMs: number;
  /** Attempts that were lost and made again elsewhere. */
  repeats: number;
  /** Why workers did not take it. */
  rejects: readonly RejectReason[];
  /** How often frames were asked for again. */
  naks: number;
  /** Why it was stopped before its end, or null. */
  cancelReason: CancelReason | null;
}
