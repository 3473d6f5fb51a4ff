/**
 * What goes into a run, and what its caller gets: the answer as it arrives, and how it
 * ended.
 */
import type { RunningRequest } from "@gateway/shared/bus/running";
import type { CancelReason } from "@gateway/shared/bus/stream/control";
import type { RejectReason } from "@gateway/shared/bus/stream/payloads";
import type { ModelKind } from "@gateway/shared/models/kinds";
import type { Usage } from "@gateway/shared/openai/completion";
import type { ApiError } from "@gateway/shared/openai/error";
import type { QueueSettings } from "./queue/share.ts";
import type { Upload, WholeBody } from "./request_body.ts";

/** A request that was admitted and is to be run by a worker. */
export interface RunJob {
  /** 32 hexadecimal digits, unique; names the request on the bus. */
  readonly requestId: string;
  /** The key of the request; empty for one of the edge itself. */
  readonly keyId: string;
  readonly kind: ModelKind;
  /**
   * Whose request it is: a worker shares its memory among accounts, and model servers
   * may keep them apart. Absent for a request of the edge itself.
   */
  readonly account?: string | undefined;
  /**
   * Tokens that it asks for, as estimated: its part of its account's share while it
   * waits. Absent: it counts as one.
   */
  readonly tokens?: number | undefined;
  /** How its account and key share in a queue. Absent: like all others. */
  readonly queue?: QueueSettings | undefined;
  /** Its client lets it wait behind the other requests of its account. */
  readonly isBatch?: boolean | undefined;
  /** The conversation that it belongs to, for workers that keep it at one server. */
  readonly session?: string | undefined;
  /**
   * The model whose workers may run it. For an upload this may be any model of its
   * kind: all workers of a kind run all its models.
   */
  readonly model: string;
  readonly body: WholeBody | Upload;
  /**
   * When its client wants it to end at the latest, on the clock of the edge; the edge's
   * own bound holds beside it.
   */
  readonly endsByMs?: number | undefined;
  /** Is told from time to time how many tokens its answers have. */
  readonly onTokens?: ((tokens: number) => void) | undefined;
  /** The key to its answer, which the worker also keeps. Absent: it is not kept. */
  readonly keepKey?: Uint8Array | undefined;
  /** The W3C trace context of the work, if it is traced. */
  readonly traceparent?: string | undefined;
}

/** Receives the answer of a run. All calls come from the event loop, never nested. */
export interface AnswerSink {
  /** Part of the answer was sent to the client, so the run cannot be repeated. */
  readonly hasStarted: boolean;
  /**
   * The next bytes of the answer: lines, cut anywhere. A view, so copy what you keep.
   */
  onPayload(payload: Uint8Array, sequence: number): void;
  /** The answer is complete. */
  onEnd(): void;
  /** The run has failed. Nothing follows. */
  onError(error: ApiError): void;
  /** The client has disconnected, so the answer is not needed. */
  onAbandoned(): void;
  /**
   * Another worker starts anew: discard what was received. Only while `hasStarted` is
   * false.
   */
  onRestart(): void;
  /**
   * Called at every tick, for keep-alives and to detect clients that stopped reading.
   */
  onTick(nowMs: number): void;
  /**
   * For how long its client has taken nothing of an answer that gives way to requests
   * that wait for a worker, in ms; 0: it keeps up. Absent: it gives way to none.
   */
  lateMs?(nowMs: number): number;
}

/** The part of a run that the receiver of its answer may use. */
export interface StartedRun {
  /** The client's socket took everything up to this frame: more may be sent. */
  delivered(sequence: number): void;
  /**
   * Stops the run in any state. An `error` is sent to the client, which must still be
   * connected.
   */
  cancel(reason: CancelReason, error?: ApiError | null): void;
}

/** How far a run has come. */
export interface RunProgress {
  /** `waiting` for a worker; `running` until a part of its answer was sent. */
  readonly state: RunningRequest["state"];
  /** How long ago it was started. */
  readonly ageMs: number;
  /** What it has made so far, in tokens or the unit of its kind. */
  readonly tokens: number;
}

/** What the end of a run adds to its record. */
export type RunEnd = Partial<
  Pick<
    RunOutcome,
    "usage" | "completionTokens" | "backend" | "error" | "isFinal"
  >
>;

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
  /** The model server that was asked last; absent: none, or by an older worker. */
  backend: string | undefined = undefined;
  /** The worker that ran it or was offered it last. */
  workerId: string | null = null;
  /** How many workers were offered it. */
  offers = 0;
  /**
   * How long it took from the start of the run until a worker accepted it; null if none
   * did.
   */
  dispatchMs: number | null = null;
  /**
   * How long it took from the start of the run to the first bytes of its answer, or
   * null.
   */
  firstByteMs: number | null = null;
  durationMs = 0;
  /** Offers that were lost and repeated on another worker. */
  repeats = 0;
  rejects: RejectReason[] = [];
  /** Requests to a worker to send frames again. */
  naks = 0;
  cancelReason: CancelReason | null = null;
}

/** Completes the record of a run with what is known of its end. */
export function closeOutcome(
  outcome: RunOutcome,
  kind: RunOutcome["kind"],
  end: RunEnd,
): void {
  Object.assign(outcome, end);
  // A client that was sent an error did not cancel the request.
  const isFailed = kind === "cancelled" && outcome.error !== null;
  outcome.kind = isFailed ? "failed" : kind;
}
