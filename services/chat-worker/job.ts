/**
 * A job that has a slot. Its request runs on a backend, and the answer is sent to the
 * edge as frames by a sender that repeats lost ones. It ends in exactly one way, which
 * its report states.
 */
import type { CancelReason } from "@gateway/shared/bus/control";
import { encodeErr, encodeFrame, FrameType } from "@gateway/shared/bus/frame";
import {
  BodyAssembly,
  type BodyPiece,
  decodeRequest,
  type JobMessage,
} from "@gateway/shared/bus/job";
import { StreamSender } from "@gateway/shared/bus/stream_sender";
import { BUS_LIMITS } from "@gateway/shared/limits";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Usage } from "@gateway/shared/openai/completion";
import { ApiError } from "@gateway/shared/openai/error";
import type { MonotonicNow, WallNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import { type Log, roundMs } from "@gateway/shared/process/log";
import { startWorkSpan, type WorkSpan } from "@gateway/shared/process/tracing";
import { UpstreamError } from "./backends/errors.ts";
import type { BackendPool } from "./backends/pool.ts";

export interface JobOptions {
  message: JobMessage;
  requestId: string;
  edgeId: string;
}

/** How a job ended, for the log and the metrics. */
export type JobReport = ReturnType<Job["report"]>;

/** What all jobs of a worker share. */
export interface JobHost {
  workerId: string;
  /** The backends of each model this worker runs, by its id. */
  backends: ReadonlyMap<string, Pick<BackendPool, "complete">>;
  now: MonotonicNow;
  /** Excludes the time in which this process was stalled. */
  steadyNow: MonotonicNow;
  wallNow: WallNow;
  log: Log;
  /** Sends a frame of a job to its edge. Must not throw. */
  sendFrame(job: JobOptions, frame: Uint8Array): void;
  /** The backend has finished, so the slot is free. */
  onSlotFree(report: JobReport): void;
  /** The edge has the whole answer or no longer needs it, so the job can be forgotten. */
  onFinished(job: Job): void;
}

const MS_PER_SECOND = 1000;
const encoder = new TextEncoder();

export class Job {
  readonly options: JobOptions;
  /** The worker passes control records and the state of the bus to it directly. */
  readonly sender: StreamSender;
  readonly #host: JobHost;
  readonly #span: WorkSpan;
  readonly #abort = new AbortController();
  readonly #startedAtMs: number;
  /** The request, while its pieces arrive. */
  #body: BodyAssembly | null;
  #lastPieceAtMs: number;
  /** Resolves when the sender can accept data again. */
  #room: PromiseWithResolvers<void> | null = null;
  /** A frame was sent, from which the edge knows that the job was accepted. */
  #hasSpoken = false;
  #cancelReason: CancelReason | undefined;
  #firstByteMs: number | undefined;
  #tokens = 0;
  #promptTokens: number | undefined;
  #errorCode: string | undefined;
  #model: string | undefined;

  constructor(options: JobOptions, host: JobHost) {
    const { message, requestId } = options;
    const { body, attempt } = message;
    const { workerId } = host;
    this.#body = body === undefined ? null : new BodyAssembly(body.bytes);
    this.options = options;
    this.#host = host;
    this.#startedAtMs = this.#lastPieceAtMs = host.now();
    this.#span = startWorkSpan("chat job", {
      kind: "consumer",
      parent: message.traceparent,
      attributes: {
        "gateway.request_id": publicRequestId(requestId),
        "gateway.worker_id": workerId,
        "gateway.attempt": attempt,
      },
    });
    this.sender = new StreamSender({
      attempt,
      workerId,
      nowMs: host.steadyNow(),
    }, {
      sendFrame: (frame) => {
        this.#hasSpoken = true;
        host.sendFrame(options, frame);
      },
      writable: () => this.#resume(),
      finished: (outcome, reason) => {
        if (outcome !== "acked") {
          this.#cancelReason = reason ?? undefined;
          const message = "The request was cancelled.";
          this.stop(new ApiError("worker_lost", message));
        }
        host.onFinished(this);
      },
    });
  }

  /**
   * Runs the request, or waits for its pieces. `mustAccept`: the edge waits for a frame
   * that accepts the job; otherwise the next tick accepts it, if no other frame was
   * sent by then.
   */
  start(mustAccept: boolean): void {
    if (mustAccept || this.#body !== null) {
      this.sender.accept(this.#host.steadyNow());
    }
    const { request } = this.options.message;
    if (request !== undefined) void this.#run(request);
  }

  /** Adds a piece. A valid piece is acknowledged every time it arrives. */
  onPiece(piece: BodyPiece, acknowledge: () => void): void {
    const body = this.#body;
    if (body === null || this.options.message.attempt !== piece.attempt) return;
    this.#lastPieceAtMs = this.#host.now();
    const added = body.add(piece);
    if (added === "invalid") {
      const message = "Part of the request was corrupted.";
      return this.stop(new ApiError("worker_lost", message));
    }
    acknowledge();
    if (added !== "complete") return;
    const request = decodeRequest(body.body);
    if (request === null) {
      const message = "The request was corrupted in transit.";
      return this.stop(new ApiError("internal_error", message));
    }
    this.#body = null;
    void this.#run(request);
  }

  /** Stops the backend, or the wait for the request. The edge sends `error` to the client. */
  stop(error: ApiError): void {
    this.#abort.abort(error);
    this.#resume(); // The run may be waiting for a slow client.
    if (this.#body === null) return;
    this.#body = null;
    this.#fail(error);
  }

  onTick(nowMs: number): void {
    if (!this.#hasSpoken) this.sender.accept(this.#host.steadyNow());
    if (nowMs - this.#startedAtMs >= this.options.message.deadlineMs) {
      const message = "The request took too long.";
      this.stop(new ApiError("deadline_exceeded", message));
    }
    const silentMs = nowMs - this.#lastPieceAtMs;
    if (this.#body !== null && silentMs >= BUS_LIMITS.pieceWaitMs) {
      const message = "The request did not arrive in time.";
      this.stop(new ApiError("worker_lost", message));
    }
    this.sender.onTick(this.#host.steadyNow());
  }

  /** Calls the backend and sends its answer. Never rejects. */
  async #run(request: ChatRequest): Promise<void> {
    try {
      const backend = this.#host.backends.get(request.model);
      if (backend === undefined) {
        const message = "No worker runs this model at the moment.";
        throw new ApiError("no_worker", message);
      }
      this.#model = request.model;
      const usage = await backend.complete(request, {
        requestId: this.options.requestId,
        created: Math.floor(this.#host.wallNow() / MS_PER_SECOND),
        signal: this.#abort.signal,
        write: (lines, tokens) => this.#write(lines, tokens),
        traceparent: this.#span.traceparent,
      });
      this.#setUsage(usage);
      this.sender.end(usage, this.#tokens, this.#host.steadyNow());
      this.#freeSlot();
    } catch (error) {
      this.#fail(error);
    }
  }

  #write(lines: string, tokens: number): Promise<void> | undefined {
    this.#tokens = tokens;
    if (lines === "") return undefined;
    this.#firstByteMs ??= this.#host.now() - this.#startedAtMs;
    this.sender.write(encoder.encode(lines), tokens, this.#host.steadyNow());
    if (this.sender.isWritable || this.sender.isFinished) return undefined;
    this.#room ??= Promise.withResolvers<void>();
    return this.#room.promise;
  }

  #setUsage({ prompt_tokens, completion_tokens }: Usage): void {
    this.#promptTokens = prompt_tokens;
    this.#tokens = completion_tokens;
  }

  /** Ends the job. Unless a model server is at fault, another worker may succeed. */
  #fail(cause: unknown): void {
    const { attempt } = this.options.message;
    const usage = cause instanceof UpstreamError ? cause.usage : null;
    if (usage !== null) this.#setUsage(usage);
    const error = this.#errorFor(cause);
    this.#errorCode = error.code;
    if (this.sender.isFinished) {
      // A single frame that is never repeated: an edge that has cancelled no longer
      // reads the answer, but charges for the tokens generated.
      const failure = { error, retryable: false, usage: null };
      const header = { type: FrameType.ERR, sequence: 0, attempt };
      const frame = encodeFrame(
        { ...header, tokens: this.#tokens },
        encodeErr(this.#host.workerId, failure),
      );
      this.#host.sendFrame(this.options, frame);
    } else {
      const retryable = !(error instanceof UpstreamError);
      const failure = { error, retryable, usage };
      this.sender.fail(failure, this.#tokens, this.#host.steadyNow());
    }
    this.#freeSlot();
  }

  /** The error to answer with: why the job was stopped, or else its cause. */
  #errorFor(cause: unknown): ApiError {
    const { aborted, reason } = this.#abort.signal;
    const error: unknown = aborted ? reason : cause;
    if (error instanceof ApiError) return error;
    const requestId = publicRequestId(this.options.requestId);
    this.#host.log.error("job_fault", { requestId, error: cause });
    return new ApiError(
      "internal_error",
      "The server had an error while processing your request. Please try again.",
    );
  }

  /** How it ended. Final once its slot is free. */
  report() {
    const ending = this.#errorCode === undefined ? "complete" : "failed";
    // An answer that has just ended is not acknowledged yet: here, finished means cancelled.
    const isCancelled = this.sender.isFinished;
    return {
      /** `cancelled`: the edge no longer needed it. */
      outcome: isCancelled ? "cancelled" : ending,
      /** Absent when its request never arrived. */
      model: this.#model,
      errorCode: isCancelled ? undefined : this.#errorCode,
      cancelReason: this.#cancelReason,
      promptTokens: this.#promptTokens,
      completionTokens: this.#tokens,
      /** From the arrival of the job to the first bytes of its answer. */
      firstByteMs: this.#firstByteMs && roundMs(this.#firstByteMs),
      durationMs: roundMs(this.#host.now() - this.#startedAtMs),
    };
  }

  /** Reports how the job ended to the log, the trace and the worker. */
  #freeSlot(): void {
    const { requestId, edgeId, message: { attempt } } = this.options;
    const report = this.report();
    this.#host.log.info("job", {
      requestId: publicRequestId(requestId),
      edgeId,
      attempt,
      ...report,
    });
    this.#span.end({
      "gateway.outcome": report.outcome,
      "gen_ai.request.model": report.model ?? "",
      "gen_ai.usage.input_tokens": report.promptTokens ?? 0,
      "gen_ai.usage.output_tokens": report.completionTokens,
    }, report.errorCode);
    this.#host.onSlotFree(report);
  }

  #resume(): void {
    this.#room?.resolve();
    this.#room = null;
  }
}
