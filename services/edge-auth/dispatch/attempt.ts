/** One offer of a job to a worker, and the answer that may follow. */
import type { Frame } from "@gateway/shared/bus/frame";
import {
  encodeJob,
  encodeOffer,
  encodePiece,
  encodeUploadEnd,
  encodeUploadPiece,
  JOB_VERSION,
  pieceCount,
  type UploadEnd,
} from "@gateway/shared/bus/job";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import {
  type SendControl,
  type StreamEvent,
  StreamReceiver,
} from "@gateway/shared/bus/stream_receiver";
import {
  anyWorkerSubject,
  bodySubject,
  edgeStreamSubject,
  jobSubject,
  type WorkerFamily,
} from "@gateway/shared/bus/subjects";
import { BUS_LIMITS } from "@gateway/shared/limits";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { WorkerTable } from "./workers.ts";

export interface AttemptContext {
  bus: Pick<
    BusLink,
    "isConnected" | "flowingSinceMs" | "receivedAtMs" | "request"
  >;
  edgeId: string;
  now: MonotonicNow;
  /** Excludes the time in which this process was stalled. */
  steadyNow: MonotonicNow;
  log: Log;
  workers: WorkerTable;
  /** False if the bus cannot send it now. */
  publish: (subject: string, payload: Uint8Array, reply: string) => boolean;
  /** A slot may have become free for a waiting run. */
  onSlotFreed: () => void;
}

/** A job that is to be sent. */
export interface Offer {
  requestId: string;
  family: WorkerFamily;
  /**
   * The request as JSON, or the upload that ends with it. An upload, or a large
   * request, is sent when a worker has accepted the job.
   */
  request: string | Upload;
  traceparent: string | undefined;
  /** Which offer of the job this is, from 1. */
  attempt: number;
  deadlineMs: number;
  /** Null: any worker may accept it. */
  workerId: string | null;
  control: SendControl;
  /** The worker accepted the job but does not acknowledge the request. */
  onBodyLost: () => void;
}

/** Files that a client is sending, and the request that follows them. */
export interface Upload {
  /** The next bytes, at most a piece; null once the client has sent everything. */
  next(): Promise<Uint8Array | null>;
  /** The request; rejects if it is refused. Whoever made the upload answers the client. */
  end(): Promise<UploadEnd>;
}

/** A worker has this long to acknowledge a piece of a large request. */
const PIECE_TIMEOUT_MS = 2_000;

/** A job that was sent. Holds a slot of its worker until `leave` is called. */
export class Attempt {
  /** The answer. Use {@link onFrame} and {@link onTick} of the attempt instead of its own. */
  readonly stream: StreamReceiver;
  readonly #context: AttemptContext;
  readonly #offer: Offer;
  readonly #isLarge: boolean;
  readonly #offeredAtMs: number;

  /** Sends the job. Returns null if the bus cannot send it now. */
  static send(context: AttemptContext, offer: Offer): Attempt | null {
    const { requestId, family, request, traceparent, attempt, workerId } =
      offer;
    const job = {
      version: JOB_VERSION,
      attempt,
      deadlineMs: Math.max(1, Math.ceil(offer.deadlineMs)),
      ...(traceparent === undefined ? {} : { traceparent }),
    };
    const { message, isLarge } = typeof request === "string"
      ? encodeOffer(job, request)
      : { message: encodeJob({ ...job, upload: true }), isLarge: true };
    const subject = workerId === null
      ? anyWorkerSubject(family)
      : jobSubject(family, workerId);
    const reply = edgeStreamSubject(context.edgeId, requestId, attempt);
    const isSent = context.publish(subject, message, reply);
    return isSent ? new Attempt(context, offer, isLarge) : null;
  }

  private constructor(context: AttemptContext, offer: Offer, isLarge: boolean) {
    const { workerId } = offer;
    this.#context = context;
    this.#offer = offer;
    this.#isLarge = isLarge;
    this.#offeredAtMs = context.now();
    if (workerId !== null) context.workers.onSent(workerId);
    this.stream = new StreamReceiver({ ...offer, nowMs: context.steadyNow() });
  }

  /** The bus has failed since the job was sent, so it may not have arrived. */
  get mayBeUndelivered(): boolean {
    const { flowingSinceMs } = this.#context.bus;
    return flowingSinceMs === null || flowingSinceMs > this.#offeredAtMs;
  }

  onFrame(frame: Frame): StreamEvent {
    const { stream } = this;
    const wasAccepted = stream.isAccepted;
    const event = stream.onFrame(frame, this.#context.steadyNow());
    if (stream.isAccepted && !wasAccepted && this.#isLarge) {
      void this.#sendBody(stream.workerId ?? "");
    }
    return event;
  }

  /** Must be called at every tick. */
  onTick(): StreamEvent {
    const { bus, steadyNow } = this.#context;
    // A worker does not have to answer while the bus delivers nothing at all.
    const isBusSilent = bus.isConnected && bus.receivedAtMs < this.#offeredAtMs;
    if (isBusSilent && !this.stream.isAccepted) return { type: "nothing" };
    return this.stream.onTick(steadyNow());
  }

  /** Frees the slot of the worker that runs the job or was offered it. Must be called once. */
  leave(): void {
    const { workerId } = this.stream;
    if (workerId === null) return;
    this.#context.workers.onEnded(workerId);
    this.#context.onSlotFreed();
  }

  /** Sends a large request or an upload in pieces, several at a time, each acknowledged. */
  async #sendBody(workerId: string): Promise<void> {
    const { bus, log } = this.#context;
    const { requestId, family, request, onBodyLost } = this.#offer;
    const subject = bodySubject(family, workerId, requestId);
    const send = async (piece: Uint8Array): Promise<void> => {
      await bus.request(subject, piece, { timeoutMs: PIECE_TIMEOUT_MS });
    };
    try {
      if (typeof request === "string") await this.#sendPieces(request, send);
      else await this.#sendUpload(request, send);
    } catch (error) {
      log.warn("body_upload_failed", {
        requestId: publicRequestId(requestId),
        workerId,
        message: "A large request could not be sent to its worker",
        error,
      });
      if (!this.stream.isOver) onBodyLost();
    }
  }

  async #sendPieces(
    request: string,
    send: (piece: Uint8Array) => Promise<void>,
  ): Promise<void> {
    const { attempt } = this.#offer;
    const body = new TextEncoder().encode(request);
    const pieces = pieceCount(body.length);
    let next = 0;
    await Promise.all(
      Array.from({ length: BUS_LIMITS.piecesInFlight }, async () => {
        while (next < pieces && !this.stream.isOver) {
          await send(encodePiece(body, attempt, next++));
        }
      }),
    );
  }

  async #sendUpload(
    upload: Upload,
    send: (piece: Uint8Array) => Promise<void>,
  ): Promise<void> {
    const { attempt } = this.#offer;
    const sending: Promise<void>[] = [];
    for (let index = 0;; index += 1) {
      const bytes = await upload.next();
      if (bytes === null || this.stream.isOver) break;
      const sent = send(encodeUploadPiece(bytes, attempt, index));
      // Its failure is reported by the await below, perhaps some pieces later.
      sent.catch(() => {});
      sending.push(sent);
      if (sending.length >= BUS_LIMITS.piecesInFlight) await sending.shift();
    }
    await Promise.all(sending);
    if (this.stream.isOver) return;
    const end = await upload.end().catch(() => null);
    // Null: it was refused, and its run is cancelled.
    if (end !== null) await send(encodeUploadEnd(end, attempt));
  }
}
