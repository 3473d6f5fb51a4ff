/**
 * One chat request from its admission to its end: waiting for a slot, offered to a
 * worker, running there, perhaps once more elsewhere.
 *
 * A lost attempt is repeated once as long as the client has not seen a byte. A run
 * that is cancelled is `leaving` for a moment: the worker's last frame says how
 * many tokens it had made.
 */
import type { CancelReason, ControlSink } from "@gateway/shared/bus/control";
import { type Frame, FrameType } from "@gateway/shared/bus/frame";
import {
  apiErrorOf,
  type EndPayload,
  type ErrPayload,
  type RejectPayload,
  type RejectReason,
} from "@gateway/shared/bus/frame_payload";
import {
  type LostReason,
  StreamReceiver,
  type StreamReceiverHandlers,
  type Violation,
} from "@gateway/shared/bus/stream_receiver";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import type { Usage } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { AnswerSink } from "./answer.ts";
import type { ChatJob, RunOutcome } from "./chat_job.ts";
import { busUnavailable, noWorker, overloaded } from "./run_errors.ts";

/** Where a run stands. */
export type RunState = "waiting" | "offered" | "running" | "leaving" | "over";

/** What a run needs from those who keep it. */
export interface RunHost {
  readonly now: MonotonicNow;
  readonly log: Log;
  /** A worker was there a moment ago, and may be back in another. */
  readonly mayFindWorker: boolean;
  /** Whether the bus carried messages since then, so that silence is the worker's. */
  wasBusUpSince(sinceMs: number): boolean;
  /** Requests that came before this one wait for the same workers. */
  mustQueue(run: ChatRun): boolean;
  controlFor(workerId: string): ControlSink;
  /** Finds a worker that is not in `run.tried` and sends it the job. False when there is none with room. */
  offer(run: ChatRun): boolean;
  /** Queues the run for a slot; it has looked for one since `sinceMs`. False when the queue is full. */
  enqueue(run: ChatRun, sinceMs: number): boolean;
  onAccepted(run: ChatRun, workerId: string): void;
  onRejected(workerId: string, reject: RejectPayload): void;
  /** The worker did not accept in time. */
  onUnresponsive(workerId: string): void;
  /** The bus says that the worker takes no jobs. */
  onGone(workerId: string): void;
  /** An attempt no longer takes a slot. */
  onAttemptOver(workerId: string): void;
  /** The run is over: forget it. */
  forget(run: ChatRun): void;
}

/** What an attempt came to. */
interface RunResult {
  usage: Usage | null;
  tokens: number;
  isHeard: boolean;
  error?: ApiError;
}

/** A worker has this long to say how much a cancelled request cost. */
const LEAVE_MS = 1_000;
/** Most runs are rejected by nobody. */
const NO_REJECTS: readonly RejectReason[] = [];

export class ChatRun implements StreamReceiverHandlers {
  readonly job: ChatJob;
  readonly deadlineAtMs: number;
  /** Workers that were offered the job since it last waited. */
  readonly tried: Set<string> = new Set();
  readonly #host: RunHost;
  readonly #sink: AnswerSink;
  readonly #onEnded: (outcome: RunOutcome) => void;
  readonly #startedAtMs: number;
  #state: RunState = "waiting";
  #attempt = 0;
  #lostAttempts = 0;
  #offeredAtMs = 0;
  /** When it last began to look for a worker. */
  #searchingSinceMs: number;
  #receiver: StreamReceiver | null = null;
  /** The job was last sent to whoever listens. */
  #askedAnybody = false;
  #hasSlot = false;
  #leaveByMs = 0;
  #cancelled: { reason: CancelReason; error: ApiError | null } | null = null;
  #rejects = NO_REJECTS;
  #naks = 0;
  #dispatchMs: number | null = null;
  #firstByteMs: number | null = null;

