/** One offer of a job to a worker, and the stream of frames that may follow. */
import type {
  CancelReason,
  ControlRecord,
} from "@gateway/shared/bus/stream/control";
import { freeBytes } from "@gateway/shared/bus/free_bytes";
import {
  encodeJson,
  type Frame,
  FrameType,
} from "@gateway/shared/bus/stream/frame";
import { parseBackend } from "@gateway/shared/bus/stream/payloads";
import {
  encodeLargeRequest,
  encodePiece,
  encodeUploadEnd,
  encodeWholeJob,
  JOB_VERSION,
} from "@gateway/shared/bus/job";
import {
  answerStrayFrame,
  type StreamEvent,
  StreamReceiver,
} from "@gateway/shared/bus/stream/receiver";
import { subjects, type WorkerFamily } from "@gateway/shared/bus/subjects";
import { BUS_LIMITS } from "@gateway/shared/limits";
import { familyOf } from "@gateway/shared/models/kinds";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { RunJob } from "./outcome.ts";
import { type Upload, WholeBody } from "./request_body.ts";

/** What an offer uses of the bus; `EdgeBus` describes each. */
export interface OfferBus {
  sendJob(
    subject: string,
    job: Uint8Array,
    reply: { requestId: string; offerNumber: number },
  ): boolean;
  sendPiece(subject: string, piece: Uint8Array): Promise<unknown>;
  control(family: WorkerFamily, workerId: string, record: ControlRecord): void;
  hasFailedSince(ms: number): boolean;
  isSilentSince(ms: number): boolean;
}

/** The time of an edge, in ms. */
export interface OfferClock {
  now(): number;
  /** Excludes the time in which this process was stalled. */
  steadyNow(): number;
}

/** Who made the offer, and hears what becomes of it. */
export interface OfferOwner {
  /** Sends a record about the stream to its worker. */
  control(workerId: string, record: ControlRecord): void;
  /** The worker has acknowledged the whole body. */
  onBodyDelivered(): void;
  /** The body could not be sent to the worker, which counts as lost. */
  onWorkerLost(): void;
}

/** What an offer needs of its edge. */
export interface OfferTools {
  readonly bus: OfferBus;
  readonly clock: OfferClock;
  readonly log: Pick<Log, "warn">;
  readonly owner: OfferOwner;
}

/** To whom a job is offered, and for how long. */
export interface OfferTerms {
  /** Which offer of the job this is, from 1. Its frames have the same number. */
  readonly offerNumber: number;
  /** The run ends this many ms from now. */
  readonly deadlineMs: number;
  /** Null: any worker may accept it. */
  readonly workerId: string | null;
  /** The tokens that it asks for, if it has waited. */
  readonly queuedTokens?: number | undefined;
}

/** What a frame says of a job that was cancelled. */
export type CancelledEvent =
  /** It belongs to another offer. */
  | { readonly type: "stray" }
  /** The job never ran, so there is nothing to count. */
  | { readonly type: "rejected" }
  /** The job still runs. */
  | { readonly type: "running" }
  /** The job has ended. */
  | {
    readonly type: "ended";
    /** What it has made, in tokens or the unit of its kind. */
    readonly tokens: number;
    /** The backend that was asked last. */
    readonly backend: string | undefined;
  };

type Pieces = Pick<Upload, "next" | "end">;

/** A job that was sent to a worker, or to any. */
export class Offer {
  readonly #job: RunJob;
  readonly #tools: OfferTools;
  readonly #receiver: StreamReceiver;
  /** What follows once a worker has accepted the job; null if it had everything. */
  readonly #rest: Pieces | null;
  readonly #offeredAtMs: number;

