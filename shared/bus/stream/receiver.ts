/**
 * The edge's end of the answer to one offer: delivers its frames in order and once,
 * acknowledges what the client has received, requests lost frames, and detects a
 * worker that does not accept the job or falls silent.
 *
 * A pure state machine: events are method calls with their time, and each returns its
 * result. After `rejected`, `ended`, `failed`, `lost`, `violated` or `cancel()`,
 * nothing follows.
 *
 * Frames after a gap are dropped and requested again: a bus that keeps the order per
 * connection loses only runs of frames, so keeping a few would not be worth the memory.
 *
 * An ACK means that the client's socket accepted everything up to a frame, so a slow
 * client stops the worker. Only END and ERR are acknowledged on arrival: nothing is
 * sent again after them, and the worker need not wait for the slowest client.
 */
import {
  DISPATCH_LIMITS,
  STREAM_LIMITS,
  type StreamLimits,
} from "../../limits.ts";
import type { CancelReason, ControlAction, ControlRecord } from "./control.ts";
import { type Frame, FRAME_HEADER_BYTES, FrameType } from "./frame.ts";
import {
  type AnswerEnd,
  type Failure,
  parseEnd,
  parseErr,
  parseReject,
  parseWorker,
  type RejectPayload,
} from "./payloads.ts";

/**
 * Why a worker counts as lost. `not_accepted`: no frame of the job arrived within
 * `acceptMs`. `silent`: it accepted the job, then sent nothing for `silenceLostMs`.
 */
export type LostReason = "not_accepted" | "silent";

/**
 * How a worker violates the protocol. `payload`: a payload does not match the type of
 * its frame. `window`: it sends more bytes than the window allows. `worker`: two
 * workers answer one offer.
 */
export type Violation = "payload" | "window" | "worker";

/** What a frame or a tick means for the request. */
export type StreamEvent =
  /** Nothing that the caller must act on. */
  | { type: "nothing" }
  /** A frame of another offer, or after the end: answer it with `answerStrayFrame`. */
  | { type: "stray" }
  /**
   * The next bytes, a view: copy what you keep. Call `delivered(sequence)` when the
   * client's socket has taken them.
   */
  | { type: "data"; payload: Uint8Array; sequence: number }
  /** The worker does not run the job: another one may. */
  | { type: "rejected"; reject: RejectPayload }
  /** The answer is complete. */
  | { type: "ended"; end: AnswerEnd }
  /** The worker reports that the answer will not be completed. */
  | { type: "failed"; failure: Failure }
  /** The worker does not answer. */
  | { type: "lost"; reason: LostReason }
  /** The worker violates the protocol: a bug or another version. */
  | { type: "violated"; violation: Violation };

/** Sends a control record to a worker. Must not throw. */
export type SendControl = (workerId: string, record: ControlRecord) => void;

/** The offer whose answer is received, and how its worker gets control records. */
export interface StreamReceiverOptions {
  requestId: string;
  /** The number of the offer, from 1. Frames of any other are `stray`. */
  offerNumber: number;
  /** The worker the job was sent to, or null if any may accept it. */
  workerId: string | null;
  /** When the job was sent, on the clock of all other times. */
  nowMs: number;
  control: SendControl;
  /** Default: `STREAM_LIMITS`. */
  limits?: StreamLimits;
}

const NOTHING: StreamEvent = { type: "nothing" };
const STRAY: StreamEvent = { type: "stray" };

/**
 * NAKs are paced: at most one in `nakIntervalMs` and, while they have no effect, ever
 * fewer, down to one in `nakIntervalMaxMs`. While repeated frames arrive, the next
 * NAK waits for twice `nakIntervalMs`.
 */
