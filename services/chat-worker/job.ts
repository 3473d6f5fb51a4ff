/**
 * A job that has a slot. Its request runs on a backend, and the answer goes to the
 * edge as frames through a sender that repeats lost ones. It ends in exactly one
 * way, which its report tells.
 */
import type { CancelReason } from "@gateway/shared/bus/control";
import {
  encodeErr,
  encodeFrame,
  errPayloadOf,
  FrameType,
} from "@gateway/shared/bus/frame";
import {
  type BodyAssembly,
  type BodyPiece,
  decodeRequest,
  JobFormatError,
} from "@gateway/shared/bus/job";
import {
  type SenderOutcome,
  StreamSender,
} from "@gateway/shared/bus/stream_sender";
import { BUS_LIMITS } from "@gateway/shared/limits";
import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { MonotonicNow, WallNow } from "@gateway/shared/process/clock";
import type { Backend } from "./backends/backend.ts";
import { UpstreamError } from "./backends/errors.ts";
import { type AnswerEncoder, createAnswerEncoder } from "./encode_answer.ts";

export interface JobOptions {
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

export interface JobDependencies {
  now: MonotonicNow;
  /** Leaves out the time in which this process stood still. */
  steadyNow: MonotonicNow;
  wallNow: WallNow;
  /** Sends a frame to the edge. Must not throw. */
  sendFrame: (frame: Uint8Array) => void;
  /** Called with errors that are bugs of ours. */
  onFault: (error: unknown) => void;
  /** Called when all pieces of a request have come. */
  onWhole: (job: Job, request: ChatRequest) => void;
  /** The backend is done: the slot is free. */
  onSlotFree: (job: Job) => void;
  /** The edge has everything, or wants nothing: forget the job. */
  onFinished: (job: Job) => void;
}

const MS_PER_SECOND = 1000;
const encoder = new TextEncoder();

export class Job {
  readonly options: JobOptions;
  readonly #d: JobDependencies;
  readonly #sender: StreamSender;
  readonly #abort = new AbortController();
  readonly #startedAtMs: number;
  /** The request, until it is whole. */
  #body: { assembly: BodyAssembly; lastPieceAtMs: number } | null = null;
  /** Resolves when the sender has room again. */
  #room: PromiseWithResolvers<void> | null = null;
  /** The edge no longer reads this stream. */
  #isCancelled = false;
  /** A frame was sent, which tells the edge that the job was taken. */
  #hasSpoken = false;
  #model: string | null = null;
  #firstByteMs: number | null = null;
  #tokens = 0;
  #promptTokens: number | null = null;
  #errorCode: string | null = null;
  #cancelReason: CancelReason | null = null;
  #naks = 0;