  /**
   * Sends a job with its request; a large one follows once it is accepted. Null: the
   * bus is down, or the body was released.
   */
  static send(job: RunJob, terms: OfferTerms, tools: OfferTools): Offer | null {
    const { requestId, kind, traceparent, account, session, body } = job;
    const { keepKey, keyId } = job;
    const { offerNumber, deadlineMs, workerId, queuedTokens } = terms;
    // JSON leaves out what is undefined.
    const head = {
      version: JOB_VERSION,
      attempt: offerNumber,
      deadlineMs: Math.max(1, Math.ceil(deadlineMs)),
      traceparent,
      account,
      session,
      queuedTokens,
      keep: keepKey && { key: keepKey.toBase64(), keyId },
    };
    const bytes = body instanceof WholeBody ? body.send() : null;
    if (body instanceof WholeBody && bytes === null) return null;
    const whole = bytes === null ? null : encodeWholeJob(head, bytes);
    const subject = workerId === null
      ? subjects.anyWorker(familyOf(kind))
      : subjects.job(familyOf(kind), workerId);
    const message = whole ?? encodeJson({ ...head, upload: true });
    const isSent = tools.bus.sendJob(subject, message, {
      requestId,
      offerNumber,
    });
    if (!isSent) return null;
    const pieces = body instanceof WholeBody ? piecesOf(body) : body;
    const rest = whole === null ? pieces : null;
    return new Offer({ job, rest }, terms, tools);
  }

