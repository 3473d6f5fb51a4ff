/**
 * One request from its admission to its end: waiting for a slot, offered to a worker,
 * running there. A lost offer is followed by one more if the client has no byte yet.
 */
import type {
  CancelReason,
  ControlRecord,
} from "@gateway/shared/bus/stream/control";
import { type Frame, FrameType } from "@gateway/shared/bus/stream/frame";
import type {
  Failure,
  RejectPayload,
} from "@gateway/shared/bus/stream/payloads";
import type { StreamEvent } from "@gateway/shared/bus/stream/receiver";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { publicRequestId } from "@gateway/shared/process/ids";
import { Offer } from "./offer.ts";
import {
  type AnswerSink,
  closeOutcome,
  type RunEnd,
  type RunJob,
  RunOutcome,
  type RunProgress,
} from "./outcome.ts";
import {
  bodyDelivered,
  isBodyKept,
  lateMsOf,
  releaseBody,
} from "./request_body.ts";
import {
  busUnavailable,
  deadlineExceeded,
  noWorker,
  queueFull,
} from "./run_errors.ts";
import { Place, type PlacedRun } from "./run_place.ts";
import type { RunListeners, RunTools } from "./run_ports.ts";
import { FINAL_FRAME_MS, RunTime, UNRESPONSIVE_MS } from "./run_time.ts";
import type { QueueFull } from "./queue/wait_queue.ts";
import { WorkerSearch } from "./worker_search.ts";

/** A request that is looking for a worker, or has one. */
export class Run implements PlacedRun {
  readonly job: RunJob;
  /** Where it waits, if all workers are busy. */
  readonly place: Place;
  readonly #tools: RunTools;
  readonly #sink: AnswerSink;
  readonly #onEnded: (outcome: RunOutcome) => void;
  readonly #time: RunTime;
  readonly #search: WorkerSearch;
  #state: "active" | "cancelling" | "over" = "active";
  #offer: Offer | null = null;
  #finalFrameByMs = 0;
  /** Made once there is something to say: thousands may wait of which there is not. */
  #record: RunOutcome | null = null;

  /** The run looks for a worker when `start` is called. */
  constructor(
    job: RunJob,
    { sink, onEnded }: RunListeners,
    tools: RunTools,
  ) {
    this.job = job;
    this.#tools = tools;
    this.#sink = sink;
    this.#onEnded = onEnded;
    this.#time = new RunTime(tools, job.endsByMs);
    this.place = new Place(job, this, tools.queueOf);
    this.#search = new WorkerSearch(this.place, tools);
  }

