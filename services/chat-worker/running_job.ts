/**
 * A job that has a slot: joins the pure parts (the run of the request, the sender
 * of its frames) to the bus and the clock.
 */
import type { MonotonicNow, WallNow } from "@gateway/shared/process/clock";
import type { CancelReason } from "@gateway/shared/bus/control";
import { encodeFrame, FrameType } from "@gateway/shared/bus/frame";
import {
  encodeErr,
  type EndPayload,
  errPayloadOf,
} from "@gateway/shared/bus/frame";
import {
  type SenderOutcome,
  StreamSender,
} from "@gateway/shared/bus/stream_sender";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { Backend } from "./backends/backend.ts";
import { type JobFailure, type JobOutput, runJob } from "./run_job.ts";

/** Why a backend is told to stop when nobody listens any more. */
class JobCancelledError extends Error {
  override readonly name = "JobCancelledError";
  constructor(readonly cancelReason: CancelReason | null) {
    super(`Cancelled: ${cancelReason ?? "no edge was heard"}`);
  }
}

export interface RunningJobOptions {
  requestId: string;
  edgeId: string;
  attempt: number;
  workerId: string;
  /** Absolute, on the monotonic clock. */
  deadlineAtMs: number;
  traceparent: string | undefined;
}

/** What became of a job, for the log, the metrics and the trace. */
export interface JobReport {
  /** `cancelled`: the edge wanted no more of it. */
  outcome: "complete" | "failed" | "cancelled";
  /** Null when its request never arrived. */
  model: string | null;
  errorCode: string | null;
  cancelReason: CancelReason | null;
  promptTokens: number | null;
  completionTokens: number;
  /** From the arrival of the job to the first bytes of its answer; null: there were none. */
  firstByteMs: number | null;
  durationMs: number;
}

/** How the frames of a job travelled. */
export interface JobTransport {
  framesSent: number;
  /** Frames among them that had been sent before. */
  framesRepeated: number;
  /** Times the edge asked for frames again. */
  naks: number;
}

export interface RunningJobDependencies {
  now: MonotonicNow;
  /** Leaves out the time in which this process stood still. */
  steadyNow: MonotonicNow;
  wallNow: WallNow;
  /** Sends a frame to the edge. Must not throw. */
  sendFrame: (frame: Uint8Array) => void;
  onFault: (error: unknown) => void;
  /** The backend is done: the slot is free. */
  onSlotFree: (job: RunningJob) => void;
  /** The edge has everything, or wants nothing: forget the job. */
  onFinished: (job: RunningJob, outcome: SenderOutcome) => void;
}

export class RunningJob implements JobOutput {
  readonly options: RunningJobOptions;
  readonly #d: RunningJobDependencies;
  readonly #sender: StreamSender;
  readonly #abort = new AbortController();
  #room: PromiseWithResolvers<void> | null = null;
  /** Once nobody follows the stream, its frames would go nowhere. */
  #isCancelled = false;
  #tokens = 0;
  /** Any frame tells the edge that the job was taken. */
  #hasSpoken = false;
  readonly #startedAtMs: number;
  #firstByteMs: number | null = null;
  #model: string | null = null;
  #promptTokens: number | null = null;
  #errorCode: string | null = null;
  #cancelReason: CancelReason | null = null;
  #naks = 0;

