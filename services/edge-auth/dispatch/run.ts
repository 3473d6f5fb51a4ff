/**
 * One chat request from its admission to its end: waiting for a slot, offered to a
 * worker, running there, perhaps repeated once on another.
 *
 * A lost attempt is repeated once if the client has not received a byte. A cancelled
 * run is kept for a moment: the final frame of its worker says how many tokens it had
 * generated.
 */
import type { CancelReason } from "@gateway/shared/bus/control";
import {
  type Failure,
  type Frame,
  FrameType,
  type RejectPayload,
  type RejectReason,
} from "@gateway/shared/bus/frame";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import {
  answerStrayFrame,
  type SendControl,
  type StreamEvent,
  StreamReceiver,
} from "@gateway/shared/bus/stream_receiver";
import {
  chatAnySubject,
  chatJobSubject,
  edgeStreamSubject,
} from "@gateway/shared/bus/subjects";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import type { Usage } from "@gateway/shared/openai/completion";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { type ChatJob, encodeOffer, sendBody } from "./job.ts";
import type { WaitQueue } from "./wait_queue.ts";
import type { WorkerTable } from "./workers.ts";

/** Receives an answer as it arrives. */
export interface AnswerSink {
  /** Part of the answer was sent to the client, so the attempt cannot be repeated. */
  readonly hasStarted: boolean;
  /** The next bytes of the answer: lines, cut anywhere. A view, so copy what you keep. */
  onPayload(payload: Uint8Array, sequence: number): void;
  /** The answer is complete. */
  onEnd(): void;
  /** The answer ends with this error. */
  onError(error: ApiError): void;
  /** The client has disconnected, so the answer is not needed. */
  onAbandoned(): void;
  /** Another attempt starts: discard what was received. Only while `hasStarted` is false. */
  onRestart(): void;
  /** Called at every tick, for keep-alives and to detect clients that stopped reading. */
  onTick(nowMs: number): void;
}

/** How a run ended, for the settlement of limits, the log and the metrics. */
export interface RunOutcome {
  kind: "complete" | "failed" | "cancelled";
  /** The backend's count; null if it sent none. */
  usage: Usage | null;
  /** Completion tokens known to have been generated. */
  completionTokens: number;
  /** The worker reported the end, so its counts are final; otherwise it may have generated more. */
  isFinal: boolean;
  error: ApiError | null;
  workerId: string | null;
  /** Job messages sent. */
  offers: number;
  /** From the start of the run until a worker accepted it; null if none did. */
  dispatchMs: number | null;
  /** From the start of the run to the first bytes of the answer. */
  firstByteMs: number | null;
  /** From the start of the run to its end. */
  durationMs: number;
  /** Attempts that were lost and repeated on another worker. */
  repeats: number;
  /** Why workers rejected it. */
  rejects: readonly RejectReason[];
  /** How often frames were requested again. */
  naks: number;
  /** Why it was stopped before its end, or null. */
  cancelReason: CancelReason | null;
}

/** What all runs of an edge share. */
export interface RunContext {
  bus: Pick<
    BusLink,
    "isConnected" | "flowingSinceMs" | "receivedAtMs" | "request"
  >;
  edgeId: string;
  now: MonotonicNow;
  /** Excludes the time in which this process was stalled. */
  steadyNow: MonotonicNow;
  log: Log;
  requestTimeoutMs: number;
  workers: WorkerTable;
  queue: WaitQueue<ChatRun>;
  /** False if the bus cannot send it now. */
  publish: (subject: string, payload: Uint8Array, reply: string) => boolean;
  control: SendControl;
  /** A slot may have become free for a waiting run. */
  onSlotFreed: () => void;
  onWorkerMissing: (workerId: string) => void;
}

/** A worker has this long to report how much a cancelled request cost. */
const FINAL_FRAME_MS = 1_000;
/** A worker that did not answer gets no jobs for this long, or until its next beat. */
const UNRESPONSIVE_MS = 1_000;
/** The same after a rejection without `retryAfterMs`. */
const REFUSED_MS = 100;
/** The `Retry-After` for clients: workers become free, or are started, all the time. */
const RETRY_MS = 1_000;

export class ChatRun {
  readonly job: ChatJob;
  readonly #d: RunContext;
  readonly #sink: AnswerSink;
  readonly #onOver: (outcome: RunOutcome) => void;
  readonly #startedAtMs: number;
  #state: "waiting" | "offered" | "running" | "cancelling" | "over" = "waiting";
  /** When it last started looking for a worker. */
  #searchingSinceMs: number;
  /** Workers that were offered the job since it last waited. */
  readonly #tried = new Set<string>();
  #attempt = 0;
  #lostAttempts = 0;
  #receiver: StreamReceiver | null = null;
  #offeredAtMs = 0;
  /** The job was sent to the queue group of all workers. */
  #hasAskedGroup = false;
  /** A large request, encoded: it is sent when a worker has accepted the job. */
  #body: Uint8Array | null = null;
  /** It holds a slot of the worker, or was offered one. */
  #hasSlot = false;
  #finalFrameByMs = 0;
  #cancelled: { reason: CancelReason; error: ApiError | null } | null = null;
  readonly #rejects: RejectReason[] = [];
  /** Counts those of earlier attempts. */
  #naks = 0;
  #dispatchMs: number | null = null;
  #firstByteMs: number | null = null;