export class StreamReceiver {
  readonly offerNumber: number;
  /** The worker that runs the job or was offered it, or null. */
  workerId: string | null;
  /** Whether a worker is known to run the job. */
  isAccepted = false;
  /** Nothing follows: all frames are `stray` from now on. */
  isOver = false;
  /**
   * Completion tokens known to have been generated: what a cut stream is charged for.
   */
  tokens = 0;
  /** Bytes delivered that the client has not received, including frame headers. */
  undeliveredBytes = 0;
  readonly #limits: StreamLimits;
  #frameMs: number;
  /**
   * The number of the next frame, and the highest number that exists as far as we know.
   */
  #expected = 1;
  #highest = 0;
  /** When the last NAK was sent, when the next one may be, and the pause after that. */
  #lastNakMs: number;
  #nextNakMs = -Infinity;
  #nakDelayMs: number;
  /** `undeliveredBytes`, frame by frame. */
  readonly #undelivered: number[] = [];
  #takenSequence = 0;
  #ackedSequence = 0;
  /** Bytes that the client has received since the last acknowledgement. */
  #unackedBytes = 0;

  constructor(readonly options: StreamReceiverOptions) {
    this.offerNumber = options.offerNumber;
    this.#limits = options.limits ?? STREAM_LIMITS;
    this.#nakDelayMs = this.#limits.nakIntervalMs;
    this.workerId = options.workerId;
    this.#frameMs = options.nowMs;
    this.#lastNakMs = options.nowMs;
  }

  /** A frame of this request has arrived, of whichever offer. */
  onFrame(frame: Frame, nowMs: number): StreamEvent {
    if (this.isOver || frame.offerNumber !== this.offerNumber) return STRAY;
    this.#frameMs = nowMs;
    this.tokens = Math.max(this.tokens, frame.tokens);
    switch (frame.type) {
      case FrameType.REJECT:
        return this.#onReject(frame);
      case FrameType.ACCEPT:
      case FrameType.BEAT:
        return this.#onSign(frame, nowMs);
      default:
        return this.#onNumbered(frame, nowMs);
    }
  }

  /** The client's socket has accepted everything up to and including this frame. */
  delivered(sequence: number): void {
    const count = sequence - this.#takenSequence;
    if (this.isOver || count <= 0) return;
    for (const bytes of this.#undelivered.splice(0, count)) {
      this.undeliveredBytes -= bytes;
      this.#unackedBytes += bytes;
    }
    this.#takenSequence = sequence;
    const unackedFrames = sequence - this.#ackedSequence;
    const { ackBytes, ackFrames } = this.#limits;
    if (this.#unackedBytes >= ackBytes || unackedFrames >= ackFrames) {
      this.#ack();
    }
  }

