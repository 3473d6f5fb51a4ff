/**
 * One chat request from its admission to its end: waiting for a slot, offered to a
 * worker, running there, perhaps once more elsewhere.
 *
 * A lost attempt is repeated once as long as the client has not seen a byte. A run
 * that is cancelled stays for a moment: the final frame of its worker says how many
 * tokens it had made.
 *
 * What happens comes in as method calls, and each returns what the dispatcher is
 * to do about it.
 */
import type { CancelReason, ControlSink } from "@gateway/shared/bus/control";
import {
  apiErrorOf,
  type EndPayload,
  type ErrPayload,
  type Frame,
  FrameType,
  type RejectPayload,
  type RejectReason,
} from "@gateway/shared/bus/frame";
import {
  answerStrayFrame,
  type StreamEvent,
  StreamReceiver,
} from "@gateway/shared/bus/stream_receiver";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";

/** A request that is to be run. */
export interface ChatJob {
  requestId: string;
  request: ChatRequest;
  /** W3C trace context. */
  traceparent?: string;
}

/** Takes an answer in as it comes. */
export interface AnswerSink {
  /** Some of the answer went to the client, so another attempt would repeat it. */
  readonly hasStarted: boolean;
  /** The next bytes of the answer, lines that may be cut anywhere. A view: copied if kept. */
  onPayload(payload: Uint8Array, sequence: number): void;
  /** The answer is complete. */
  onEnd(): void;
  /** There will be no more of it. */
  onError(error: ApiError): void;
  /** The client is gone: nobody will read the response. */
  onAbandoned(): void;
  /** What came so far is void: another attempt begins. Only while `hasStarted` is false. */
  onRestart(): void;
  /** Called now and then: keep-alives and clients that stopped reading. */
  onTick(nowMs: number): void;
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

/** Where a run stands. */
export type RunState =
  | "waiting"
  | "offered"
  | "running"
  | "cancelling"
  | "over";

/** Why an attempt left its worker; `refused`, `silent` and `gone` say something of the worker. */
export type LeftReason =
  | { type: "ended" }
  | { type: "refused"; reject: RejectPayload }
  | { type: "silent" }
  | { type: "gone" };

/** What the dispatcher is to do for a run. */
export type RunAction =
  /** Offer it to a worker that is not in `tried`; queue it when there is none. */
  | { type: "search" }
  /** Queue it. */
  | { type: "wait" }
  /** A worker took it: send the body, if that did not fit. */
  | { type: "accepted"; workerId: string }
  /** An attempt is over at this worker. It had a slot there, or was offered one. */
  | { type: "left"; workerId: string; hadSlot: boolean; reason: LeftReason }
  | { type: "over"; outcome: RunOutcome };

/**
 * What the bus did since a moment. `carried` messages: silence
 * is the worker's. `silent`: it brought nothing yet. `broken`: it was away, or
 * workers may still be on their way back.
 */
export type BusSince = "carried" | "silent" | "broken";

/** What a run is made with. */
export interface ChatRunOptions {
  job: ChatJob;
  sink: AnswerSink;
  timeoutMs: number;
  now: MonotonicNow;
  /** Leaves out the time in which this process stood still. */
  steadyNow: MonotonicNow;
  log: Log;
  controlFor: (workerId: string) => ControlSink;
  busSince: (sinceMs: number) => BusSince;
}

/** A worker has this long to say how much a cancelled request cost. */
const FINAL_FRAME_MS = 1_000;
/** What clients are told to wait: workers become free, or are started, all the time. */
const RETRY_MS = 1_000;
const NO_REJECTS: readonly RejectReason[] = [];
const NO_ACTIONS: readonly RunAction[] = [];
const SEARCH: RunAction = { type: "search" };
const WAIT: RunAction = { type: "wait" };

type Actions = readonly RunAction[];

export class ChatRun {
  readonly job: ChatJob;
  readonly deadlineAtMs: number;
  /** Workers that were offered the job since it last waited. */
  readonly tried: Set<string> = new Set();
  /** When it last began to look for a worker. */
  searchingSinceMs: number;
  readonly #d: ChatRunOptions;
  readonly #sink: AnswerSink;
  readonly #startedAtMs: number;
  #state: RunState = "waiting";
  #attempt = 0;
  #lostAttempts = 0;
  #receiver: StreamReceiver | null = null;
  #offeredAtMs = 0;
  /** The job was last sent to whoever listens. */
  #askedAnybody = false;
  #hasSlot = false;
  #finalFrameByMs = 0;
  #cancelled: { reason: CancelReason; error: ApiError | null } | null = null;
  #rejects = NO_REJECTS;
  /** Of earlier attempts. */
  #naks = 0;
  #dispatchMs: number | null = null;
  #firstByteMs: number | null = null;