  /** The run looks for a worker when `start` is called. `onOver` is called once, at its end. */
  constructor(context: RunContext, run: {
    job: ChatJob;
    sink: AnswerSink;
    onOver: (outcome: RunOutcome) => void;
  }) {
    this.#d = context;
    this.job = run.job;
    this.#sink = run.sink;
    this.#onOver = run.onOver;
    this.#startedAtMs = context.now();
    this.#searchingSinceMs = this.#startedAtMs;
  }

  /** The worker that runs it or was offered it; null while any may accept it. */
  get workerId(): string | null {
    return this.#receiver?.workerId ?? null;
  }

  /** Looks for a worker, after the requests that already wait for the model. */
  start(): void {
    const { queue, workers } = this.#d;
    const { model } = this.job.request;
    if (queue.hasWaiting(model) && workers.hasWorkerFor(model)) this.#wait();
    else this.#search();
  }

  /** Sends the job to a worker that has not been tried yet. False if none has a free slot. */
  offer(): boolean {
    const { bus, workers, edgeId, publish, now, steadyNow } = this.#d;
    if (!bus.isConnected) return false;
    const { requestId, request: { model } } = this.job;
    const workerId = workers.pick(model, this.#tried);
    // If all known workers are full, wait for one. If none is known, offer the job to
    // the queue group, but only once, since the same worker may reject it every time.
    const mayAskGroup = !this.#hasAskedGroup && !workers.hasWorkerFor(model);
    if (workerId === null && !mayAskGroup) return false;
    const attempt = this.#attempt + 1;
    const { message, body } = encodeOffer(this.job, {
      attempt,
      deadlineMs: this.#deadlineAtMs - now(),
      large: this.#body,
    });
    this.#body = body;
    const subject = workerId === null
      ? chatAnySubject
      : chatJobSubject(workerId);
    const reply = edgeStreamSubject(edgeId, requestId, attempt);
    if (!publish(subject, message, reply)) return false;
    this.#state = "offered";
    this.#attempt = attempt;
    this.#naks += this.#receiver?.naks ?? 0;
    this.#offeredAtMs = now();
    this.#hasSlot = workerId !== null;
    if (workerId === null) this.#hasAskedGroup = true;
    else {
      workers.onSent(workerId);
      this.#tried.add(workerId);
    }
    this.#receiver = new StreamReceiver({
      ...{ requestId, attempt, workerId, nowMs: steadyNow() },
      control: this.#d.control,
    });
    return true;
  }

  /** A frame of this request. False when it belongs to none of its attempts. */
  onFrame(frame: Frame): boolean {
    if (this.#state === "cancelling") return this.#onFinalFrame(frame);
    const receiver = this.#receiver;
    if (receiver === null) return false;
    const event = receiver.onFrame(frame, this.#d.steadyNow());
    if (event.type === "stray") return false;
    if (receiver.isAccepted && this.#state === "offered") this.#onAccepted();
    // An unnumbered error: the worker may have concluded that this edge is dead.
    if (frame.type === FrameType.ERR && frame.sequence === 0) {
      this.#loseAttempt("The worker that ran the request abandoned it.");
    } else this.#onEvent(event);
    return true;
  }

  /** The bus reports that the job of this attempt had no subscriber. */
  onNoResponders(attempt: number): void {
    if (this.#state !== "offered" || attempt !== this.#attempt) return;
    const { workerId } = this;
    this.#receiver?.cancel("not_accepted");
    if (workerId === null) return this.fail(noWorker());
    this.#leave();
    this.#state = "waiting";
    this.#d.onWorkerMissing(workerId);
    this.#searchElsewhere();
  }

  /** The worker is known to be lost. */
  onWorkerLost(): void {
    if (this.#state === "cancelling") this.#finish("cancelled");
    else this.#loseAttempt("The worker that ran the request was lost.");
  }

  /** The bus works again after an outage. */
  onBusRestored(): void {
    this.#receiver?.onReconnect(this.#d.steadyNow());
  }

  /** The bus has been down for too long. */
  onBusGivenUp(): void {
    if (this.#state === "cancelling") this.#finish("cancelled");
    else this.fail(busUnavailable());
  }

  /** The client's socket took everything up to this frame: the worker may send more. */
  delivered(sequence: number): void {
    if (this.#receiver?.isOver === false) this.#receiver.delivered(sequence);
  }

  onTick(nowMs: number): void {
    if (this.#state === "cancelling") {
      if (nowMs >= this.#finalFrameByMs) this.#finish("cancelled");
      return;
    }
    if (nowMs >= this.#deadlineAtMs) {
      const error = new ApiError(
        "deadline_exceeded",
        "The request took too long.",
      );
      return this.cancel("deadline", error);
    }
    // A worker does not have to answer while the bus delivers nothing at all.
    const { bus } = this.#d;
    const hasTime = this.#state === "offered" && bus.isConnected &&
      bus.receivedAtMs < this.#offeredAtMs;
    if (!hasTime && this.#receiver !== null) {
      this.#onEvent(this.#receiver.onTick(this.#d.steadyNow()));
    }
    if (this.#state !== "over") this.#sink.onTick(nowMs);
  }

  /**
   * Stops the run in any state. An `error` is sent to the client, which must still be
   * connected. Does nothing when the run is over.
   */
  cancel(reason: CancelReason, error: ApiError | null = null): void {
    if (this.#state === "over" || this.#state === "cancelling") return;
    const isWaiting = this.#state === "waiting";
    this.#cancelled = { reason, error };
    this.#state = "cancelling";
    this.#finalFrameByMs = this.#d.now() + FINAL_FRAME_MS;
    this.#receiver?.cancel(reason);
    if (error !== null) this.#sink.onError(error);
    else this.#sink.onAbandoned();
    if (isWaiting) this.#finish("cancelled");
  }

  /** Ends it with an error that does not come from a worker. */
  fail(error: ApiError): void {
    if (this.#state === "over") return;
    this.#sink.onError(error);
    this.#finish("failed", { error });
  }

  get #deadlineAtMs(): number {
    return this.#startedAtMs + this.#d.requestTimeoutMs;
  }

  #search(): void {
    this.#state = "waiting";
    if (!this.offer()) this.#wait();
  }

  #wait(): void {
    const { queue, now } = this.#d;
    this.#state = "waiting";
    this.#tried.clear();
    const { model } = this.job.request;
    const sinceMs = this.#searchingSinceMs;
    const isLate = now() - sinceMs >= DISPATCH_LIMITS.queueWaitMs;
    if (isLate || !queue.push(this, model, sinceMs)) this.fail(overloaded());
  }

  #searchElsewhere(): void {
    // After so many rejections the known beats are outdated: wait for newer ones.
    if (this.#tried.size >= DISPATCH_LIMITS.workersTriedMax) this.#wait();
    else this.#search();
  }

  #onAccepted(): void {
    const { workerId } = this;
    if (workerId === null) return;
    this.#state = "running";
    this.#dispatchMs ??= this.#sinceStartMs();
    this.#hasSlot = true;
    this.#tried.add(workerId);
    if (this.#body !== null) void this.#sendBody(this.#body, workerId);
  }

  async #sendBody(body: Uint8Array, workerId: string): Promise<void> {
    const { requestId } = this.job;
    const attempt = this.#attempt;
    const isWanted = () =>
      this.#attempt === attempt && this.#state === "running";
    try {
      const { bus } = this.#d;
      await sendBody(bus, body, { requestId, attempt, workerId, isWanted });
    } catch (error) {
      const request = publicRequestId(requestId);
      const fields = { requestId: request, workerId, error };
      this.#d.log.warn("body_upload_failed", fields);
      if (this.#attempt === attempt) this.onWorkerLost();
    }
  }

  #onEvent(event: StreamEvent): void {
    switch (event.type) {
      case "data":
        this.#firstByteMs ??= this.#sinceStartMs();
        return this.#sink.onPayload(event.payload, event.sequence);
      case "rejected":
        return this.#onRejected(event.reject);
      case "ended":
        this.#sink.onEnd();
        return this.#finish("complete", { usage: event.usage, isFinal: true });
      case "failed":
        return this.#onFailed(event.failure);
      case "lost":
        return event.reason === "not_accepted"
          ? this.#onUnanswered()
          : this.#loseAttempt("The worker of the request stopped responding.");
      case "violated":
        this.#d.log.error("stream_violation", {
          requestId: publicRequestId(this.job.requestId),
          workerId: this.workerId,
          violation: event.violation,
        });
        return this.#loseAttempt("The worker violated the stream protocol.");
    }
  }

  #onRejected({ worker, reason, retryAfterMs }: RejectPayload): void {
    const { workers } = this.#d;
    this.#tried.add(worker);
    this.#rejects.push(reason);
    this.#leave();
    workers.pause(worker, retryAfterMs ?? REFUSED_MS);
    this.#searchElsewhere();
  }

  #onFailed({ error, retryable, usage }: Failure): void {
    if (retryable && this.#mayRepeat()) return this.#repeat(error.message);
    this.#sink.onError(error);
    this.#finish("failed", { usage, error, isFinal: true });
  }

  /** The worker did not answer the offer. It may have started the job anyway, or crashed on it. */
  #onUnanswered(): void {
    const { workerId } = this;
    const { bus, workers } = this.#d;
    this.#leave();
    if (workerId !== null) workers.pause(workerId, UNRESPONSIVE_MS);
    const { flowingSinceMs } = bus;
    // The bus may have lost the offer, which says nothing about the worker.
    const wasBusDown = flowingSinceMs === null ||
      flowingSinceMs > this.#offeredAtMs;
    if (wasBusDown) return this.#wait();
    if (!this.#mayRepeat()) return this.fail(overloaded());
    this.#noteRepeat("The worker did not answer the offer.");
    this.#searchElsewhere();
  }

  #loseAttempt(message: string): void {
    if (this.#state !== "running" && this.#state !== "offered") return;
    this.#receiver?.cancel("worker_lost");
    if (this.#mayRepeat()) this.#repeat(message);
    else this.fail(new ApiError("worker_lost", message));
  }

  #mayRepeat(): boolean {
    return !this.#sink.hasStarted &&
      this.#lostAttempts + 1 < DISPATCH_LIMITS.attemptsMax;
  }

  #repeat(cause: string): void {
    this.#noteRepeat(cause);
    this.#sink.onRestart();
    this.#searchingSinceMs = this.#d.now();
    this.#leave();
    this.#search();
  }

  #noteRepeat(cause: string): void {
    this.#lostAttempts += 1;
    this.#d.log.warn("attempt_repeated", {
      requestId: publicRequestId(this.job.requestId),
      workerId: this.workerId,
      cause,
    });
  }

  /** Frees the slot that the attempt held at its worker, or was offered. */
  #leave(): void {
    const { workerId } = this;
    if (!this.#hasSlot || workerId === null) return;
    this.#hasSlot = false;
    this.#d.workers.onEnded(workerId);
    this.#d.onSlotFreed();
  }

  /** Handles the final frame of a cancelled run, which reports its cost. */
  #onFinalFrame(frame: Frame): boolean {
    if (frame.attempt !== this.#attempt) return false;
    // It never ran, so there is nothing to count.
    if (frame.type === FrameType.REJECT) {
      this.#finish("cancelled");
      return true;
    }
    this.#dispatchMs ??= this.#sinceStartMs();
    // Not the end: the cancel has not reached the worker, or the worker was not known yet.
    if (frame.type !== FrameType.ERR && frame.type !== FrameType.END) {
      return false;
    }
    // A numbered one is repeated until it is acknowledged.
    if (frame.sequence > 0) {
      answerStrayFrame(this.job.requestId, frame, this.#d.control);
    }
    this.#finish("cancelled", { tokens: frame.tokens, isFinal: true });
    return true;
  }

  #finish(
    kind: RunOutcome["kind"],
    { usage = null, tokens = 0, isFinal = false, error = null }: {
      usage?: Usage | null;
      tokens?: number;
      isFinal?: boolean;
      error?: ApiError | null;
    } = {},
  ): void {
    this.#leave();
    this.#state = "over";
    const receiver = this.#receiver;
    const sentError = error ?? this.#cancelled?.error ?? null;
    this.#onOver({
      // A client that is still there and got an error did not cancel anything.
      kind: kind === "cancelled" && sentError !== null ? "failed" : kind,
      usage,
      completionTokens: usage?.completion_tokens ??
        Math.max(tokens, receiver?.tokens ?? 0),
      isFinal,
      error: sentError,
      workerId: this.workerId,
      offers: this.#attempt,
      dispatchMs: this.#dispatchMs,
      firstByteMs: this.#firstByteMs,
      durationMs: this.#sinceStartMs(),
      repeats: this.#lostAttempts,
      rejects: this.#rejects,
      naks: this.#naks + (receiver?.naks ?? 0),
      cancelReason: this.#cancelled?.reason ?? null,
    });
  }

  #sinceStartMs(): number {
    return this.#d.now() - this.#startedAtMs;
  }
}

/** No worker had a free slot in time. */
export const overloaded = (): ApiError =>
  tryAgain("overloaded", "All workers are busy.");

/** There is no worker. */
const noWorker = (): ApiError =>
  tryAgain("no_worker", "No worker is available at the moment.");

/** The bus is down, so no worker can be reached. */
export const busUnavailable = (): ApiError =>
  tryAgain("bus_unavailable", "The service is temporarily unavailable.");

function tryAgain(code: ErrorCode, what: string): ApiError {
  return new ApiError(code, `${what} Please try again shortly.`, {
    retryAfterMs: RETRY_MS,
  });
}