  private constructor(
    { job, rest }: { job: RunJob; rest: Pieces | null },
    { offerNumber, workerId }: OfferTerms,
    tools: OfferTools,
  ) {
    this.#job = job;
    this.#tools = tools;
    this.#rest = rest;
    this.#offeredAtMs = tools.clock.now();
    this.#receiver = new StreamReceiver({
      requestId: job.requestId,
      offerNumber,
      workerId,
      control: (worker, record) => tools.owner.control(worker, record),
      nowMs: tools.clock.steadyNow(),
    });
  }

  /** Which offer of the job this is, from 1. */
  get number(): number {
    return this.#receiver.offerNumber;
  }

  /** The worker that runs the job or was offered it; null while any may accept it. */
  get workerId(): string | null {
    return this.#receiver.workerId;
  }

  /** Whether a worker has accepted the job. */
  get isAccepted(): boolean {
    return this.#receiver.isAccepted;
  }

  /** Completion tokens known to have been generated. */
  get tokens(): number {
    return this.#receiver.tokens;
  }

  /**
   * Whether the bus has failed since the job was sent, so that it may not have come.
   */
  get mayBeUndelivered(): boolean {
    return this.#tools.bus.hasFailedSince(this.#offeredAtMs);
  }

  /** Handles a frame of the request, and says what it means. */
  onFrame(frame: Frame): StreamEvent {
    const wasAccepted = this.isAccepted;
    const event = this.#receiver.onFrame(
      frame,
      this.#tools.clock.steadyNow(),
    );
    if (this.isAccepted && !wasAccepted) {
      if (this.#rest === null) this.#tools.owner.onBodyDelivered();
      else void this.#send(this.#rest, this.workerId ?? "");
    }
    return event;
  }

  /**
   * Handles a frame after `cancel`: only the last one matters, for it says what the
   * job has cost.
   */
  onFrameAfterCancel(frame: Frame): CancelledEvent {
    const { type, offerNumber, sequence } = frame;
    if (offerNumber !== this.number) return { type: "stray" };
    if (type === FrameType.REJECT) return { type: "rejected" };
    // The cancel has not arrived, or was sent before the worker was known.
    if (type !== FrameType.ERR && type !== FrameType.END) {
      return { type: "running" };
    }
    // A numbered one is repeated until it is acknowledged.
    if (sequence > 0) {
      const { owner } = this.#tools;
      answerStrayFrame(
        this.#job.requestId,
        frame,
        (workerId, record) => owner.control(workerId, record),
      );
    }
    return {
      type: "ended",
      tokens: Math.max(frame.tokens, this.tokens),
      backend: parseBackend(frame.payload),
    };
  }

  /** Advances time: notices a worker that does not accept, or falls silent. */
  onTick(): StreamEvent {
    const { bus, clock } = this.#tools;
    this.#job.onTokens?.(this.tokens);
    // A worker does not have to answer while the bus delivers nothing at all.
    if (!this.isAccepted && bus.isSilentSince(this.#offeredAtMs)) {
      return { type: "nothing" };
    }
    return this.#receiver.onTick(clock.steadyNow());
  }

  /** The bus works again after an outage: what may be lost is requested at once. */
  onReconnect(): void {
    this.#receiver.onReconnect(this.#tools.clock.steadyNow());
  }

  /** The client's socket took everything up to this frame: the worker may send more. */
  delivered(sequence: number): void {
    this.#receiver.delivered(sequence);
  }

  /** Tells the worker to stop; nothing follows. */
  cancel(reason: CancelReason): void {
    this.#receiver.cancel(reason);
  }

  /** Sends an upload in pieces, and then its request. */
  async #send(upload: Pieces, workerId: string): Promise<void> {
    const { bus, log, owner } = this.#tools;
    const { requestId, kind } = this.#job;
    const subject = subjects.body(familyOf(kind), workerId, requestId);
    try {
      const pieceCount = await this.#sendPieces(upload, subject, 0);
      if (this.#receiver.isOver) return;
      const end = await upload.end();
      // Null: it must not run, and is cancelled.
      if (end === null) return;
      const large = encodeLargeRequest(end);
      if (large !== null) {
        await this.#sendPieces(slicesOf(() => large), subject, pieceCount);
      }
      const last = large === null ? end : { files: end.files };
      await bus.sendPiece(subject, encodeUploadEnd(last, this.number));
      owner.onBodyDelivered();
    } catch (error) {
      if (this.#receiver.isOver) return; // The worker acknowledges nothing more.
      log.warn("body_upload_failed", {
        requestId: publicRequestId(requestId),
        workerId,
        message: "A large request could not be sent to its worker",
        error,
      });
      owner.onWorkerLost();
    }
  }

  /**
   * Sends pieces from this index on, several at a time, each acknowledged. Resolves
   * with the index of the next one.
   */
  async #sendPieces(
    pieces: Pick<Pieces, "next">,
    subject: string,
    firstIndex: number,
  ): Promise<number> {
    const { bus } = this.#tools;
    const sending: Promise<unknown>[] = [];
    let index = firstIndex;
    for (;; index += 1) {
      const bytes = await pieces.next();
      if (bytes === null || this.#receiver.isOver) break;
      const piece = encodePiece(bytes, this.number, index);
      // A piece of a form is no longer needed; one of a whole body is a view of it.
      freeBytes(bytes);
      // What the worker has acknowledged is not in a buffer of the bus any more.
      const delivery = bus.sendPiece(subject, piece).then(() =>
        freeBytes(piece)
      );
      // Its failure is reported by the await below, perhaps some pieces later.
      delivery.catch(() => {});
      sending.push(delivery);
      if (sending.length >= BUS_LIMITS.piecesInFlight) await sending.shift();
    }
    await Promise.all(sending);
    return index;
  }
}

/** A request that is too large for one message. */
function piecesOf(body: WholeBody): Pieces {
  return {
    ...slicesOf(() => body.bytes),
    end: () => Promise.resolve({ files: [] }),
  };
}

/** Bytes in pieces of the bus, which are views, no copies; null once they are gone. */
function slicesOf(bytes: () => Uint8Array | null): Pick<Pieces, "next"> {
  let sentBytes = 0;
  return {
    next() {
      const end = sentBytes + BUS_LIMITS.pieceBytes;
      const piece = bytes()?.subarray(sentBytes, end);
      if (piece === undefined || piece.length === 0) {
        return Promise.resolve(null);
      }
      sentBytes += piece.length;
      return Promise.resolve(piece);
    },
  };
}