  constructor(options: {
    job: ChatJob;
    sink: AnswerSink;
    host: RunHost;
    timeoutMs: number;
    onEnded: (outcome: RunOutcome) => void;
  }) {
    this.job = options.job;
    this.#sink = options.sink;
    this.#host = options.host;
    this.#onEnded = options.onEnded;
    this.#startedAtMs = options.host.now();
    this.#searchingSinceMs = this.#startedAtMs;
    this.deadlineAtMs = this.#startedAtMs + options.timeoutMs;
  }

  get state(): RunState {
    return this.#state;
  }

  get attempt(): number {
    return this.#attempt;
  }

  /** The worker that runs it or was asked to; null while any may take it. */
  get workerId(): string | null {
    return this.#receiver?.workerId ?? null;
  }

  /** Begins to look for a worker. */
  start(): void {
    if (this.#host.mustQueue(this)) this.#wait();
    else this.#search();
  }

  /** A slot may be free. True when the run left the queue. */
  onRoom(): boolean {
    if (this.#state !== "waiting") return true;
    return this.#host.offer(this);
  }

  /** Nobody had room in time. */
  onWaitedTooLong(isBusConnected: boolean): void {
    if (this.#state !== "waiting") return;
    this.#fail(isBusConnected ? overloaded() : busUnavailable());
  }

  /** The job is on its way. `workerId` is null when any worker may take it. */
  onOffered(workerId: string | null): void {
    this.#attempt += 1;
    this.#state = "offered";
    this.#askedAnybody = workerId === null;
    this.#offeredAtMs = this.#host.now();
    this.#hasSlot = workerId !== null;
    if (workerId !== null) this.tried.add(workerId);
    this.#receiver = new StreamReceiver({
      attempt: this.#attempt,
      workerId,
      nowMs: this.#offeredAtMs,
    }, this);
  }

  /** A frame of this request. False when it belongs to none of its attempts. */
  onFrame(frame: Frame): boolean {
    if (this.#state === "leaving") return this.#onFarewell(frame);
    const isTaken = this.#receiver?.onFrame(frame, this.#host.now()) ?? false;
    if (isTaken && isFarewell(frame)) {
      this.#loseAttempt("The worker that ran the request gave it up.");
    }
    return isTaken;
  }

  /** The bus says that nobody listens where the job was sent. */
  onNoResponders(attempt: number): void {
    if (this.#state !== "offered" || attempt !== this.#attempt) return;
    const workerId = this.workerId;
    this.#dropReceiver("not_accepted");
    if (workerId === null) {
      if (this.#host.mayFindWorker) this.#wait();
      else this.#fail(noWorker());
      return;
    }
    this.#host.onGone(workerId);
    this.#searchElsewhere();
  }

  /** The worker is known to be gone. */
  onWorkerLost(): void {
    if (this.#state === "leaving") this.#finish("cancelled");
    else this.#loseAttempt("The worker that ran the request was lost.");
  }

  /** The bus was away and is back. */
  onBusRestored(): void {
    this.#receiver?.onReconnect(this.#host.now());
  }

  /** The bus is away for too long. */
  onBusGivenUp(): void {
    if (this.#state === "leaving") this.#finish("cancelled");
    else if (this.#state !== "over") this.#fail(busUnavailable());
  }

  /** The client's socket took everything up to this frame. */
  delivered(sequence: number): void {
    if (this.#receiver?.isOver === false) this.#receiver.delivered(sequence);
  }

  onTick(nowMs: number): void {
    if (this.#state === "leaving") {
      if (nowMs >= this.#leaveByMs) this.#finish("cancelled");
      return;
    }
    if (nowMs >= this.deadlineAtMs) {
      this.cancel(
        "deadline",
        new ApiError("deadline_exceeded", "The request took too long."),
      );
      return;
    }
    this.#receiver?.onTick(nowMs);
    if (this.#state !== "over") this.#sink.onTick(nowMs);
  }

  /**
   * Stops the work, wherever it stands. With an `error` the client is still there
   * and gets it. Harmless when the run is over.
   */
  cancel(reason: CancelReason, error: ApiError | null = null): void {
    if (this.#state === "over" || this.#state === "leaving") return;
    if (error !== null) this.#sink.onError(error);
    else this.#sink.onAbandoned();
    this.#cancelled = { reason, error };
    const isRunning = this.#state === "running" || this.#state === "offered";
    this.#receiver?.cancel(reason);
    if (!isRunning) {
      this.#finish("cancelled");
      return;
    }
    this.#state = "leaving";
    this.#leaveByMs = this.#host.now() + LEAVE_MS;
  }

  accepted(workerId: string): void {
    this.#state = "running";
    this.#dispatchMs ??= this.#host.now() - this.#startedAtMs;
    this.#hasSlot = true;
    this.tried.add(workerId);
    this.#host.onAccepted(this, workerId);
  }

  rejected(reject: RejectPayload): void {
    this.#releaseSlot();
    this.tried.add(reject.worker);
    this.#rejects = [...this.#rejects, reject.reason];
    this.#host.onRejected(reject.worker, reject);
    this.#searchElsewhere();
  }

  deliver(payload: Uint8Array, sequence: number): void {
    this.#firstByteMs ??= this.#host.now() - this.#startedAtMs;
    this.#sink.onPayload(payload, sequence);
  }

  ended(end: EndPayload, tokens: number): void {
    this.#sink.onEnd();
    this.#finish("complete", { usage: end.usage, tokens, isHeard: true });
  }

  failed(failure: ErrPayload, tokens: number): void {
    const error = apiErrorOf(failure);
    if (failure.retryable && this.#mayRepeat()) {
      this.#repeat(error.message);
      return;
    }
    this.#sink.onError(error);
    const { usage } = failure;
    this.#finish("failed", { usage, tokens, error, isHeard: true });
  }

  lost(reason: LostReason): void {
    if (reason === "not_accepted") {
      this.#onUnanswered();
    } else {
      this.#loseAttempt("The worker that ran the request fell silent.");
    }
  }

  violated(violation: Violation): void {
    this.#host.log.error("stream_violation", {
      requestId: publicRequestId(this.job.requestId),
      workerId: this.workerId,
      violation,
    });
    this.#loseAttempt("The worker that ran the request misbehaved.");
  }

  sendAck(workerId: string, sequence: number): void {
    this.#host.controlFor(workerId)
      .ack(this.job.requestId, this.#attempt, sequence);
  }

  sendNak(workerId: string, fromSequence: number): void {
    this.#naks += 1;
    this.#host.controlFor(workerId)
      .nak(this.job.requestId, this.#attempt, fromSequence);
  }

  sendCancel(workerId: string, reason: CancelReason): void {
    this.#host.controlFor(workerId)
      .cancel(this.job.requestId, this.#attempt, reason);
  }

  #onUnanswered(): void {
    const workerId = this.workerId;
    this.#releaseSlot();
    if (workerId !== null) this.#host.onUnresponsive(workerId);
    if (!this.#host.wasBusUpSince(this.#offeredAtMs)) this.#wait();
    else if (this.#mayRepeat()) {
      this.#noteRepeat("The worker did not answer the offer.");
      this.#searchElsewhere();
    } else this.#fail(overloaded());
  }

  /** Offers the job to a worker, or waits for one. */
  #search(): void {
    this.#state = "waiting";
    if (!this.#host.offer(this)) this.#wait();
  }

  #searchElsewhere(): void {
    // After so many refusals the beats we know are old: wait for newer ones. And
    // asking anybody again may ask the same one, at once and without end.
    if (
      this.#askedAnybody ||
      this.tried.size >= DISPATCH_LIMITS.workersTriedMax
    ) this.#wait();
    else this.#search();
  }

  #wait(): void {
    if (this.#state === "over") return;
    this.#state = "waiting";
    this.tried.clear();
    const waitedMs = this.#host.now() - this.#searchingSinceMs;
    if (
      waitedMs >= DISPATCH_LIMITS.queueWaitMs ||
      !this.#host.enqueue(this, this.#searchingSinceMs)
    ) this.#fail(overloaded());
  }

  #loseAttempt(message: string): void {
    if (this.#state !== "running" && this.#state !== "offered") return;
    this.#dropReceiver("worker_lost");
    if (this.#mayRepeat()) this.#repeat(message);
    else this.#fail(new ApiError("worker_lost", message));
  }

  #mayRepeat(): boolean {
    return !this.#sink.hasStarted &&
      this.#lostAttempts + 1 < DISPATCH_LIMITS.attemptsMax;
  }

  #repeat(cause: string): void {
    this.#noteRepeat(cause);
    this.#releaseSlot();
    this.#sink.onRestart();
    this.#searchingSinceMs = this.#host.now();
    this.#search();
  }

  #noteRepeat(cause: string): void {
    this.#lostAttempts += 1;
    this.#host.log.warn("attempt_repeated", {
      requestId: publicRequestId(this.job.requestId),
      workerId: this.workerId,
      cause,
    });
  }

  #dropReceiver(reason: CancelReason): void {
    this.#receiver?.cancel(reason);
    this.#releaseSlot();
  }

  #releaseSlot(): void {
    const workerId = this.workerId;
    if (!this.#hasSlot || workerId === null) return;
    this.#hasSlot = false;
    this.#host.onAttemptOver(workerId);
  }

  #fail(error: ApiError): void {
    this.#sink.onError(error);
    this.#finish("failed", { ...this.#unheard, error });
  }

  get #tokens(): number {
    return this.#receiver?.tokens ?? 0;
  }

  /** All that is known when the worker does not say how it ended. */
  get #unheard(): RunResult {
    return { usage: null, tokens: this.#tokens, isHeard: false };
  }

  /** The last word of a worker that was told to stop. */
  #onFarewell(frame: Frame): boolean {
    if (frame.attempt !== this.#attempt) return false;
    if (frame.type === FrameType.REJECT) {
      this.#finish("cancelled"); // It never ran: nothing to count.
      return true;
    }
    this.#dispatchMs ??= this.#host.now() - this.#startedAtMs;
    // A worker that has not heard of the cancel, or could not be named yet, hears again.
    if (frame.type !== FrameType.ERR && frame.type !== FrameType.END) {
      return false;
    }
    this.#finish("cancelled", {
      usage: null,
      tokens: Math.max(frame.tokens, this.#tokens),
      isHeard: true,
    });
    return frame.sequence === 0; // A numbered one waits for its acknowledgement.
  }

  #finish(
    kind: RunOutcome["kind"],
    result: RunResult = this.#unheard,
  ): void {
    if (this.#state === "over") return;
    this.#releaseSlot();
    this.#state = "over";
    this.#host.forget(this);
    const error = result.error ?? this.#cancelled?.error ?? null;
    this.#onEnded({
      // A client that is still there and got an error did not cancel anything.
      kind: kind === "cancelled" && error !== null ? "failed" : kind,
      usage: result.usage,
      completionTokens: result.usage?.completion_tokens ?? result.tokens,
      isHeard: result.isHeard,
      error,
      workerId: this.workerId,
      offers: this.#attempt,
      dispatchMs: this.#dispatchMs,
      firstByteMs: this.#firstByteMs,
      durationMs: this.#host.now() - this.#startedAtMs,
      repeats: this.#lostAttempts,
      rejects: this.#rejects,
      naks: this.#naks,
      cancelReason: this.#cancelled?.reason ?? null,
    });
  }
}

/** A last word outside the numbered stream: the worker follows it no more, say because it thought this edge dead. */
function isFarewell(frame: Frame): boolean {
  return frame.type === FrameType.ERR && frame.sequence === 0;
}
