/** One offer of a job to a worker, and the answer that may follow. */
import { encodeJson, type Frame } from "@gateway/shared/bus/frame";
import {
  encodePiece,
  encodeUploadEnd,
  encodeWholeJob,
  JOB_VERSION,
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
  onSlotFreed: () => void;
}

export interface Offer {
  requestId: string;
  family: WorkerFamily;
  /** The request as JSON, or the upload that ends with it. A large one follows once a worker has accepted the job. */
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
  /** What follows once a worker has accepted the job. */
  readonly #upload: Upload | null;
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
    const whole = typeof request === "string"
      ? encodeWholeJob(job, request)
      : null;
    const message = whole ?? encodeJson({ ...job, upload: true });
    const subject = workerId === null
      ? anyWorkerSubject(family)
      : jobSubject(family, workerId);
    const reply = edgeStreamSubject(context.edgeId, requestId, attempt);
    if (!context.publish(subject, message, reply)) return null;
    if (whole !== null) return new Attempt(context, offer, null);
    const upload = typeof request === "string" ? uploadOf(request) : request;
    return new Attempt(context, offer, upload);
  }

  private constructor(
    context: AttemptContext,
    offer: Offer,
    upload: Upload | null,
  ) {
    const { workerId } = offer;
    this.#context = context;
    this.#offer = offer;
    this.#upload = upload;
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
    if (stream.isAccepted && !wasAccepted && this.#upload !== null) {
      void this.#send(this.#upload, stream.workerId ?? "");
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

  /** Sends an upload in pieces, several at a time, each acknowledged. */
  async #send(upload: Upload, workerId: string): Promise<void> {
    const { bus, log } = this.#context;
    const { requestId, family, attempt, onBodyLost } = this.#offer;
    const subject = bodySubject(family, workerId, requestId);
    const send = (piece: Uint8Array) =>
      bus.request(subject, piece, { timeoutMs: PIECE_TIMEOUT_MS });
    try {
      const sending: Promise<unknown>[] = [];
      for (let index = 0;; index += 1) {
        const bytes = await upload.next();
        if (bytes === null || this.stream.isOver) break;
        const sent = send(encodePiece(bytes, attempt, index));
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
