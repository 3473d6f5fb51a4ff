/**
 * What goes into a run, and what its caller gets: the answer as it arrives, and how it
 * ended.
 */
import type { CancelReason } from "@gateway/shared/bus/control";
import type { RejectReason } from "@gateway/shared/bus/frame";
import type { JobRequest, UploadEnd } from "@gateway/shared/bus/job";
import type { ModelKind } from "@gateway/shared/models/kinds";
import type { Usage } from "@gateway/shared/openai/completion";
import type { ApiError } from "@gateway/shared/openai/error";

export interface RunJob {
  requestId: string;
  keyId: string;
  kind: ModelKind;
  request: JobRequest;
  /**
   * The files that come before the request; `request` then has only its model, which
   * may be a guess.
   */
  upload?: Upload | undefined;
  traceparent?: string | undefined;
}

/** Files that a client is sending, and the request that follows them. */
export interface Upload {
  /** The next bytes, at most a piece; null once the client has sent everything. */
  next(): Promise<Uint8Array | null>;
  /**
   * The request; null if its client left or its run ended, rejects if it is refused.
   * Whoever made the upload answers the client.
   */
  end(): Promise<UploadEnd | null>;
}

export interface AnswerSink {
  /** Part of the answer was sent to the client, so the attempt cannot be repeated. */
  readonly hasStarted: boolean;
  /**
   * The next bytes of the answer: lines, cut anywhere. A view, so copy what you keep.
   */
  onPayload(payload: Uint8Array, sequence: number): void;
  onEnd(): void;
  onError(error: ApiError): void;
  /** The client has disconnected, so the answer is not needed. */
  onAbandoned(): void;
  /**
   * Another attempt starts: discard what was received. Only while `hasStarted` is
   * false.
   */
  onRestart(): void;
  /**
   * Called at every tick, for keep-alives and to detect clients that stopped reading.
   */
  onTick(nowMs: number): void;
}

/** The record of a run, complete at its end: for settlement, log, metrics and span. */
export class RunOutcome {
  kind: "complete" | "failed" | "cancelled" = "complete";
  /** The backend's count; null if it sent none. */
  usage: Usage | null = null;
  /**
   * What is known to have been generated or started, in tokens or the unit of its kind:
   * the largest of what the backend has stated and what was received.
   */
  completionTokens = 0;
  /** Bytes of the answer that were received. */
  answerBytes = 0;
  /**
   * The worker reported the end, so its counts are final; otherwise it may have
   * generated more.
   */
  isFinal = false;
  error: ApiError | null = null;
  /** The worker that ran it or was offered it last. */
  workerId: string | null = null;
  offers = 0;
  /** From the start of the run until a worker accepted it; null if none did. */
  dispatchMs: number | null = null;
  firstByteMs: number | null = null;
  durationMs = 0;
  /** Attempts that were lost and repeated on another worker. */
  repeats = 0;
  rejects: RejectReason[] = [];
  naks = 0;
  cancelReason: CancelReason | null = null;
}