  constructor(options: ChatRunOptions) {
    this.#d = options;
    this.job = options.job;
    this.#sink = options.sink;
    this.#startedAtMs = options.now();
    this.searchingSinceMs = this.#startedAtMs;
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

  /** The job is on its way. `workerId` is null when any worker may take it. */
  onOffered(workerId: string | null): void {
    this.#attempt += 1;
    this.#naks += this.#receiver?.naks ?? 0;
    this.#state = "offered";
    this.#askedAnybody = workerId === null;
    this.#offeredAtMs = this.#d.now();
    this.#hasSlot = workerId !== null;
    if (workerId !== null) this.tried.add(workerId);
    this.#receiver = new StreamReceiver({
      requestId: this.job.requestId,
      attempt: this.#attempt,
      workerId,
      nowMs: this.#d.steadyNow(),
      controlFor: this.#d.controlFor,
    });
  }

  /** A frame of this request. Null when it belongs to none of its attempts. */
  onFrame(frame: Frame): Actions | null {
    if (this.#state === "cancelling") return this.#onFinalFrame(frame);
    const receiver = this.#receiver;
    if (receiver === null) return null;
    const event = receiver.onFrame(frame, this.#d.steadyNow());
    if (event.type === "stray") return null;
    const accepted = receiver.isAccepted && this.#state === "offered"
      ? this.#onAccepted()
      : NO_ACTIONS;
    const actions = isFinalFrame(frame)
      ? this.#loseAttempt("The worker that ran the request gave it up.")
      : this.#onEvent(event);
    return accepted.length === 0 ? actions : [...accepted, ...actions];
  }

  /**
   * The bus says that nobody listens where the job of this attempt was sent.
   * `mayComeBack`: a worker was there a moment ago, and may be back in another.
   */
  onNoResponders(attempt: number, mayComeBack: boolean): Actions {
    if (this.#state !== "offered" || attempt !== this.#attempt) {
      return NO_ACTIONS;
    }
    this.#receiver?.cancel("not_accepted");
    if (this.workerId === null) {
      return mayComeBack ? this.#wait() : this.fail(noWorker());
    }
    return [...this.#leave({ type: "gone" }), ...this.#searchElsewhere()];
  }

  /** The worker is known to be gone. */
  onWorkerLost(): Actions {
    return this.#state === "cancelling"
      ? this.#finish("cancelled")
      : this.#loseAttempt("The worker that ran the request was lost.");
  }

  /** The bus was away and is back. */
  onBusRestored(): void {
    this.#receiver?.onReconnect(this.#d.steadyNow());
  }

  /** The bus is away for too long. */
  onBusGivenUp(): Actions {
    return this.#state === "cancelling"
      ? this.#finish("cancelled")
      : this.fail(busUnavailable());
  }

  /** The client's socket took everything up to this frame. */
  delivered(sequence: number): void {
    if (this.#receiver?.isOver === false) this.#receiver.delivered(sequence);
  }

  onTick(nowMs: number): Actions {
    if (this.#state === "cancelling") {
      return nowMs >= this.#finalFrameByMs
        ? this.#finish("cancelled")
        : NO_ACTIONS;
    }
    if (nowMs >= this.deadlineAtMs) {
      return this.cancel(
        "deadline",
        new ApiError("deadline_exceeded", "The request took too long."),
      );
    }
    // A worker that has not answered yet has time as long as nobody is heard.
    const hasTime = this.#state === "offered" &&
      this.#d.busSince(this.#offeredAtMs) === "silent";
    const event = hasTime ? null : this.#receiver?.onTick(this.#d.steadyNow());
    const actions = event ? this.#onEvent(event) : NO_ACTIONS;
    if (this.#state !== "over") this.#sink.onTick(nowMs);
    return actions;
  }

  /**
   * Stops the work, wherever it stands. With an `error` the client is still there
   * and gets it. Harmless when the run is over.
   */
  cancel(reason: CancelReason, error: ApiError | null = null): Actions {
    if (this.#state === "over" || this.#state === "cancelling") {
      return NO_ACTIONS;
    }
    if (error !== null) this.#sink.onError(error);
    else this.#sink.onAbandoned();
    this.#cancelled = { reason, error };
    this.#receiver?.cancel(reason);
    if (this.#state === "waiting") return this.#finish("cancelled");
    this.#state = "cancelling";
    this.#finalFrameByMs = this.#d.now() + FINAL_FRAME_MS;
    return NO_ACTIONS;
  }

  /** Ends it with an error that no worker has told. */
  fail(error: ApiError): Actions {
    if (this.#state === "over") return NO_ACTIONS;
    this.#sink.onError(error);
    return this.#finish("failed", { error });
  }

  #onAccepted(): Actions {
    const { workerId } = this;
    if (workerId === null) return NO_ACTIONS;
    this.#state = "running";
    this.#dispatchMs ??= this.#sinceStartMs();
    this.#hasSlot = true;
    this.tried.add(workerId);
    return [{ type: "accepted", workerId }];
  }

  #onEvent(event: StreamEvent): Actions {
    switch (event.type) {
      case "data":
        this.#firstByteMs ??= this.#sinceStartMs();
        this.#sink.onPayload(event.payload, event.sequence);
        return NO_ACTIONS;
      case "rejected":
        return this.#onRejected(event.reject);
      case "ended":
        return this.#onEnded(event.end);
      case "failed":
        return this.#onFailed(event.error);
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
      default:
        return NO_ACTIONS;
    }
  }

  #onRejected(reject: RejectPayload): Actions {
    this.tried.add(reject.worker);
    this.#rejects = [...this.#rejects, reject.reason];
    return [
      ...this.#leave({ type: "refused", reject }, reject.worker),
      ...this.#searchElsewhere(),
    ];
  }

  #onEnded({ usage }: EndPayload): Actions {
    this.#sink.onEnd();
    return this.#finish("complete", { usage, isHeard: true });
  }

  #onFailed(failure: ErrPayload): Actions {
    const error = apiErrorOf(failure);
    if (failure.retryable && this.#mayRepeat()) {
      return this.#repeat(error.message);
    }
    this.#sink.onError(error);
    const { usage } = failure;
    return this.#finish("failed", { usage, error, isHeard: true });
  }

  /** No sign of the job. The worker may have begun it all the same, or died of it. */
  #onUnanswered(): Actions {
    const left = this.#leave({ type: "silent" });
    if (this.#d.busSince(this.#offeredAtMs) === "broken") {
      return [...left, ...this.#wait()];
    }
    if (!this.#mayRepeat()) return [...left, ...this.fail(overloaded())];
    this.#noteRepeat("The worker did not answer the offer.");
    return [...left, ...this.#searchElsewhere()];
  }

  #searchElsewhere(): Actions {
    // After so many refusals the beats we know are old: wait for newer ones. And
    // asking anybody again may ask the same one, at once and without end.
    const isEnough = this.#askedAnybody ||
      this.tried.size >= DISPATCH_LIMITS.workersTriedMax;
    return isEnough ? this.#wait() : this.#search();
  }

  #search(): Actions {
    this.#state = "waiting";
    return [SEARCH];
  }

  #wait(): Actions {
    this.#state = "waiting";
    return [WAIT];
  }

  #loseAttempt(message: string): Actions {
    if (this.#state !== "running" && this.#state !== "offered") {
      return NO_ACTIONS;
    }
    this.#receiver?.cancel("worker_lost");
    return this.#mayRepeat()
      ? this.#repeat(message)
      : this.fail(new ApiError("worker_lost", message));
  }