  constructor(options: JobOptions, dependencies: JobDependencies) {
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

  /** What became of it. Complete once its slot is free. */
  report(): JobReport {
    const isCancelled = this.#isCancelled;
    const ending = this.#errorCode === null ? "complete" : "failed";
    return {
      outcome: isCancelled ? "cancelled" : ending,
      model: this.#model,
      errorCode: isCancelled ? null : this.#errorCode,
      cancelReason: this.#cancelReason,
      promptTokens: this.#promptTokens,
      completionTokens: this.#tokens,
      firstByteMs: this.#firstByteMs,
      durationMs: this.#d.now() - this.#startedAtMs,
    };
  }

  /** How its frames travelled. Complete once it is finished. */
  transport(): JobTransport {
    const { framesSent, framesRepeated } = this.#sender;
    return { framesSent, framesRepeated, naks: this.#naks };
  }

  /** Tells the edge that the job runs here. Done on the next tick when nothing else has. */
  accept(): void {
    this.#hasSpoken = true;
    this.#sender.accept(this.#d.steadyNow());
  }

  /** The request is still to come, in pieces. */
  expect(assembly: BodyAssembly): void {
    this.#body = { assembly, lastPieceAtMs: this.#d.now() };
    this.accept();
  }

  /** Takes a piece. A piece that fits is acknowledged each time it comes. */
  onPiece(piece: BodyPiece, acknowledge: () => void): void {
    const body = this.#body;
    if (body === null || this.options.attempt !== piece.attempt) return;
    body.lastPieceAtMs = this.#d.now();
    const added = body.assembly.add(piece);
    if (added === "invalid") {
      return this.refuse("worker_lost", "A part of the request was damaged.");
    }
    acknowledge();
    if (added !== "complete") return;
    let request: ChatRequest;
    try {
      request = decodeRequest(body.assembly.body);
    } catch (error) {
      if (!(error instanceof JobFormatError)) throw error;
      const message = "The request was damaged on its way.";
      return this.refuse("internal_error", message);
    }
    this.#body = null;
    this.#d.onWhole(this, request);
  }

  /** Ends a job whose backend was never asked. */
  refuse(
    code: "worker_lost" | "internal_error" | "no_worker",
    message: string,
  ): void {
    this.#body = null;
    this.#fail(new ApiError(code, message), { isOurs: true });
    this.#d.onSlotFree(this);
  }

  /** Asks the backend and sends what it answers. Never rejects. */
  async run(request: ChatRequest, backend: Backend): Promise<void> {
    this.#model = request.model;
    const answer = createAnswerEncoder(request, {
      id: `chatcmpl-${this.options.requestId}`,
      created: Math.floor(this.#d.wallNow() / MS_PER_SECOND),
      model: request.model,
    });
    try {
      await this.#relay(request, backend, answer);
      const last = answer.finish();
      if (last !== "") this.#write(last, answer.completionTokens);
      this.#tokens = answer.completionTokens;
      const { usage } = answer;
      this.#promptTokens = usage?.prompt_tokens ?? null;
      const end = { usage, finishReasons: answer.complete() };
      this.#sender.end(end, this.#tokens, this.#d.steadyNow());
    } catch (error) {
      const usage = error instanceof UpstreamError ? error.usage : null;
      this.#tokens = usage?.completion_tokens ?? answer.completionTokens;
      this.#promptTokens = usage?.prompt_tokens ?? null;
      const isOurs = this.#abort.signal.aborted || !(error instanceof ApiError);
      this.#fail(this.#errorFor(error), { isOurs, usage });
    }
    this.#d.onSlotFree(this);
  }

  async #relay(
    request: ChatRequest,
    backend: Backend,
    answer: AnswerEncoder,
  ): Promise<void> {
    const { requestId, traceparent } = this.options;
    const { signal } = this.#abort;
    const events = backend.complete(request, {
      requestId,
      signal,
      ...(traceparent === undefined ? {} : { traceparent }),
    });
    for await (const batch of events) {
      const lines = answer.push(batch);
      if (lines === "") continue;
      this.#write(lines, answer.completionTokens);
      if (!this.#sender.isWritable && !this.#sender.isFinished) {
        this.#room ??= Promise.withResolvers<void>();
        await this.#room.promise;
      }
      signal.throwIfAborted();
    }
  }

  /** Stops the backend and says why: the edge passes the error on. */
  stop(error: ApiError): void {
    this.#abort.abort(error);
    this.#makeRoom(); // The run may be waiting for a slow client.
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
    const lastPieceAtMs = this.#body?.lastPieceAtMs ?? nowMs;
    if (nowMs - lastPieceAtMs >= BUS_LIMITS.pieceWaitMs) {
      this.refuse("worker_lost", "The request did not arrive in time.");
    }
    this.#sender.onTick(this.#d.steadyNow());
  }

  onReconnect(): void {
    this.#sender.onReconnect(this.#d.steadyNow());
  }

  #write(lines: string, tokens: number): void {
    this.#firstByteMs ??= this.#d.now() - this.#startedAtMs;
    this.#tokens = tokens;
    this.#sender.write(encoder.encode(lines), tokens, this.#d.steadyNow());
  }

  /** `isOurs`: this worker failed, not the request, so another one may do better. */
  #fail(
    error: ApiError,
    { isOurs, usage = null }: { isOurs: boolean; usage?: Usage | null },
  ): void {
    this.#errorCode = error.code;
    if (this.#isCancelled) return this.#sendFinalFrame(error);
    const payload = errPayloadOf(error, { retryable: isOurs, usage });
    this.#sender.fail(payload, this.#tokens, this.#d.steadyNow());
  }

  /** The error to answer with. */
  #errorFor(error: unknown): ApiError {
    const { aborted, reason } = this.#abort.signal;
    if (aborted) return reason instanceof ApiError ? reason : cancelled();
    if (error instanceof ApiError) return error;
    this.#d.onFault(error);
    return new ApiError(
      "internal_error",
      "The server had an error while processing your request. Please try again.",
    );
  }

  /**
   * One frame outside the protocol's repeats: an edge that cancelled wants nothing
   * more of the answer, but it settles by the tokens that were made.
   */
  #sendFinalFrame(error: ApiError): void {
    const { attempt, workerId } = this.options;
    const payload = errPayloadOf(error, { retryable: false, usage: null });
    this.#d.sendFrame(encodeFrame(
      { type: FrameType.ERR, sequence: 0, attempt, tokens: this.#tokens },
      encodeErr(workerId, payload),
    ));
  }

  #onFinished(outcome: SenderOutcome, reason: CancelReason | null): void {
    if (outcome !== "acked") {
      this.#isCancelled = true;
      this.#cancelReason = reason;
      this.#abort.abort(
        new Error(`Cancelled: ${reason ?? "no edge was heard"}`),
      );
    }
    this.#makeRoom();
    this.#d.onFinished(this);
    if (this.#body === null) return;
    // Its backend was never asked.
    this.#body = null;
    this.#sendFinalFrame(cancelled());
    this.#d.onSlotFree(this);
  }

  #makeRoom(): void {
    this.#room?.resolve();
    this.#room = null;
  }
}

function cancelled(): ApiError {
  return new ApiError("worker_lost", "The request was cancelled.");
}
