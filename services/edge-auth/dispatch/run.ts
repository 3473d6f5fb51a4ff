/**
 * One request from its admission to its end: waiting for a slot, offered to a worker,
 * running there. A lost attempt is repeated once if the client has not received a byte.
 */
import type { CancelReason, ControlRecord } from "@gateway/shared/bus/control";
import {
  type Failure,
  type Frame,
  FrameType,
  type RejectPayload,
} from "@gateway/shared/bus/frame";
import {
  answerStrayFrame,
  type StreamEvent,
} from "@gateway/shared/bus/stream_receiver";
import { publicRequestId } from "@gateway/shared/process/ids";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { familyOf } from "@gateway/shared/models/kinds";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { Attempt } from "./attempt.ts";
import type { Dispatcher } from "./dispatcher.ts";
import { type AnswerSink, type RunJob, RunOutcome } from "./outcome.ts";

/**
 * A cancelled run waits this long for the final frame of its worker, which says what it
 * cost.
 */
const FINAL_FRAME_MS = 1_000;
/** A worker that did not answer gets no jobs for this long, or until its next beat. */
const UNRESPONSIVE_MS = 1_000;
/**
 * A worker that rejected a job gets none for this long, unless it sent a
 * `retryAfterMs`.
 */
const REJECTED_MS = 100;
/** The `Retry-After` for clients: workers become free, or are started, all the time. */
const RETRY_MS = 1_000;

export class Run {
  readonly model: string;
  /** When it last started looking for a worker: its place in the queue. */
  sinceMs: number;
  readonly #sink: AnswerSink;
  readonly #onOver: (outcome: RunOutcome) => void;
  readonly #startedAtMs: number;
  #state: "active" | "cancelling" | "over" = "active";
  #attempt: Attempt | null = null;
  /** Workers that were offered the job since it last waited. */
  readonly #tried = new Set<string>();
  #hasAskedGroup = false;
  /** The request as JSON, written once it is offered. */
  #requestText: string | null = null;
  #finalFrameByMs = 0;
  readonly #outcome = new RunOutcome();

  /**
   * The run looks for a worker when `start` is called. `onOver` is called once, at its
   * end.
   */
  constructor(
    readonly dispatcher: Dispatcher,
    readonly job: RunJob,
    sink: AnswerSink,
    onOver: (outcome: RunOutcome) => void,
  ) {
    this.model = job.request.model;
    this.#sink = sink;
    this.#onOver = onOver;
    this.sinceMs = this.#startedAtMs = dispatcher.options.now();
  }

  /** The worker that runs it or was offered it; null while any may accept it. */
  get workerId(): string | null {
    return this.#attempt?.workerId ?? null;
  }

  control(workerId: string, record: ControlRecord): void {
    if (record.type === "nak") this.#outcome.naks += 1;
    this.dispatcher.control(familyOf(this.job.kind), workerId, record);
  }

  /** Looks for a worker, after the requests that already wait for the model. */
  start(): void {
    const { queue, workers } = this.dispatcher;
    const { model } = this;
    if (queue.hasWaiting(model) && workers.hasWorkerFor(model)) this.#wait();
    else this.#search();
  }

  /**
   * Sends the job to a worker that has not been tried yet. False if none has a free
   * slot.
   */
  offer(): boolean {
    const { options: { bus }, workers } = this.dispatcher;
    if (!bus.isConnected) return false;
    const { model, job } = this;
    const workerId = workers.pick(model, this.#tried);
    // If all known workers are full, wait for one. If none is known, offer the job to
    // the queue group, but only once, since the same worker may reject it every time.
    const mayAskGroup = !this.#hasAskedGroup && !workers.hasWorkerFor(model);
    if (workerId === null && !mayAskGroup) return false;
    this.#requestText ??= JSON.stringify(job.request);
    const attempt = Attempt.send(this, this.#requestText, {
      attempt: this.#outcome.offers + 1,
      deadlineMs: this.#leftMs(),
      workerId,
    });
    if (attempt === null) return false;
    this.#attempt = attempt;
    this.#outcome.offers += 1;
    if (workerId === null) this.#hasAskedGroup = true;
    return true;
  }

