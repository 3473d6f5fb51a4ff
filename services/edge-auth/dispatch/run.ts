/**
 * One chat request from its admission to its end: waiting for a slot, offered to a
 * worker, running there, perhaps once more elsewhere.
 *
 * A lost attempt is repeated once as long as the client has not seen a byte. A run
 * that is cancelled stays for a moment: the final frame of its worker says how many
 * tokens it had made.
 */
import type { CancelReason } from "@gateway/shared/bus/control";
import {
  type Failure,
  type Frame,
  FrameType,
  type RejectPayload,
  type RejectReason,
} from "@gateway/shared/bus/frame";
import type { BusLink } from "@gateway/shared/bus/link";
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
import type { Usage } from "@gateway/shared/openai/chat";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { type ChatJob, encodeOffer, sendBody } from "./job.ts";
import type { WaitQueue } from "./wait_queue.ts";
import type { WorkerTable } from "./workers.ts";

/** Receives an answer as it arrives. */
export interface AnswerSink {
  /** Part of the answer went to the client, so a second attempt would repeat it. */
  readonly hasStarted: boolean;
  /** The next bytes of the answer, lines that may be cut anywhere. A view: copied if kept. */
  onPayload(payload: Uint8Array, sequence: number): void;
  /** The answer is complete. */
  onEnd(): void;
  /** The answer ends with this error. */
  onError(error: ApiError): void;
  /** The client is gone: nobody will read the response. */
  onAbandoned(): void;
  /** Another attempt starts: discard what came so far. Only while `hasStarted` is false. */
  onRestart(): void;
  /** Called regularly, for keep-alives and clients that stopped reading. */
  onTick(nowMs: number): void;
}

/** How a run ended, for the settlement of limits, the log and the metrics. */
export interface RunOutcome {
  kind: "complete" | "failed" | "cancelled";
  /** What the backend counted; null when it did not get that far. */
  usage: Usage | null;
  /** Completion tokens known to have been produced. */
  completionTokens: number;
  /** The worker reported the end; otherwise it may have produced more than is known. */
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
  /** Attempts that were lost and repeated on another worker. */
  repeats: number;
  /** Why workers did not take it. */
  rejects: readonly RejectReason[];
  /** How often frames were asked for again. */
  naks: number;
  /** Why it was stopped before its end, or null. */
  cancelReason: CancelReason | null;
}

/** What all runs of an edge share. */
export interface RunContext {
  bus: Pick<
    BusLink,
    "isConnected" | "flowingSinceMs" | "heardAtMs" | "request"
  >;
  edgeId: string;
  now: MonotonicNow;
  /** Leaves out the time in which this process stood still. */
  steadyNow: MonotonicNow;
  log: Log;
  requestTimeoutMs: number;
  workers: WorkerTable;
  queue: WaitQueue<ChatRun>;
  /** False when the bus does not take it now. */
  publish: (subject: string, payload: Uint8Array, reply: string) => boolean;
  control: SendControl;
  /** A slot may be free for a run that waits. */
  onRoom: () => void;
  onWorkerMissing: (workerId: string) => void;
}

/** A worker has this long to say how much a cancelled request cost. */
const FINAL_FRAME_MS = 1_000;
/** A worker that did not answer gets no jobs for this long, unless it beats. */
const UNRESPONSIVE_MS = 1_000;
/** The same after a refusal that names no time. */
const REFUSED_MS = 100;
/** What clients are told to wait: workers become free, or are started, all the time. */
const RETRY_MS = 1_000;

export class ChatRun {
  readonly job: ChatJob;
  readonly #d: RunContext;
  readonly #sink: AnswerSink;
  readonly #onOver: (outcome: RunOutcome) => void;
  readonly #startedAtMs: number;
  #state: "waiting" | "offered" | "running" | "cancelling" | "over" = "waiting";
  /** When it last began to look for a worker. */
  #searchingSinceMs: number;
  /** Workers that were offered the job since it last waited. */
  readonly #tried = new Set<string>();
  #attempt = 0;
  #lostAttempts = 0;
  #receiver: StreamReceiver | null = null;
  #offeredAtMs = 0;
  /** The job was sent to whoever listens. */
  #hasAskedAnybody = false;
  /** A large request, encoded: it follows when a worker has taken the job. */
  #body: Uint8Array | null = null;
  /** The worker counts it, or was offered it. */
  #hasSlot = false;
  #finalFrameByMs = 0;
  #cancelled: { reason: CancelReason; error: ApiError | null } | null = null;
  readonly #rejects: RejectReason[] = [];
  /** Of earlier attempts. */
  #naks = 0;
  #dispatchMs: number | null = null;
  #firstByteMs: number | null = null;

  /** A run that looks for a worker as soon as it is told to `start`. `onOver` is told its end once. */
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

  /** The worker that runs it or was asked to; null while any may take it. */
  get workerId(): string | null {
    return this.#receiver?.workerId ?? null;
  }

  /** Looks for a worker, behind the requests that already wait for the model. */
  start(): void {
    const { queue, workers } = this.#d;
    const { model } = this.job.request;
    if (queue.hasWaiting(model) && workers.knows(model)) this.#wait();
    else this.#search();
  }

