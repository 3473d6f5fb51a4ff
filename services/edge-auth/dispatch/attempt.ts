/** One offer of a job to a worker, and the answer that may follow. */
import type { Frame } from "@gateway/shared/bus/frame";
import {
  encodeOffer,
  encodePiece,
  JOB_VERSION,
  pieceCount,
} from "@gateway/shared/bus/job";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import {
  type SendControl,
  type StreamEvent,
  StreamReceiver,
} from "@gateway/shared/bus/stream_receiver";
import {
  chatAnySubject,
  chatBodySubject,
  chatJobSubject,
  edgeStreamSubject,
} from "@gateway/shared/bus/subjects";
import { BUS_LIMITS } from "@gateway/shared/limits";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { WorkerTable } from "./workers.ts";

/** What all attempts of an edge share. */
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
  /** The request as JSON. A large one is sent when a worker has accepted the job. */
  request: string;
  /** W3C trace context. */
  traceparent: string | undefined;
  /** Which offer of the job this is, from 1. */
  attempt: number;
  /** How long the worker has. */
  deadlineMs: number;
  /** Null: any worker may accept it. */
  workerId: string | null;
  control: SendControl;
  /** The worker accepted the job but does not acknowledge the request. */
  onBodyLost: () => void;
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
    const { requestId, request, traceparent, attempt, workerId } = offer;
    const { message, isLarge } = encodeOffer({
      version: JOB_VERSION,
      attempt,
      deadlineMs: Math.max(1, Math.ceil(offer.deadlineMs)),
      ...(traceparent === undefined ? {} : { traceparent }),
    }, request);
    const subject = workerId === null
      ? chatAnySubject
      : chatJobSubject(workerId);
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

  /** Sends the pieces of a large request, several at a time, each acknowledged. */
  async #sendBody(workerId: string): Promise<void> {
    const { bus, log } = this.#context;
    const { requestId, attempt, request, onBodyLost } = this.#offer;
    const subject = chatBodySubject(workerId, requestId);
    const body = new TextEncoder().encode(request);
    const pieces = pieceCount(body.length);
    let next = 0;
    const sendSome = async () => {
      while (next < pieces && !this.stream.isOver) {
        const piece = encodePiece(body, attempt, next++);
        await bus.request(subject, piece, { timeoutMs: PIECE_TIMEOUT_MS });
      }
    };
    try {
      await Promise.all(
        Array.from({ length: BUS_LIMITS.piecesInFlight }, sendSome),
      );
    } catch (error) {
      const request = publicRequestId(requestId);
      log.warn("body_upload_failed", { requestId: request, workerId, error });
      if (!this.stream.isOver) onBodyLost();
    }
  }
}
