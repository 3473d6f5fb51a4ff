/**
 * A job that has a slot. Its request runs on a backend, and the answer is sent to the
 * edge as frames by a sender that repeats lost ones. It ends in exactly one way, which
 * its report states.
 */
import type { CancelReason } from "@gateway/shared/bus/control";
import { encodeErr, encodeFrame, FrameType } from "@gateway/shared/bus/frame";
import {
  type BodyAssembly,
  type BodyPiece,
  decodeRequest,
} from "@gateway/shared/bus/job";
import { StreamSender } from "@gateway/shared/bus/stream_sender";
import { BUS_LIMITS } from "@gateway/shared/limits";
import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { MonotonicNow, WallNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { WorkSpan } from "@gateway/shared/process/tracing";
import { UpstreamError } from "./backends/errors.ts";
import type { BackendPool } from "./backends/pool.ts";

/** The backends of each model this worker runs, by its id. */
export type Backends = ReadonlyMap<string, Pick<BackendPool, "complete">>;

export interface JobOptions {
  requestId: string;
  edgeId: string;
  attempt: number;
  workerId: string;
  /** The subject for its frames. */
  reply: string;
  /** Absolute, on the monotonic clock. */
  deadlineAtMs: number;
  span: WorkSpan;
}

/** How a job ended, for the log, the metrics and the trace. */
export interface JobReport {
  /** `cancelled`: the edge no longer needed it. */
  outcome: "complete" | "failed" | "cancelled";
  /** Absent when its request never arrived. */
  model: string | undefined;
  errorCode: string | undefined;
  cancelReason: CancelReason | undefined;
  promptTokens: number | undefined;
  completionTokens: number;
  /** From the arrival of the job to the first bytes of its answer. */
  firstByteMs: number | undefined;
  durationMs: number;
}

/** What all jobs of a worker share. */
export interface JobHost {
  backends: Backends;
  now: MonotonicNow;
  /** Excludes the time in which this process was stalled. */
  steadyNow: MonotonicNow;
  wallNow: WallNow;
  log: Log;
  /** Sends a frame to an edge. Must not throw. */
  sendFrame(reply: string, frame: Uint8Array): void;
  /** The backend has finished, so the slot is free. */
  onSlotFree(job: Job): void;
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
  readonly #abort = new AbortController();
  readonly #startedAtMs: number;
  /** The request, while its pieces arrive. */
  #body: { assembly: BodyAssembly; lastPieceAtMs: number } | null = null;
  /** Resolves when the sender can accept data again. */
  #room: PromiseWithResolvers<void> | null = null;
  /** A frame was sent, from which the edge knows that the job was accepted. */
  #hasSpoken = false;
  /** The edge no longer reads this stream. */
  #isCancelled = false;
  #cancelReason: CancelReason | undefined;
  #model: string | undefined;
  #firstByteMs: number | undefined;
  #tokens = 0;
  #promptTokens: number | undefined;
  #errorCode: string | undefined;

  constructor(options: JobOptions, host: JobHost) {
    this.options = options;
    this.#host = host;
    this.#startedAtMs = host.now();
    this.sender = new StreamSender({
      attempt: options.attempt,
      workerId: options.workerId,
      nowMs: host.steadyNow(),
    }, {
      sendFrame: (frame) => {
        this.#hasSpoken = true;
        host.sendFrame(options.reply, frame);
      },
      writable: () => this.#resume(),
      finished: (outcome, reason) => {
        if (outcome !== "acked") this.#onCancelled(reason);
        this.#resume();
        host.onFinished(this);
      },
    });
  }

  /** How it ended. Final once its slot is free. */
  report(): JobReport {
    const isCancelled = this.#isCancelled;
    const ending = this.#errorCode === undefined ? "complete" : "failed";
    return {
      outcome: isCancelled ? "cancelled" : ending,
      model: this.#model,
      errorCode: isCancelled ? undefined : this.#errorCode,
      cancelReason: this.#cancelReason,
      promptTokens: this.#promptTokens,
      completionTokens: this.#tokens,
      firstByteMs: this.#firstByteMs,
      durationMs: this.#host.now() - this.#startedAtMs,
    };
  }

  /** Accepts the job with a frame. Called on the next tick if no other frame was sent before. */
  accept(): void {
    this.#hasSpoken = true;
    this.sender.accept(this.#host.steadyNow());
  }

  /** Accepts a job whose request will arrive in pieces. */
  expect(assembly: BodyAssembly): void {
    this.#body = { assembly, lastPieceAtMs: this.#host.now() };
    this.accept();
  }

  /** Adds a piece. A valid piece is acknowledged every time it arrives. */
  onPiece(piece: BodyPiece, acknowledge: () => void): void {
    const body = this.#body;
    if (body === null || this.options.attempt !== piece.attempt) return;
    body.lastPieceAtMs = this.#host.now();
    const added = body.assembly.add(piece);
    if (added === "invalid") {
      return this.#refuse("worker_lost", "Part of the request was corrupted.");
    }
    acknowledge();
    if (added !== "complete") return;
    const request = decodeRequest(body.assembly.body);
    if (request === null) {
      const message = "The request was corrupted in transit.";
      return this.#refuse("internal_error", message);
    }
    this.#body = null;
    void this.run(request);
  }

  /** Calls the backend and sends its answer. Never rejects. */
  async run(request: ChatRequest): Promise<void> {
    const backend = this.#host.backends.get(request.model);
    if (backend === undefined) {
      const message = "No worker runs this model at the moment.";
      return this.#refuse("no_worker", message);
    }
    this.#model = request.model;
    const { requestId, span: { traceparent } } = this.options;
    const { signal } = this.#abort;
    try {
      const end = await backend.complete(request, {
        requestId,
        created: Math.floor(this.#host.wallNow() / MS_PER_SECOND),
        signal,
        write: (lines, tokens) => this.#write(lines, tokens),
        ...(traceparent === undefined ? {} : { traceparent }),
      });
      this.#setUsage(end.usage);
      this.sender.end(end.usage, this.#tokens, this.#host.steadyNow());
    } catch (error) {
      const usage = error instanceof UpstreamError ? error.usage : null;
      if (usage !== null) this.#setUsage(usage);
      const isOurs = signal.aborted || !(error instanceof ApiError);
      this.#fail(this.#errorFor(error), { isOurs, usage });
    }
    this.#host.onSlotFree(this);
  }

  /** Stops the backend. The edge sends `error` to the client. */
  stop(error: ApiError): void {
    this.#abort.abort(error);
    this.#resume(); // The run may be waiting for a slow client.
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
      this.#refuse("worker_lost", "The request did not arrive in time.");
    }
    this.sender.onTick(this.#host.steadyNow());
  }

  /** Ends a job whose backend was never called. */
  #refuse(
    code: "worker_lost" | "internal_error" | "no_worker",
    message: string,
  ): void {
    this.#body = null;
    this.#fail(new ApiError(code, message), { isOurs: true, usage: null });
    this.#host.onSlotFree(this);
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

  /** `isOurs`: this worker failed, not the request, so another worker may succeed. */
  #fail(
    error: ApiError,
    { isOurs, usage }: { isOurs: boolean; usage: Usage | null },
  ): void {
    this.#errorCode = error.code;
    if (this.#isCancelled) return this.#sendFinalFrame(error);
    const failure = { error, retryable: isOurs, usage };
    this.sender.fail(failure, this.#tokens, this.#host.steadyNow());
  }

  /** The error to answer with. */
  #errorFor(error: unknown): ApiError {
    const { aborted, reason } = this.#abort.signal;
    if (aborted) return reason instanceof ApiError ? reason : cancelled();
    if (error instanceof ApiError) return error;
    const requestId = publicRequestId(this.options.requestId);
    this.#host.log.error("job_fault", { requestId, error });
    return new ApiError(
      "internal_error",
      "The server had an error while processing your request. Please try again.",
    );
  }

  /**
   * Sends a single frame that is never repeated: an edge that has cancelled no longer
   * reads the answer, but charges for the tokens generated.
   */
  #sendFinalFrame(error: ApiError): void {
    const { attempt, reply, workerId } = this.options;
    this.#host.sendFrame(
      reply,
      encodeFrame(
        { type: FrameType.ERR, sequence: 0, attempt, tokens: this.#tokens },
        encodeErr(workerId, { error, retryable: false, usage: null }),
      ),
    );
  }

  #onCancelled(reason: CancelReason | null): void {
    this.#isCancelled = true;
    this.#cancelReason = reason ?? undefined;
    this.#abort.abort(new Error(`Cancelled: ${reason ?? "edge silent"}`));
    // Its backend was never called.
    if (this.#body !== null) this.#refuse("worker_lost", cancelled().message);
  }

  #resume(): void {
    this.#room?.resolve();
    this.#room = null;
  }
}

function cancelled(): ApiError {
  return new ApiError("worker_lost", "The request was cancelled.");
}