  #mayRepeat(): boolean {
    return !this.#sink.hasStarted &&
      this.#lostAttempts + 1 < DISPATCH_LIMITS.attemptsMax;
  }

  #repeat(cause: string): Actions {
    this.#noteRepeat(cause);
    this.#sink.onRestart();
    this.searchingSinceMs = this.#d.now();
    return [...this.#leave({ type: "ended" }), ...this.#search()];
  }

  #noteRepeat(cause: string): void {
    this.#lostAttempts += 1;
    this.#d.log.warn("attempt_repeated", {
      requestId: publicRequestId(this.job.requestId),
      workerId: this.workerId,
      cause,
    });
  }

  /** The attempt is over at its worker, or at the one that names itself. */
  #leave(reason: LeftReason, workerId = this.workerId): Actions {
    const hadSlot = this.#hasSlot;
    this.#hasSlot = false;
    if (workerId === null || (!hadSlot && reason.type === "ended")) {
      return NO_ACTIONS;
    }
    return [{ type: "left", workerId, hadSlot, reason }];
  }

  /** What a worker says last of a run that was cancelled. */
  #onFinalFrame(frame: Frame): Actions | null {
    if (frame.attempt !== this.#attempt) return null;
    // It never ran: nothing to count.
    if (frame.type === FrameType.REJECT) return this.#finish("cancelled");
    this.#dispatchMs ??= this.#sinceStartMs();
    // A worker that has not heard of the cancel, or could not be named yet, hears again.
    if (frame.type !== FrameType.ERR && frame.type !== FrameType.END) {
      return null;
    }
    const { tokens } = frame;
    // A numbered one is repeated until it is acknowledged.
    if (frame.sequence > 0) {
      answerStrayFrame(this.job.requestId, frame, this.#d.controlFor);
    }
    return this.#finish("cancelled", { tokens, isHeard: true });
  }

  #finish(
    kind: RunOutcome["kind"],
    result: {
      usage?: Usage | null;
      tokens?: number;
      isHeard?: boolean;
      error?: ApiError;
    } = {},
  ): Actions {
    const left = this.#leave({ type: "ended" });
    this.#state = "over";
    const { usage = null } = result;
    const tokens = Math.max(result.tokens ?? 0, this.#receiver?.tokens ?? 0);
    const error = result.error ?? this.#cancelled?.error ?? null;
    const outcome: RunOutcome = {
      // A client that is still there and got an error did not cancel anything.
      kind: kind === "cancelled" && error !== null ? "failed" : kind,
      usage,
      completionTokens: usage?.completion_tokens ?? tokens,
      isHeard: result.isHeard ?? false,
      error,
      workerId: this.workerId,
      offers: this.#attempt,
      dispatchMs: this.#dispatchMs,
      firstByteMs: this.#firstByteMs,
      durationMs: this.#sinceStartMs(),
      repeats: this.#lostAttempts,
      rejects: this.#rejects,
      naks: this.#naks + (this.#receiver?.naks ?? 0),
      cancelReason: this.#cancelled?.reason ?? null,
    };
    return [...left, { type: "over", outcome }];
  }

  #sinceStartMs(): number {
    return this.#d.now() - this.#startedAtMs;
  }
}

/** Outside the numbered stream: the worker follows it no more, say because it thought this edge dead. */
function isFinalFrame(frame: Frame): boolean {
  return frame.type === FrameType.ERR && frame.sequence === 0;
}

/** All workers had no room for too long. */
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