  get #outcome(): RunOutcome {
    this.#record ??= new RunOutcome();
    return this.#record;
  }

  /** When it last started looking for a worker. */
  get sinceMs(): number {
    return this.#search.sinceMs;
  }

  /** The worker that runs it or was offered it; null while any may accept it. */
  get workerId(): string | null {
    return this.#offer?.workerId ?? null;
  }

  /**
   * For how long it has held a worker that waits for its client, in ms: for the next
   * piece of an upload, or to take more of an answer that gives way.
   */
  lateMs(nowMs: number): number {
    if (this.#state !== "active" || this.#offer === null) return 0;
    return lateMsOf(this.job.body, this.#sink, nowMs);
  }

  /** How far it has come. */
  get progress(): RunProgress {
    const { isAccepted = false, tokens = 0 } = this.#offer ?? {};
    const state = this.#sink.hasStarted ? "streaming" : "running";
    const ageMs = this.#time.takenMs;
    return { state: isAccepted ? state : "waiting", ageMs, tokens };
  }

  /** Sends a record about the stream to its worker. */
  control(workerId: string, record: ControlRecord): void {
    if (record.type === "nak") this.#outcome.naks += 1;
    this.#tools.bus.control(this.place.family, workerId, record);
  }

  /** Looks for a worker, after the requests that already wait for the model. */
  start(): void {
    const { queue, workers } = this.#tools;
    const { family, lane, wanted } = this.place;
    const mayWait = () => workers.hasWorkerFor(wanted);
    if (queue.hasWaiting(family, lane) && mayWait()) this.#wait();
    else this.#offerOrWait();
  }

  /**
   * Sends the job to a worker that has not been tried yet. False if none has a free
   * slot. Ends the run if an operator has disabled its model.
   */
  offer(): boolean {
    const { bus, workers, clock, log, refusalOf } = this.#tools;
    const { model, queuedTokens } = this.place;
    const refusal = model && refusalOf(model);
    if (refusal) {
      this.fail(refusal);
      return true;
    }
    if (!bus.isConnected) return false;
    const target = this.#search.next();
    if (target === null) return false;
    const { workerId } = target;
    const terms = {
      offerNumber: this.#outcome.offers + 1,
      deadlineMs: this.#time.leftMs,
      workerId,
      queuedTokens,
    };
    const offer = Offer.send(this.job, terms, { bus, clock, log, owner: this });
    if (offer === null) return false;
    if (workerId === null) this.#search.onGroupAsked();
    else workers.onSent(workerId, this.place.model);
    this.#offer = offer;
    this.#outcome.offers += 1;
    return true;
  }

  /** Handles a frame of this request. False if it belongs to none of its offers. */
  onFrame(frame: Frame): boolean {
    const offer = this.#offer;
    if (offer === null) return false;
    if (this.#state === "cancelling") return this.#onFinalFrame(offer, frame);
    const event = offer.onFrame(frame);
    if (event.type === "stray") return false;
    if (offer.isAccepted) this.#outcome.dispatchMs ??= this.#time.takenMs;
    // An unnumbered error: the worker may have concluded that this edge is dead.
    if (frame.type === FrameType.ERR && frame.sequence === 0) {
      this.#loseOffer("The worker that ran the request abandoned it.");
    } else this.#onEvent(offer, event);
    return true;
  }

  /** The bus says that nobody has received this offer. */
  onNoResponders(offerNumber: number): void {
    const offer = this.#offer;
    if (offer?.number !== offerNumber || this.#state !== "active") return;
    if (offer.isAccepted) return;
    const { workerId } = offer;
    offer.cancel("not_accepted");
    this.#leave();
    if (workerId !== null) this.#tools.workers.onMissing(workerId);
    else if (!this.place.hasWaited) return this.fail(noWorker());
    this.#offerOrWait();
  }

  /** The worker that runs it is dead, or could not be sent the request. */
  onWorkerLost(): void {
    this.#loseOffer("The worker that ran the request was lost.");
  }

  /** The bus works again after an outage. */
  onBusRestored(): void {
    this.#offer?.onReconnect();
  }

  /** The worker has the whole request. It is kept only for a repeat. */
  onBodyDelivered(): void {
    this.#tools.workers.onAccepted(this.workerId ?? "", this.place.model);
    bodyDelivered(this.job.body);
    this.#releaseBodyIfUnneeded();
  }

  /** The client's socket took everything up to this frame: the worker may send more. */
  delivered(sequence: number): void {
    this.#offer?.delivered(sequence);
  }

  /** Advances time. Must be called every `STREAM_LIMITS.tickMs`. */
  onTick(nowMs: number): void {
    if (this.#state === "cancelling") {
      if (nowMs >= this.#finalFrameByMs) this.#finish("cancelled");
      return;
    }
    if (this.#time.leftMs <= 0) {
      return this.cancel("deadline", deadlineExceeded());
    }
    const offer = this.#offer;
    if (offer !== null) this.#onEvent(offer, offer.onTick());
    else if (this.#search.hasTakenTooLong) this.#failUnserved();
    if (this.#state === "active") this.#sink.onTick(nowMs);
  }

  /**
   * Stops the run in any state. An `error` is sent to the client, which must still be
   * connected.
   */
  cancel(reason: CancelReason, error: ApiError | null = null): void {
    if (this.#state !== "active") return;
    this.#state = "cancelling";
    this.#finalFrameByMs = this.#tools.clock.now() + FINAL_FRAME_MS;
    this.#outcome.cancelReason = reason;
    this.#outcome.error = error;
    this.#offer?.cancel(reason);
    if (error !== null) this.#sink.onError(error);
    else this.#sink.onAbandoned();
    if (this.#offer === null) this.#finish("cancelled");
    else releaseBody(this.job.body);
  }

  /** Ends the run with an error that does not come from a worker. */
  fail(error: ApiError): void {
    if (this.#state === "over") return;
    if (this.#state === "cancelling") return this.#finish("cancelled");
    this.#sink.onError(error);
    this.#finish("failed", { error });
  }

  #offerOrWait(): void {
    if (this.#search.isExhausted || !this.offer()) this.#wait();
  }

  #wait(): void {
    this.#search.forget();
    if (this.#search.isHopeless) return this.#failUnserved();
    const full = this.#tools.queue.push(this.place);
    if (full !== null) this.giveUp(full);
  }

  /** Ends the run because as many wait as may. */
  giveUp({ retryAfterMs }: QueueFull): void {
    this.fail(queueFull(this.job.model, retryAfterMs));
  }

  /** Ends the run because it has found no worker. */
  #failUnserved(): void {
    const { bus } = this.#tools;
    this.fail(bus.isConnected ? this.#search.failure : busUnavailable());
  }

  #onEvent(offer: Offer, event: StreamEvent): void {
    switch (event.type) {
      case "data":
        this.#outcome.firstByteMs ??= this.#time.takenMs;
        this.#outcome.answerBytes += event.payload.length;
        this.#sink.onPayload(event.payload, event.sequence);
        return this.#releaseBodyIfUnneeded();
      case "rejected":
        return this.#onRejected(event.reject);
      case "ended": {
        const { usage, backend } = event.end;
        this.#sink.onEnd();
        return this.#finish("complete", { usage, backend, isFinal: true });
      }
      case "failed":
        return this.#onFailed(event.failure);
      case "lost":
        return event.reason === "not_accepted"
          ? this.#onUnanswered(offer)
          : this.#loseOffer("The worker of the request stopped responding.");
      case "violated":
        this.#tools.log.error("stream_violation", {
          requestId: publicRequestId(this.job.requestId),
          workerId: this.workerId,
          violation: event.violation,
        });
        return this.#loseOffer("The worker violated the stream protocol.");
    }
  }

  #onRejected(reject: RejectPayload): void {
    this.#outcome.rejects.push(reject.reason);
    this.#leave();
    this.#search.skip(reject.worker);
    this.#tools.workers.onRejected(reject, this.job.model);
    this.#offerOrWait();
  }

  #onFailed({ error, retryable, usage, backend }: Failure): void {
    if (retryable && this.#mayRepeat()) return this.#repeat(error.message);
    this.#sink.onError(error);
    this.#finish("failed", { usage, backend, error, isFinal: true });
  }

  /**
   * The worker did not answer the offer. It may have started the job anyway, or crashed
   * on it.
   */
  #onUnanswered({ mayBeUndelivered }: Offer): void {
    const { workerId } = this;
    this.#leave();
    if (workerId !== null) this.#tools.workers.pause(workerId, UNRESPONSIVE_MS);
    // If the offer was lost, that says nothing about the worker.
    if (mayBeUndelivered) return this.#wait();
    if (!this.#mayRepeat()) return this.#failUnserved();
    this.#noteRepeat(workerId, "The worker did not answer the offer.");
    this.#offerOrWait();
  }

  #loseOffer(message: string): void {
    if (this.#offer === null) return;
    if (this.#state === "cancelling") return this.#finish("cancelled");
    const { isAccepted } = this.#offer;
    this.#offer.cancel("worker_lost");
    if (this.#mayRepeat()) this.#repeat(message);
    else if (isAccepted) this.fail(new ApiError("worker_lost", message));
    // Nobody has begun it.
    else this.#failUnserved();
  }

  #mayRepeat(): boolean {
    const { dispatchMs, repeats } = this.#outcome;
    const wasAccepted = dispatchMs !== null;
    return isBodyKept(this.job.body, wasAccepted) && !this.#sink.hasStarted &&
      repeats + 1 < DISPATCH_LIMITS.offersLostMax;
  }

  #repeat(message: string): void {
    this.#noteRepeat(this.workerId, message);
    this.#sink.onRestart();
    this.#search.restart();
    this.#leave();
    this.#offerOrWait();
  }

  #noteRepeat(workerId: string | null, message: string): void {
    this.#outcome.repeats += 1;
    const requestId = publicRequestId(this.job.requestId);
    // The name is older than the word "offer", and stays: operators search for it.
    this.#tools.log.warn("attempt_repeated", { requestId, workerId, message });
  }

  /** Gives up the offer, and its slot. The next one is made to another worker. */
  #leave(): void {
    const { workerId } = this;
    this.#offer = null;
    if (workerId === null) return;
    this.#search.skip(workerId);
    this.#tools.workers.onEnded(workerId, this.place.model);
  }

  #onFinalFrame(offer: Offer, frame: Frame): boolean {
    const end = offer.onFrameAfterCancel(frame);
    if (end.type === "stray") return false;
    if (end.type === "rejected") {
      this.#finish("cancelled");
      return true;
    }
    this.#outcome.dispatchMs ??= this.#time.takenMs;
    if (end.type === "running") return false;
    const { tokens: completionTokens, backend } = end;
    this.#finish("cancelled", { completionTokens, backend, isFinal: true });
    return true;
  }

  #finish(kind: RunOutcome["kind"], end: RunEnd = {}): void {
    const outcome = this.#outcome;
    outcome.workerId = this.workerId;
    outcome.completionTokens = end.usage?.completion_tokens ??
      this.#offer?.tokens ?? 0;
    outcome.durationMs = this.#time.takenMs;
    this.#leave();
    releaseBody(this.job.body);
    this.#state = "over";
    closeOutcome(outcome, kind, end);
    this.#tools.onOver(this);
    this.#onEnded(outcome);
  }

  #releaseBodyIfUnneeded(): void {
    if (!this.#mayRepeat()) releaseBody(this.job.body);
  }
}
