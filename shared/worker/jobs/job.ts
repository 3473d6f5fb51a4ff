/**
 * A job that has a slot: its request runs on a backend, and a sender repeats the parts
 * of the answer that are lost.
 */
import { encodeFrame, encodeJson, FrameType } from "../../bus/stream/frame.ts";
import {
  type AnswerEnd,
  encodeErr,
  type Failure,
} from "../../bus/stream/payloads.ts";
import type { BodyPiece, UploadedRequest } from "../../bus/job.ts";
import type { CancelReason } from "../../bus/stream/control.ts";
import { type SenderOutcome, StreamSender } from "../../bus/stream/sender.ts";
import { UPLOAD_LIMITS } from "../../limits.ts";
import type { Usage } from "../../openai/completion.ts";
import { ApiError, type ErrorCode, internalError } from "../../openai/error.ts";
import { publicRequestId } from "../../process/ids.ts";
import { encodeBriefly } from "../../text/utf8.ts";
import { roundMs } from "../../process/log.ts";
import { startWorkSpan, type WorkSpan } from "../../process/tracing.ts";
import { SaturatedError, UpstreamError } from "../../upstream/http/errors.ts";
import { JobBody } from "./job_body.ts";
import { type JobReport, recordJob } from "./job_report.ts";
import { CANCELLED, corruptedRequest, notKept } from "./job_errors.ts";
import type { FrameTarget, JobEnvironment, JobOptions } from "./job_ports.ts";
import { KeptWriter } from "./kept_writer.ts";
import type { JobMemory } from "./memory.ts";

/** What a job asks of the worker that gave it a slot, and reports to it. */
export interface JobHost {
  /** How many jobs the worker runs. */
  readonly inFlight: number;
  /** Sends a frame to the edge of a job. */
  sendFrame(to: FrameTarget, frame: Uint8Array): void;
  /** If the worker is busy, resolves when streams may be read again. */
  pause(): Promise<void> | undefined;
  /** Runs a function at once, or when paused streams have read what had arrived. */
  afterPause(run: () => void): void;
  /** The servers of a job are at their limits: its edge queues it again. */
  onHandedBack(job: Job, waitMs: number): void;
  /** The backend of a job has finished. */
  onSlotFree(job: Job): void;
  /** The edge has the whole answer or no longer needs it: the job can be forgotten. */
  onFinished(job: Job): void;
}

const MS_PER_SECOND = 1000;

/**
 * A request that was offered to this worker, from its arrival until its edge has the
 * answer. It holds a slot until its backend has stopped.
 */
export class Job {
  readonly options: JobOptions;
  /** The worker passes control records and the state of the bus to it directly. */
  readonly sender: StreamSender;
  /** The report so far; final once its slot is free. */
  readonly report: JobReport;
  readonly #host: JobHost;
  readonly #environment: JobEnvironment;
  readonly #span: WorkSpan;
  readonly #abort = new AbortController();
  readonly #startedAtMs: number;
  readonly #memory: JobMemory;
  /** The request and its files if they come in pieces. */
  readonly #body: JobBody | null;
  /** Writes the answer into the log of kept ones; null: it is not kept. */
  readonly #kept: KeptWriter | null;
  /** Its edge is gone, and it runs on, because its answer is kept. */
  #isDetached = false;
  #hasSlot = true;
  /** Whether further pieces are to come. */
  #isReceiving: boolean;
  #lastPieceAtMs: number;
  /** Resolves when the sender can accept data again. */
  #room: PromiseWithResolvers<void> | null = null;
  /** Whether a frame was sent, which tells the edge that the job was accepted. */
  #hasSpoken = false;