  /**
   * Handles a frame of this request. Returns false if it belongs to none of its
   * attempts.
   */
  onFrame(frame: Frame): boolean {
    const attempt = this.#attempt;
    if (attempt === null) return false;
    if (this.#state === "cancelling") return this.#onFinalFrame(attempt, frame);
    const event = attempt.onFrame(frame, this.dispatcher.steadyNow());
    if (event.type === "stray") return false;
    if (attempt.isAccepted) this.#outcome.dispatchMs ??= this.#sinceStartMs();
    // An unnumbered error: the worker may have concluded that this edge is dead.
    if (frame.type === FrameType.ERR && frame.sequence === 0) {
      this.#loseAttempt("The worker that ran the request abandoned it.");
    } else this.#onEvent(attempt, event);
    return true;
  }

  onNoResponders(number: number): void {
    const attempt = this.#attempt;
    if (attempt?.attempt !== number || this.#state !== "active") return;
    if (attempt.isAccepted) return;
    const { workerId } = attempt;
    attempt.cancel("not_accepted");
    if (workerId === null) return this.fail(noWorker());
    this.#leave();
    this.dispatcher.onWorkerMissing(workerId);
    this.#search();
  }

  onWorkerLost(): void {
    this.#loseAttempt("The worker that ran the request was lost.");
  }

  onBusRestored(): void {
    this.#attempt?.onReconnect(this.dispatcher.steadyNow());
  }

  /** The client's socket took everything up to this frame: the worker may send more. */
  delivered(sequence: number): void {
    this.#attempt?.delivered(sequence);
  }

  onTick(nowMs: number): void {
    if (this.#state === "cancelling") {
      if (nowMs >= this.#finalFrameByMs) this.#finish("cancelled");
      return;
    }
    if (this.#leftMs() <= 0) {
      const message = "The request took too long.";
      const error = new ApiError("deadline_exceeded", message);
      return this.cancel("deadline", error);
    }
    const attempt = this.#attempt;
    if (attempt !== null) {
      this.#onEvent(attempt, attempt.onTick(this.dispatcher.steadyNow()));
    } else if (this.#hasWaitedTooLong()) this.#failBusy();
    if (this.#state === "active") this.#sink.onTick(nowMs);
  }

  /**
   * Stops the run in any state. An `error` is sent to the client, which must still be
   * connected.
   */
  cancel(reason: CancelReason, error: ApiError | null = null): void {
    if (this.#state !== "active") return;
    this.#state = "cancelling";
    this.#finalFrameByMs = this.dispatcher.options.now() + FINAL_FRAME_MS;
    Object.assign(this.#outcome, { cancelReason: reason, error });
    this.#attempt?.cancel(reason);
    if (error !== null) this.#sink.onError(error);
    else this.#sink.onAbandoned();
    if (this.#attempt === null) this.#finish("cancelled");
  }

  /** Ends the run with an error that does not come from a worker. */
  fail(error: ApiError): void {
    if (this.#state === "over") return;
    if (this.#state === "cancelling") return this.#finish("cancelled");
    this.#sink.onError(error);
    this.#finish("failed", { error });
  }

  #search(): void {
    // After so many rejections the known beats are outdated: wait for newer ones.
    const isLast = this.#tried.size >= DISPATCH_LIMITS.workersTriedMax;
    if (isLast || !this.offer()) this.#wait();
  }

  #wait(): void {
    this.#tried.clear();
    const isQueued = !this.#hasWaitedTooLong() &&
      this.dispatcher.queue.push(this);
    if (!isQueued) this.#failBusy();
  }

  #hasWaitedTooLong(): boolean {
    return this.dispatcher.options.now() - this.sinceMs >=
      DISPATCH_LIMITS.queueWaitMs;
  }

  #failBusy(): void {
    const { isConnected } = this.dispatcher.options.bus;
    this.fail(isConnected ? overloaded() : busUnavailable());
  }

  #onEvent(attempt: Attempt, event: StreamEvent): void {
    switch (event.type) {
      case "data":
        this.#outcome.firstByteMs ??= this.#sinceStartMs();
        this.#outcome.answerBytes += event.payload.length;
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
          ? this.#onUnanswered(attempt)
          : this.#loseAttempt("The worker of the request stopped responding.");
      case "violated":
        this.dispatcher.options.log.error("stream_violation", {
          requestId: publicRequestId(this.job.requestId),
          workerId: this.workerId,
          violation: event.violation,
        });
        return this.#loseAttempt("The worker violated the stream protocol.");
    }
  }

  #onRejected({ worker, reason, retryAfterMs }: RejectPayload): void {
    this.#outcome.rejects.push(reason);
    this.#leave();
    this.#tried.add(worker);
    this.dispatcher.workers.pause(worker, retryAfterMs ?? REJECTED_MS);
    this.#search();
  }

  #onFailed({ error, retryable, usage }: Failure): void {
    if (retryable && this.#mayRepeat()) return this.#repeat(error.message);
    this.#sink.onError(error);
    this.#finish("failed", { usage, error, isFinal: true });
  }

  /**
   * The worker did not answer the offer. It may have started the job anyway, or crashed
   * on it.
   */
  #onUnanswered({ mayBeUndelivered }: Attempt): void {
    const { workerId } = this;
    this.#leave();
    if (workerId !== null) {
      this.dispatcher.workers.pause(workerId, UNRESPONSIVE_MS);
    }
    // If the offer was lost, that says nothing about the worker.
    if (mayBeUndelivered) return this.#wait();
    if (!this.#mayRepeat()) return this.#failBusy();
    this.#noteRepeat(workerId, "The worker did not answer the offer.");
    this.#search();
  }

  #loseAttempt(message: string): void {
    if (this.#attempt === null) return;
    if (this.#state === "cancelling") return this.#finish("cancelled");
    this.#attempt.cancel("worker_lost");
    if (this.#mayRepeat()) this.#repeat(message);
    else this.fail(new ApiError("worker_lost", message));
  }

  #mayRepeat(): boolean {
    // What a client has uploaded is gone.
    const isUploading = this.job.upload !== undefined &&
      this.#outcome.dispatchMs !== null;
    return !this.#sink.hasStarted && !isUploading &&
      this.#outcome.repeats + 1 < DISPATCH_LIMITS.attemptsMax;
  }

  #repeat(message: string): void {
    this.#noteRepeat(this.workerId, message);
    this.#sink.onRestart();
    this.sinceMs = this.dispatcher.options.now();
    this.#tried.clear();
    this.#leave();
    this.#search();
  }

  #noteRepeat(workerId: string | null, message: string): void {
    this.#outcome.repeats += 1;
    const requestId = publicRequestId(this.job.requestId);
    const line = { requestId, workerId, message };
    this.dispatcher.options.log.warn("attempt_repeated", line);
  }

  /** Gives up the attempt. The next one is made by another worker. */
  #leave(): void {
    const { workerId } = this;
    if (workerId !== null) this.#tried.add(workerId);
    this.#attempt?.leave();
    this.#attempt = null;
  }

  #onFinalFrame(attempt: Attempt, frame: Frame): boolean {
    if (frame.attempt !== attempt.attempt) return false;
    if (frame.type === FrameType.REJECT) {
      // It never ran, so there is nothing to count.
      this.#finish("cancelled");
      return true;
    }
    this.#outcome.dispatchMs ??= this.#sinceStartMs();
    // Not the final frame: the cancel has not arrived, or was sent before the worker
    // was known.
    if (frame.type !== FrameType.ERR && frame.type !== FrameType.END) {
      return false;
    }
    // A numbered one is repeated until it is acknowledged.
    if (frame.sequence > 0) {
      answerStrayFrame(this.job.requestId, frame, this.control.bind(this));
    }
    const completionTokens = Math.max(frame.tokens, attempt.tokens);
    this.#finish("cancelled", { completionTokens, isFinal: true });
    return true;
  }

  #finish(kind: RunOutcome["kind"], end: Partial<RunOutcome> = {}): void {
    const outcome = this.#outcome;
    outcome.workerId = this.workerId;
    outcome.completionTokens = end.usage?.completion_tokens ??
      this.#attempt?.tokens ?? 0;
    outcome.durationMs = this.#sinceStartMs();
    this.#leave();
    this.#state = "over";
    Object.assign(outcome, end);
    // A client that was sent an error did not cancel the request.
    const isFailed = kind === "cancelled" && outcome.error !== null;
    outcome.kind = isFailed ? "failed" : kind;
    this.#onOver(outcome);
  }

  #sinceStartMs(): number {
    return this.dispatcher.options.now() - this.#startedAtMs;
  }

  #leftMs(): number {
    return this.dispatcher.options.requestTimeoutMs - this.#sinceStartMs();
  }
}

const overloaded = tryAgain("overloaded", "All workers are busy.");
const noWorker = tryAgain("no_worker", "No worker is available at the moment.");
export const busUnavailable = tryAgain(
  "bus_unavailable",
  "The service is temporarily unavailable.",
);

function tryAgain(code: ErrorCode, what: string): () => ApiError {
  const message = `${what} Please try again shortly.`;
  return () => new ApiError(code, message, { retryAfterMs: RETRY_MS });
}
