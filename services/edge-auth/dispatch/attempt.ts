/** One offer of a job to a worker, and the answer that may follow. */
import { encodeJson, type Frame } from "@gateway/shared/bus/frame";
import {
  encodePiece,
  encodeUploadEnd,
  encodeWholeJob,
  JOB_VERSION,
} from "@gateway/shared/bus/job";
import {
  type StreamEvent,
  StreamReceiver,
} from "@gateway/shared/bus/stream_receiver";
import { subjects } from "@gateway/shared/bus/subjects";
import { BUS_LIMITS } from "@gateway/shared/limits";
import { familyOf } from "@gateway/shared/models/kinds";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Upload } from "./outcome.ts";
import type { Run } from "./run.ts";

interface Offer {
  /** Which offer of the job this is, from 1. */
  attempt: number;
  deadlineMs: number;
  /** Null: any worker may accept it. */
  workerId: string | null;
}

/**
 * A worker has this long to acknowledge a piece of a large request: on a busy machine,
 * it takes seconds. A lost worker is noticed by its beats.
 */
const PIECE_TIMEOUT_MS = 10_000;

/** A job that was sent. Holds a slot of its worker until `leave` is called. */
export class Attempt extends StreamReceiver {
  readonly #run: Run;
  /** What follows once a worker has accepted the job. */
  readonly #upload: Upload | null;
  readonly #offeredAtMs: number;

  /**
   * Sends the job with its request as JSON; a large one follows once it is accepted.
   * Null: the bus is down.
   */
  static send(run: Run, text: string, offer: Offer): Attempt | null {
    const { dispatcher } = run;
    const { requestId, kind, traceparent, upload = null } = run.job;
    const { attempt, deadlineMs, workerId } = offer;
    const head = {
      version: JOB_VERSION,
      attempt,
      deadlineMs: Math.max(1, Math.ceil(deadlineMs)),
      ...(traceparent === undefined ? {} : { traceparent }),
    };
    const whole = upload === null ? encodeWholeJob(head, text) : null;
    const subject = workerId === null
      ? subjects.anyWorker(familyOf(kind))
      : subjects.job(familyOf(kind), workerId);
    const isSent = dispatcher.publish(
      subject,
      whole ?? encodeJson({ ...head, upload: true }),
      subjects.edgeStream(dispatcher.options.edgeId, requestId, attempt),
    );
    if (!isSent) return null;
    if (workerId !== null) dispatcher.workers.onSent(workerId);
    const rest = whole === null ? upload ?? uploadOf(text) : null;
    return new Attempt(run, offer, rest);
  }

  private constructor(run: Run, offer: Offer, upload: Upload | null) {
    const { attempt, workerId } = offer;
    const { dispatcher, job: { requestId } } = run;
    const nowMs = dispatcher.steadyNow();
    const control = run.control.bind(run);
    super({ requestId, attempt, workerId, control, nowMs });
    this.#run = run;
    this.#upload = upload;
    this.#offeredAtMs = dispatcher.options.now();
  }

  /** The bus has failed since the job was sent, so it may not have arrived. */
  get mayBeUndelivered(): boolean {
    const { flowingSinceMs } = this.#run.dispatcher.options.bus;
    return flowingSinceMs === null || flowingSinceMs > this.#offeredAtMs;
  }

  override onFrame(frame: Frame, nowMs: number): StreamEvent {
    const wasAccepted = this.isAccepted;
    const event = super.onFrame(frame, nowMs);
    if (this.isAccepted && !wasAccepted && this.#upload !== null) {
      void this.#send(this.#upload, this.workerId ?? "");
    }
    return event;
  }

  override onTick(nowMs: number): StreamEvent {
    const { bus } = this.#run.dispatcher.options;
    // A worker does not have to answer while the bus delivers nothing at all.
    const isBusSilent = bus.isConnected && bus.receivedAtMs < this.#offeredAtMs;
    if (isBusSilent && !this.isAccepted) return { type: "nothing" };
    return super.onTick(nowMs);
  }

  /**
   * Frees the slot of the worker that runs the job or was offered it. Must be called
   * once.
   */
  leave(): void {
    if (this.workerId === null) return;
    this.#run.dispatcher.workers.onEnded(this.workerId);
    this.#run.dispatcher.onSlotFreed();
  }

  /** Sends an upload in pieces, several at a time, each acknowledged. */
  async #send(upload: Upload, workerId: string): Promise<void> {
    const { dispatcher: { options: { bus, log } }, job } = this.#run;
    const { requestId, kind } = job;
    const { attempt } = this;
    const subject = subjects.body(familyOf(kind), workerId, requestId);
    const send = (piece: Uint8Array) =>
      bus.request(subject, piece, { timeoutMs: PIECE_TIMEOUT_MS });
    try {
      const sending: Promise<unknown>[] = [];
      for (let index = 0;; index += 1) {
        const bytes = await upload.next();
        if (bytes === null || this.isOver) break;
        const sent = send(encodePiece(bytes, attempt, index));
        // Its failure is reported by the await below, perhaps some pieces later.
        sent.catch(() => {});
        sending.push(sent);
        if (sending.length >= BUS_LIMITS.piecesInFlight) await sending.shift();
      }
      await Promise.all(sending);
      if (this.isOver) return;
      const end = await upload.end().catch(() => null);
      // Null: it must not run, and is cancelled.
      if (end !== null) await send(encodeUploadEnd(end, attempt));
    } catch (error) {
      if (this.isOver) return; // The worker acknowledges nothing more.
      log.warn("body_upload_failed", {
        requestId: publicRequestId(requestId),
        workerId,
        message: "A large request could not be sent to its worker",
        error,
      });
      this.#run.onWorkerLost();
    }
  }
}

/** A request that is too large for one message. */
function uploadOf(request: string): Upload {
  let rest = new TextEncoder().encode(request);
  return {
    next() {
      const piece = rest.subarray(0, BUS_LIMITS.pieceBytes);
      rest = rest.subarray(piece.length);
      return Promise.resolve(piece.length === 0 ? null : piece);
    },
    end: () => Promise.resolve({ files: [] }),
  };
}