  constructor(
    options: RunningJobOptions,
    dependencies: RunningJobDependencies,
  ) {
    this.options = options;
    this.#d = dependencies;
    this.#startedAtMs = dependencies.now();
    this.#sender = new StreamSender({
      attempt: options.attempt,
      workerId: options.workerId,
      nowMs: dependencies.steadyNow(),
    }, {
      sendFrame: (frame) => {
        this.#hasSpoken = true;
        dependencies.sendFrame(frame);
      },
      writable: () => this.#makeRoom(),
      finished: (outcome, reason) => this.#onFinished(outcome, reason),
    });
  }

  /** Bytes of the answer that are kept until the edge has acknowledged them. */
  get bufferedBytes(): number {
    return this.#sender.bufferedBytes;
  }

  /** Tells the edge that the job runs here. Done on the next tick when nothing else has. */
  accept(): void {
    this.#hasSpoken = true;
    this.#sender.accept(this.#d.steadyNow());
  }

  /** Asks the backend and sends what it answers. */
  async run(request: ChatRequest, backend: Backend): Promise<void> {
    const { requestId, traceparent } = this.options;
    this.#model = request.model;
    await runJob(
      {
        requestId,
        request,
        signal: this.#abort.signal,
        ...(traceparent === undefined ? {} : { traceparent }),
      },
      this,
      {
        backend,
        wallNow: this.#d.wallNow,
        onFault: this.#d.onFault,
      },
    );
    this.#d.onSlotFree(this);
  }

  /** What became of it. To be asked when its slot is free. */
  report(): JobReport {
    const isCancelled = this.#isCancelled;
    return {
      outcome: isCancelled
        ? "cancelled"
        : this.#errorCode === null
        ? "complete"
        : "failed",
      model: this.#model,
      errorCode: isCancelled ? null : this.#errorCode,
      cancelReason: this.#cancelReason,
      promptTokens: this.#promptTokens,
      completionTokens: this.#tokens,
      firstByteMs: this.#firstByteMs,
      durationMs: this.#d.now() - this.#startedAtMs,
    };
  }

  /** How its frames travelled. To be asked when it is finished. */
  transport(): JobTransport {
    const { framesSent, framesRepeated } = this.#sender;
    return { framesSent, framesRepeated, naks: this.#naks };
  }

  /** Stops the backend and says why: the edge passes the error on. */
  stop(error: ApiError): void {
    this.#abort.abort(error);
    this.#makeRoom(); // It may be waiting for a slow client: it shall see this.
  }

  /** Ends a job that was cancelled before its backend was asked. */
  abandon(): void {
    this.#sendFarewell(
      new ApiError("worker_lost", "The request was cancelled."),
    );
    this.#d.onSlotFree(this);
  }

  /** Ends a job whose backend was never asked. */
  refuse(error: ApiError): void {
    this.fail(error, { tokens: 0, usage: null, isOurs: true });
    this.#d.onSlotFree(this);
  }

  onAck(attempt: number, sequence: number): void {
    this.#sender.onAck(attempt, sequence, this.#d.steadyNow());
  }

  onNak(attempt: number, fromSequence: number): void {
    this.#naks += 1;
    this.#sender.onNak(attempt, fromSequence, this.#d.steadyNow());
  }

  onCancel(attempt: number, reason: CancelReason): void {
    this.#sender.onCancel(attempt, reason);
  }

  onTick(nowMs: number): void {
    if (!this.#hasSpoken) this.accept();
    if (nowMs >= this.options.deadlineAtMs) {
      this.stop(
        new ApiError("deadline_exceeded", "The request took too long."),
      );
    }
    this.#sender.onTick(this.#d.steadyNow());
  }

  onDisconnect(): void {
    this.#sender.onDisconnect();
  }

  onReconnect(): void {
    this.#sender.onReconnect(this.#d.steadyNow());
  }

  write(lines: Uint8Array, tokens: number): void {
    const nowMs = this.#d.now();
    this.#firstByteMs ??= nowMs - this.#startedAtMs;
    this.#tokens = tokens;
    this.#sender.write(lines, tokens, this.#d.steadyNow());
  }

  room(): Promise<void> | null {
    if (this.#sender.isWritable || this.#sender.isFinished) return null;
    this.#room ??= Promise.withResolvers<void>();
    return this.#room.promise;
  }

  end(payload: EndPayload, tokens: number): void {
    this.#tokens = tokens;
    this.#promptTokens = payload.usage?.prompt_tokens ?? null;
    this.#sender.end(payload, tokens, this.#d.steadyNow());
  }

  fail(error: ApiError, { tokens, usage, isOurs }: JobFailure): void {
    this.#tokens = tokens;
    this.#promptTokens = usage?.prompt_tokens ?? null;
    this.#errorCode = error.code;
    const payload = errPayloadOf(error, { retryable: isOurs, usage });
    if (this.#isCancelled) this.#sendFarewell(error);
    else this.#sender.fail(payload, tokens, this.#d.steadyNow());
  }

  /**
   * One frame outside the protocol's repeats: an edge that cancelled wants nothing
   * more of the answer, but it settles by the tokens that were made.
   */
  #sendFarewell(error: ApiError): void {
    this.#d.sendFrame(encodeFrame(
      {
        type: FrameType.ERR,
        sequence: 0,
        attempt: this.options.attempt,
        tokens: this.#tokens,
      },
      encodeErr(
        this.options.workerId,
        errPayloadOf(error, { retryable: false, usage: null }),
      ),
    ));
  }

  #onFinished(outcome: SenderOutcome, reason: CancelReason | null): void {
    if (outcome !== "acked") {
      this.#isCancelled = true;
      this.#cancelReason = reason;
      this.#abort.abort(new JobCancelledError(reason));
    }
    this.#makeRoom();
    this.#d.onFinished(this, outcome);
  }

  #makeRoom(): void {
    this.#room?.resolve();
    this.#room = null;
  }
}