  /** Tells the worker that accepted the job, if there is one, to stop. */
  cancel(reason: CancelReason): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#send({ type: "cancel", reason });
  }

  /** The bus works again after an outage: requests at once what may be lost. */
  onReconnect(nowMs: number): void {
    if (this.isOver || !this.isAccepted) return;
    this.#nextNakMs = nowMs;
    this.#nakDelayMs = this.#limits.nakIntervalMs;
    this.#sendNak(nowMs);
  }

  /** Must be called every `tickMs`. */
  onTick(nowMs: number): StreamEvent {
    if (this.isOver) return NOTHING;
    if (!this.isAccepted) {
      const isInTime = nowMs - this.options.nowMs < DISPATCH_LIMITS.acceptMs;
      return isInTime ? NOTHING : this.#lose("not_accepted", "not_accepted");
    }
    const { silenceLostMs, silenceProbeMs } = this.#limits;
    if (nowMs - this.#frameMs >= silenceLostMs) {
      return this.#lose("silent", "worker_lost");
    }
    const silentSinceMs = Math.max(this.#frameMs, this.#lastNakMs);
    const isSilent = nowMs - silentSinceMs >= silenceProbeMs;
    if (isSilent || this.#highest >= this.#expected) this.#sendNak(nowMs);
    return NOTHING;
  }

  #onSign(frame: Frame, nowMs: number): StreamEvent {
    const workerId = parseWorker(frame.payload);
    if (workerId === null) return this.#violate("payload");
    this.workerId ??= workerId;
    if (this.workerId !== workerId) return this.#violate("worker");
    this.isAccepted = true;
    // Repeats an ACK that may have been lost, and shows that the edge is alive.
    if (frame.type === FrameType.BEAT) this.#ack();
    return this.#noteGap(frame.sequence, nowMs);
  }

  #onReject(frame: Frame): StreamEvent {
    // An answer that has begun can end only with END or ERR.
    if (this.#expected > 1) return NOTHING;
    const reject = parseReject(frame.payload);
    if (reject === null) return this.#violate("payload");
    this.isOver = true;
    return { type: "rejected", reject };
  }

  #onNumbered(frame: Frame, nowMs: number): StreamEvent {
    // Frames cannot be requested or acknowledged before the worker is known: the next
    // BEAT names it, and states how far the answer has got.
    if (this.workerId === null) return NOTHING;
    this.isAccepted = true;
    const { type, payload, sequence } = frame;
    if (sequence !== this.#expected) return this.#noteGap(sequence, nowMs);
    this.#expected += 1;
    const { nakIntervalMs, windowBytes } = this.#limits;
    this.#nakDelayMs = nakIntervalMs;
    this.#nextNakMs = this.#highest >= this.#expected
      ? nowMs + 2 * nakIntervalMs
      : Math.min(this.#nextNakMs, nowMs + nakIntervalMs);
    if (type !== FrameType.DATA) return this.#onEnd(frame);
    const bytes = FRAME_HEADER_BYTES + payload.length;
    this.#undelivered.push(bytes);
    this.undeliveredBytes += bytes;
    return this.undeliveredBytes <= windowBytes
      ? { type: "data", payload, sequence }
      : this.#violate("window");
  }

  #onEnd({ type, payload, sequence, tokens }: Frame): StreamEvent {
    const failure = type === FrameType.ERR ? parseErr(payload) : null;
    const end = type === FrameType.ERR ? failure : parseEnd(payload);
    if (end === null) return this.#violate("payload");
    if (end.worker !== this.workerId) return this.#violate("worker");
    this.isOver = true;
    // Exact, where earlier frames may have had an estimate.
    this.tokens = tokens;
    this.#send({ type: "ack", sequence });
    return failure === null
      ? { type: "ended", end }
      : { type: "failed", failure };
  }

  #ack(): void {
    this.#unackedBytes = 0;
    this.#ackedSequence = this.#takenSequence;
    this.#send({ type: "ack", sequence: this.#ackedSequence });
  }

  /** Frames up to `sequence` exist. */
  #noteGap(sequence: number, nowMs: number): StreamEvent {
    this.#highest = Math.max(this.#highest, sequence);
    if (sequence >= this.#expected) this.#sendNak(nowMs);
    return NOTHING;
  }

  #sendNak(nowMs: number): void {
    if (nowMs < this.#nextNakMs) return;
    this.#lastNakMs = nowMs;
    this.#nextNakMs = nowMs + this.#nakDelayMs;
    const { nakIntervalMaxMs } = this.#limits;
    this.#nakDelayMs = Math.min(2 * this.#nakDelayMs, nakIntervalMaxMs);
    this.#send({ type: "nak", sequence: this.#expected });
  }

  #lose(reason: LostReason, cancel: CancelReason): StreamEvent {
    this.cancel(cancel);
    return { type: "lost", reason };
  }

  #violate(violation: Violation): StreamEvent {
    this.cancel("violation");
    return { type: "violated", violation };
  }

  #send(action: ControlAction): void {
    const { control, requestId } = this.options;
    if (this.workerId === null) return;
    control(this.workerId, {
      ...action,
      requestId,
      offerNumber: this.offerNumber,
    });
  }
}

/**
 * Answers a frame without a receiver: acknowledges the end of a stream, so that the
 * worker forgets it, and cancels one that still runs. Ignores DATA, which does not
 * name its worker, and REJECT; a worker without an answer sends a BEAT.
 */
export function answerStrayFrame(
  requestId: string,
  { type, offerNumber, sequence, payload }: Frame,
  control: SendControl,
): void {
  if (type === FrameType.DATA || type === FrameType.REJECT) return;
  const workerId = parseWorker(payload);
  if (workerId === null) return;
  const isEnd = type === FrameType.END || type === FrameType.ERR;
  control(
    workerId,
    isEnd
      ? { type: "ack", requestId, offerNumber, sequence }
      : { type: "cancel", requestId, offerNumber, reason: "unknown_stream" },
  );
}