  /** Sends the job to a worker that has not been tried yet. False when none has room. */
  offer(): boolean {
    const { bus, workers, edgeId, publish, now, steadyNow } = this.#d;
    if (!bus.isConnected) return false;
    const { requestId, request: { model } } = this.job;
    const workerId = workers.pick(model, this.#tried);
    // A known worker has no room: wait for it. No worker is known: ask whichever
    // listens, but only once, since the same one may refuse without end.
    const mayAsk = !this.#hasAskedAnybody && !workers.knows(model);
    if (workerId === null && !mayAsk) return false;
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
    if (workerId === null) this.#hasAskedAnybody = true;
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
    // Outside the numbered stream: the worker may have taken this edge for dead.
    if (frame.type === FrameType.ERR && frame.sequence === 0) {
      this.#loseAttempt("The worker that ran the request gave it up.");
    } else this.#onEvent(event);
    return true;
  }

  /** The bus reports that nobody listens where the job of this attempt was sent. */
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

  /** The worker is known to be gone. */
  onWorkerLost(): void {
    if (this.#state === "cancelling") this.#finish("cancelled");
    else this.#loseAttempt("The worker that ran the request was lost.");
  }

  /** The bus was away and is back. */
  onBusRestored(): void {
    this.#receiver?.onReconnect(this.#d.steadyNow());
  }

  /** The bus is away for too long. */
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
    // A worker that has not answered yet has time while nothing at all is heard.
    const { bus } = this.#d;
    const hasTime = this.#state === "offered" && bus.isConnected &&
      bus.heardAtMs < this.#offeredAtMs;
    if (!hasTime && this.#receiver !== null) {
      this.#onEvent(this.#receiver.onTick(this.#d.steadyNow()));
    }
    if (this.#state !== "over") this.#sink.onTick(nowMs);
  }

  /**
   * Stops the work, wherever it stands. With an `error` the client is still there
   * and gets it. Harmless when the run is over.
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

  /** Ends it with an error that no worker has told. */
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
    // After so many refusals the beats we know are old: wait for newer ones.
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
        return this.#finish("complete", { usage: event.usage, isHeard: true });
      case "failed":
        return this.#onFailed(event.failure);
      case "lost":
        return event.reason === "not_accepted"
          ? this.#onUnanswered()
          : this.#loseAttempt("The worker that ran the request fell silent.");
      case "violated":
        this.#d.log.error("stream_violation", {
          requestId: publicRequestId(this.job.requestId),
          workerId: this.workerId,
          violation: event.violation,
        });
        return this.#loseAttempt("The worker that ran the request misbehaved.");
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
    this.#finish("failed", { usage, error, isHeard: true });
  }

  /** The worker gave no sign of the job. It may have started it anyway, or crashed on it. */
  #onUnanswered(): void {
    const { workerId } = this;
    const { bus, workers } = this.#d;
    this.#leave();
    if (workerId !== null) workers.pause(workerId, UNRESPONSIVE_MS);
    const { flowingSinceMs } = bus;
    // The bus may have lost the offer, which says nothing about the worker.
    const wasAway = flowingSinceMs === null ||
      flowingSinceMs > this.#offeredAtMs;
    if (wasAway) return this.#wait();
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

  /** The attempt is over at its worker: the slot it had there, or was offered, is free. */
  #leave(): void {
    const { workerId } = this;
    if (!this.#hasSlot || workerId === null) return;
    this.#hasSlot = false;
    this.#d.workers.onEnded(workerId);
    this.#d.onRoom();
  }

  /** Takes the final frame of a cancelled run, which says what it cost. */
  #onFinalFrame(frame: Frame): boolean {
    if (frame.attempt !== this.#attempt) return false;
    // It never ran: nothing to count.
    if (frame.type === FrameType.REJECT) {
      this.#finish("cancelled");
      return true;
    }
    this.#dispatchMs ??= this.#sinceStartMs();
    // Not the end: the worker has not received the cancel, or was not known yet.
    if (frame.type !== FrameType.ERR && frame.type !== FrameType.END) {
      return false;
    }
    // A numbered one is repeated until it is acknowledged.
    if (frame.sequence > 0) {
      answerStrayFrame(this.job.requestId, frame, this.#d.control);
    }
    this.#finish("cancelled", { tokens: frame.tokens, isHeard: true });
    return true;
  }

  #finish(
    kind: RunOutcome["kind"],
    { usage = null, tokens = 0, isHeard = false, error = null }: {
      usage?: Usage | null;
      tokens?: number;
      isHeard?: boolean;
      error?: ApiError | null;
    } = {},
  ): void {
    this.#leave();
    this.#state = "over";
    const receiver = this.#receiver;
    const told = error ?? this.#cancelled?.error ?? null;
    this.#onOver({
      // A client that is still there and got an error did not cancel anything.
      kind: kind === "cancelled" && told !== null ? "failed" : kind,
      usage,
      completionTokens: usage?.completion_tokens ??
        Math.max(tokens, receiver?.tokens ?? 0),
      isHeard,
      error: told,
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

/** No worker had room for too long. */
export const overloaded = (): ApiError =>
  tryAgain("overloaded", "All workers are busy.");

/** There is no worker. */
const noWorker = (): ApiError =>
  tryAgain("no_worker", "No worker is available at the moment.");

/** No worker can be asked. */
export const busUnavailable = (): ApiError =>
  tryAgain("bus_unavailable", "The service is temporarily unavailable.");

function tryAgain(code: ErrorCode, what: string): ApiError {
  return new ApiError(code, `${what} Please try again shortly.`, {
    retryAfterMs: RETRY_MS,
  });
}