  /** Throws if its parent in a trace cannot be read. */
  constructor(
    options: JobOptions,
    { host, environment }: { host: JobHost; environment: JobEnvironment },
  ) {
    const { upload, attempt: offerNumber, traceparent, account } =
      options.message;
    const { workerId, family, now, memory } = environment;
    this.options = options;
    this.#host = host;
    this.#environment = environment;
    this.#memory = memory.openJob(account);
    this.#body = upload
      ? new JobBody(this.#memory, { isJsonOnly: family === "chat" })
      : null;
    this.#isReceiving = upload === true;
    this.#startedAtMs = now();
    this.#lastPieceAtMs = this.#startedAtMs;
    this.report = { outcome: "complete", completionTokens: 0, durationMs: 0 };
    this.#span = startWorkSpan(`${family} job`, {
      kind: "CONSUMER",
      parent: traceparent,
      describe: () => ({
        "gateway.request_id": publicRequestId(options.requestId),
        "gateway.worker_id": workerId,
        "gateway.attempt": offerNumber,
      }),
    });
    const nowMs = this.#steadyMs();
    this.sender = new StreamSender({ offerNumber, workerId, nowMs }, {
      sendFrame: (frame) => {
        this.#hasSpoken = true;
        host.sendFrame(options, frame);
      },
      writable: () => this.#resume(),
      finished: (outcome, reason) => this.#onSenderFinished(outcome, reason),
    });
    this.#kept = this.#openKept(options, environment);
  }

  /** Tells the edge that its job has a place here, unless it knows that. */
  accept(): void {
    if (!this.#hasSpoken) this.sender.accept(this.#steadyMs());
  }

  /**
   * Runs the request, or waits for its pieces. The edge is told of the acceptance at
   * once, or by the next tick if the answer has not begun by then.
   */
  start({ acceptance }: { acceptance: "at once" | "by the next tick" }): void {
    if (acceptance === "at once" || this.#isReceiving) this.accept();
    const { request } = this.options.message;
    if (request !== undefined) void this.#run({ request, files: [] });
  }

  /**
   * Adds a piece, and acknowledges it if it is valid, once there is memory for it: its
   * edge sends no more than a few that are not acknowledged.
   */
  onPiece(piece: BodyPiece, acknowledge: () => void): void {
    const isOurs = this.options.message.attempt === piece.offerNumber;
    if (!this.#isReceiving || this.#body === null || !isOurs) return;
    this.#lastPieceAtMs = this.#environment.now();
    const { body, room } = this.#body.add(piece);
    if (body === "invalid") {
      return this.stop("worker_lost", "Part of the request was corrupted.");
    }
    const onRoom = () => {
      if (!this.#isReceiving) return;
      acknowledge();
      if (body === "more") return;
      this.#isReceiving = false;
      void this.#run(body.read());
    };
    if (room === undefined) return onRoom();
    room.then(onRoom, (error: ApiError) => {
      if (this.#isReceiving) this.#stopWith(error);
    });
  }

  /**
   * Stops the backend, or the wait for the request. The edge sends the error to the
   * client.
   */
  stop(code: ErrorCode, message: string): void {
    this.#stopWith(new ApiError(code, message));
  }

  /** Stops a job whose edge is gone, which could not order it. */
  stopKept(code: ErrorCode, message: string): void {
    if (this.#isDetached) this.stop(code, message);
  }

  #openKept(
    { requestId, message: { keep, attempt: offerNumber } }: JobOptions,
    { keeping, now, schedule }: JobEnvironment,
  ): KeptWriter | null {
    if (keep === undefined || keeping === undefined) return null;
    const { log, turns } = keeping;
    return new KeptWriter({
      requestId,
      key: Uint8Array.fromBase64(keep.key),
      offerNumber,
      log,
      now,
      schedule,
      afterPause: (run) => turns.after(run, this.#host.inFlight),
      onFailed: (error) => this.#stopWith(error),
    });
  }

  #onSenderFinished(outcome: SenderOutcome, reason: CancelReason | null): void {
    if (reason !== null) this.report.cancelReason = reason;
    const isEdgeGone = outcome === "forgotten" || reason === "edge_lost" ||
      reason === "shutdown";
    if (this.#kept !== null && this.#hasSlot && isEdgeGone) {
      this.#isDetached = true;
      return this.#resume();
    }
    if (outcome !== "acked") {
      this.stop(CANCELLED.code, CANCELLED.message);
      this.#kept?.close();
    }
    this.#host.onFinished(this);
  }

  #stopWith(error: ApiError): void {
    this.#host.afterPause(() => this.#abort.abort(error));
    this.#resume(); // The run may be waiting for a slow client.
    if (!this.#isReceiving) return;
    this.#isReceiving = false;
    this.#fail(error);
  }

  /** Advances time: accepts the job if no frame has, and ends what takes too long. */
  onTick(nowMs: number): void {
    this.accept();
    if (nowMs - this.#startedAtMs >= this.options.message.deadlineMs) {
      this.stop("deadline_exceeded", "The request took too long.");
    }
    const silentMs = nowMs - this.#lastPieceAtMs;
    // The edge bounds the time of an upload: its client decides when pieces come.
    if (this.#isReceiving && silentMs >= UPLOAD_LIMITS.totalMs) {
      this.stop("worker_lost", "The request did not arrive in time.");
    }
    this.sender.onTick(this.#steadyMs());
    this.#kept?.onTick(nowMs);
  }

  /** Calls the backend and sends its answer. Never rejects. */
  async #run({ request, files }: UploadedRequest): Promise<void> {
    try {
      // It may have been stopped before its start.
      this.#abort.signal.throwIfAborted();
      if (request === null) throw corruptedRequest();
      if (this.options.message.keep && this.#kept === null) throw notKept();
      const { runners, wallNow } = this.#environment;
      const run = runners.get(request.model);
      // A request that arrived in pieces was accepted before its model was known.
      if (run === undefined) {
        const message = "No worker runs this model at the moment.";
        throw new ApiError("no_worker", message);
      }
      this.report.model = request.model;
      const { usage, tokens } = await run(request, {
        requestId: this.options.requestId,
        created: Math.floor(wallNow() / MS_PER_SECOND),
        files,
        account: this.options.message.account,
        session: this.options.message.session,
        signal: this.#abort.signal,
        // The edge no longer has the pieces, or would have to send them again.
        mayWait: this.options.message.upload === true,
        write: (part, tokens) => this.#write(part, tokens),
        pause: () => this.#host.pause(),
        onBackend: (name) => {
          this.report.backend = name;
        },
        traceparent: this.#span.traceparent,
      }, this.#memory);
      this.#setCost(usage, tokens);
      const { backend } = this.report;
      if (this.#kept !== null) {
        await this.#keepEnd(this.#kept, { usage, backend }, tokens);
      }
      // The job was cancelled in its last moment: the edge waits for what it cost.
      if (this.#isCancelled) {
        throw new ApiError(CANCELLED.code, CANCELLED.message);
      }
      this.sender.end({ usage, backend }, tokens, this.#steadyMs());
      this.#freeSlot();
    } catch (error) {
      const mayWait = this.options.message.upload === true;
      if (error instanceof SaturatedError && !mayWait) this.#handBack(error);
      else this.#fail(error);
    }
  }

  #write(
    part: string | Uint8Array,
    tokens: number,
  ): Promise<void> | undefined {
    this.report.completionTokens = tokens;
    if (part.length === 0) return;
    this.report.firstByteMs ??= roundMs(
      this.#environment.now() - this.#startedAtMs,
    );
    const bytes = typeof part === "string" ? encodeBriefly(part) : part;
    this.sender.write(bytes, tokens, this.#steadyMs());
    const logRoom = this.#kept?.write(bytes, tokens);
    if (this.sender.isWritable || this.sender.isFinished) return logRoom;
    this.#room ??= Promise.withResolvers();
    const { promise } = this.#room;
    return logRoom === undefined ? promise : logRoom.then(() => promise);
  }

  /** Its edge needs nothing of it any more, and nobody else does. */
  get #isCancelled(): boolean {
    return this.sender.isFinished && !this.#isDetached;
  }

  /** The end is kept before the edge hears of it: then the log has the whole answer. */
  #keepEnd(
    kept: KeptWriter,
    end: AnswerEnd,
    tokens: number,
  ): Promise<void> {
    const { workerId: worker } = this.#environment;
    const payload = encodeJson({ worker, ...end });
    return kept.end({ type: FrameType.END, payload, tokens });
  }

  #setCost(usage: Usage | null, tokens: number): void {
    if (usage !== null) this.report.promptTokens = usage.prompt_tokens;
    this.report.completionTokens = tokens;
  }

  /**
   * Sends an error: the reason for which the job was stopped if it was, else the cause.
   * Unless a model server is at fault, another worker may succeed.
   */
  #fail(cause: unknown): void {
    const usage = cause instanceof UpstreamError ? cause.usage : null;
    if (usage !== null) this.#setCost(usage, usage.completion_tokens);
    const { aborted, reason } = this.#abort.signal;
    const why: unknown = aborted ? reason : cause;
    const error = why instanceof ApiError ? why : this.#ourFault(cause);
    const retryable = !(error instanceof UpstreamError);
    const { completionTokens: tokens, backend } = this.report;
    this.report.outcome = "failed";
    this.report.errorCode = error.code;
    if (this.#isCancelled) {
      // A single frame that is never repeated: an edge that has cancelled no longer
      // reads the answer, but charges for the tokens generated.
      const { attempt: offerNumber } = this.options.message;
      const header = { type: FrameType.ERR, sequence: 0, offerNumber, tokens };
      const failure = { error, retryable: false, usage: null, backend };
      const payload = encodeErr(this.#environment.workerId, failure);
      this.#host.sendFrame(this.options, encodeFrame(header, payload));
      this.#freeSlot();
    } else {
      void this.#endFailed({ error, retryable, usage, backend }, tokens);
    }
  }

  /** Sends an error; it is also kept, unless another worker may begin anew. */
  async #endFailed(failure: Failure, tokens: number): Promise<void> {
    const kept = this.#kept;
    if (kept !== null && (kept.hasData || this.#isDetached)) {
      const payload = encodeErr(this.#environment.workerId, failure);
      // If the log is what has failed, nobody can be told there.
      await kept.end({ type: FrameType.ERR, payload, tokens }).catch(() => {});
    } else kept?.close();
    this.sender.fail(failure, tokens, this.#steadyMs());
    this.#freeSlot();
  }

  /** The job may begin again, here or elsewhere: nothing of its answer was sent. */
  #handBack(error: SaturatedError): void {
    if (this.sender.isFinished) return this.#fail(error);
    this.#kept?.close();
    this.report.outcome = "rejected";
    this.#host.onHandedBack(this, error.waitMs);
    this.sender.cancel("not_accepted");
    this.#freeSlot();
  }

  #ourFault(error: unknown): ApiError {
    const requestId = publicRequestId(this.options.requestId);
    this.#environment.log.error("job_fault", { requestId, error });
    return internalError(error);
  }

  /** Reports how the job ended to the log, the trace and the worker. */
  #freeSlot(): void {
    const { log, family, now } = this.#environment;
    const report = this.report;
    this.#hasSlot = false;
    report.durationMs = roundMs(now() - this.#startedAtMs);
    this.#body?.release();
    // An answer that has just ended is not acknowledged yet: here, finished means
    // cancelled.
    if (this.#isCancelled && report.outcome !== "rejected") {
      report.outcome = "cancelled";
      report.errorCode = undefined;
    }
    recordJob(report, { ...this.options, family, log, span: this.#span });
    this.#host.onSlotFree(this);
    if (this.#isDetached) this.#host.onFinished(this);
  }

  #steadyMs(): number {
    return this.#environment.steadyClock.now();
  }

  #resume(): void {
    this.#room?.resolve();
    this.#room = null;
  }
}
