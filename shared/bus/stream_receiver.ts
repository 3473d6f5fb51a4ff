/**
 * The edge's end of one attempt's answer: puts its frames in order, hands each on
 * once, acknowledges what the client took, asks for what was lost, and notices a
 * worker that does not take the job or falls silent.
 *
 * A pure state machine, driven like the sender (`stream_sender.ts`): events are
 * method calls with their time, actions are calls of
 * {@link StreamReceiverHandlers}. Handlers must not throw, and may call
 * `delivered` and `cancel`.
 *
 * An attempt ends in exactly one of `rejected`, `ended`, `failed`, `lost`,
 * `violated`, or by `cancel`; nothing is called after it.
 *
 * Order. Frames after a gap are dropped and asked for again: a bus that keeps
 * order per connection only ever loses runs of frames, so keeping the few that
 * outran a NAK would buy little for the memory.
 *
 * Credit. An ACK says that the client's socket took everything up to a frame, so
 * a slow client stops the worker and not more than `windowBytes` wait at the edge.
 * Only END and ERR are acknowledged on arrival: nothing will be sent again after
 * them, and the worker need not live as long as the slowest client.
 */

import {
  DISPATCH_LIMITS,
  STREAM_LIMITS,
  type StreamLimits,
} from "../limits.ts";
import type { CancelReason } from "./control.ts";
import { DeliveryCredit } from "./delivery_credit.ts";
import { type Frame, FRAME_HEADER_BYTES, FrameType } from "./frame.ts";
import {
  type AcceptPayload,
  type EndPayload,
  type ErrPayload,
  parseEnd,
  parseErr,
  parseReject,
  parseWorker,
  type RejectPayload,
} from "./frame_payload.ts";
import { GapWatch } from "./gap_watch.ts";
import { stallMs } from "./stall.ts";

/** `not_accepted`: no sign of the job within `acceptMs`. `silent`: accepted, then nothing for `silenceLostMs`. */
export type LostReason = "not_accepted" | "silent";

/** `payload`: not what its type says. `window`: more bytes than credit. `worker`: two workers answer one attempt. */
export type Violation = "payload" | "window" | "worker";

/** What a {@link StreamReceiver} does. `tokens` are the completion tokens known to be produced. */
export interface StreamReceiverHandlers {
  /** The job runs at this worker. Once, before `deliver`, `ended` and `failed`. */
  accepted(workerId: string): void;
  /** The job does not run: try another worker. */
  rejected(reject: RejectPayload): void;
  /**
   * The next bytes of the answer, a view of the message: copy what is kept. To be
   * reported by `delivered(sequence)` when the client's socket has taken them.
   */
  deliver(payload: Uint8Array, sequence: number): void;
  /** The answer is complete with what was delivered. */
  ended(end: EndPayload, tokens: number): void;
  /** The answer stays incomplete with what was delivered. */
  failed(error: ErrPayload, tokens: number): void;
  /** Nobody answers. */
  lost(reason: LostReason, tokens: number): void;
  /** The worker breaks the protocol: a bug or another version. */
  violated(violation: Violation, tokens: number): void;
  sendAck(workerId: string, sequence: number): void;
  sendNak(workerId: string, fromSequence: number): void;
  sendCancel(workerId: string, reason: CancelReason): void;
}

/** What a {@link StreamReceiver} is made with. */
export interface StreamReceiverOptions {
  attempt: number;
  /** The worker the job was sent to, or null when any may take it. */
  workerId: string | null;
  /** When the job was sent. */
  nowMs: number;
  /** How long a worker may take to accept. Default `DISPATCH_LIMITS.acceptMs`. */
  acceptMs?: number;
  limits?: StreamLimits;
}

/** The receiving end of one attempt. Made when the job is sent. */
export class StreamReceiver {
  readonly attempt: number;
  readonly #limits: StreamLimits;
  readonly #acceptMs: number;
  readonly #handlers: StreamReceiverHandlers;
  readonly #gap: GapWatch;
  readonly #credit: DeliveryCredit;
  #workerId: string | null;
  #isAccepted = false;
  #isOver = false;
  #tokens = 0;
  #sentMs: number;
  #frameMs: number;
  #probeMs: number;
  #tickMs: number;

  constructor(
    options: StreamReceiverOptions,
    handlers: StreamReceiverHandlers,
  ) {
    this.attempt = options.attempt;
    this.#limits = options.limits ?? STREAM_LIMITS;
    this.#acceptMs = options.acceptMs ?? DISPATCH_LIMITS.acceptMs;
    this.#handlers = handlers;
    this.#gap = new GapWatch(this.#limits);
    this.#credit = new DeliveryCredit(this.#limits);
    this.#workerId = options.workerId;
    this.#sentMs = options.nowMs;
    this.#frameMs = options.nowMs;
    this.#probeMs = options.nowMs;
    this.#tickMs = options.nowMs;
  }

  /** Who runs the job, or was asked to, or null. */
  get workerId(): string | null {
    return this.#workerId;
  }

  get isAccepted(): boolean {
    return this.#isAccepted;
  }

  /** Whether the attempt has ended in any way. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Completion tokens known to be produced: what a cut stream is settled with. */
  get tokens(): number {
    return this.#tokens;
  }

  /** Bytes handed on that the client has not taken, frame headers included. */
  get undeliveredBytes(): number {
    return this.#credit.undeliveredBytes;
  }

  /**
   * Takes a frame of this request. False for one of another attempt, or after the
   * end: it is to be answered by `strayFrameAnswer`.
   */
  onFrame(frame: Frame, nowMs: number): boolean {
    if (this.#isOver || frame.attempt !== this.attempt) return false;
    this.#frameMs = nowMs;
    if (frame.tokens > this.#tokens) this.#tokens = frame.tokens;
    switch (frame.type) {
      case FrameType.DATA:
      case FrameType.END:
      case FrameType.ERR:
        this.#onNumbered(frame, nowMs);
        return true;
      case FrameType.REJECT:
        this.#onReject(frame);
        return true;
      case FrameType.ACCEPT:
      case FrameType.BEAT:
        this.#onSign(frame, nowMs);
        return true;
    }
  }

  /** The client's socket has taken everything up to and with this frame. */
  delivered(sequence: number): void {
    if (!this.#isOver && this.#credit.take(sequence)) this.#ack();
  }

  /** The edge wants no more of it. Calls nothing but `sendCancel`. */
  cancel(reason: CancelReason): void {
    if (!this.#isOver) this.#close(reason);
  }

  /** The bus is back after it was away: asks at once for what may be lost. */
  onReconnect(nowMs: number): void {
    if (this.#isOver || !this.#isAccepted) return;
    this.#gap.hurry();
    this.#probe(nowMs);
  }

  /** Time passes: to be called every `tickMs`. */
  onTick(nowMs: number): void {
    if (this.#isOver) return;
    this.#countOutStall(nowMs);
    if (!this.#isAccepted) {
      if (nowMs - this.#sentMs >= this.#acceptMs) {
        this.#lose("not_accepted", "not_accepted");
      }
    } else if (nowMs - this.#frameMs >= this.#limits.silenceLostMs) {
      this.#lose("silent", "worker_lost");
    } else if (this.#gap.isOpen) {
      this.#ask(nowMs);
    } else if (this.#isProbeDue(nowMs)) {
      this.#probe(nowMs);
    }
  }

  #onSign(frame: Frame, nowMs: number): void {
    const workerId = parseWorker(frame.payload);
    if (workerId === null) {
      this.#violate("payload");
      return;
    }
    if (!this.#accept(workerId)) return;
    // Repeats an ACK that may be lost, and tells the worker that it is heard.
    if (frame.type === FrameType.BEAT) this.#ack();
    this.#noteGap(frame.sequence, nowMs);
  }

  #onReject(frame: Frame): void {
    // An answer that has begun can only end by END or ERR.
    if (this.#gap.expected > 1) return;
    const reject = parseReject(frame.payload);
    if (reject === null) {
      this.#violate("payload");
      return;
    }
    this.#isOver = true;
    this.#handlers.rejected(reject);
  }

  #onNumbered(frame: Frame, nowMs: number): void {
    // Without its worker's name nothing can be asked or acknowledged: the next
    // BEAT tells it, and how far the answer has got.
    if (this.#workerId === null) return;
    if (!this.#accept(this.#workerId)) return;
    if (frame.sequence !== this.#gap.expected) {
      this.#noteGap(frame.sequence, nowMs);
      return;
    }
    this.#gap.advance(nowMs);
    switch (frame.type) {
      case FrameType.END:
        this.#onEnd(frame);
        return;
      case FrameType.ERR:
        this.#onErr(frame);
        return;
      default:
        this.#onData(frame);
    }
  }

  /** Tells of the acceptance once. False if the attempt is over afterwards. */
  #accept(workerId: string): boolean {
    if (this.#workerId !== null && this.#workerId !== workerId) {
      this.#violate("worker");
    } else if (!this.#isAccepted) {
      this.#workerId = workerId;
      this.#isAccepted = true;
      this.#handlers.accepted(workerId);
    }
    return !this.#isOver;
  }

  #onData(frame: Frame): void {
    if (this.#credit.add(FRAME_HEADER_BYTES + frame.payload.length)) {
      this.#handlers.deliver(frame.payload, frame.sequence);
    } else {
      this.#violate("window");
    }
  }

  #onEnd(frame: Frame): void {
    const parsed = parseEnd(frame.payload);
    if (!this.#isOfWorker(parsed)) return;
    const { worker, ...end } = parsed;
    this.#isOver = true;
    this.#handlers.sendAck(worker, frame.sequence);
    this.#handlers.ended(end, this.#tokens);
  }

  #onErr(frame: Frame): void {
    const parsed = parseErr(frame.payload);
    if (!this.#isOfWorker(parsed)) return;
    const { worker, ...error } = parsed;
    this.#isOver = true;
    this.#handlers.sendAck(worker, frame.sequence);
    this.#handlers.failed(error, this.#tokens);
  }

  #isOfWorker<T extends AcceptPayload>(parsed: T | null): parsed is T {
    if (parsed === null) this.#violate("payload");
    else if (parsed.worker !== this.#workerId) this.#violate("worker");
    else return true;
    return false;
  }

  #ack(): void {
    const sequence = this.#credit.acknowledge();
    if (this.#workerId !== null) {
      this.#handlers.sendAck(this.#workerId, sequence);
    }
  }

  #noteGap(sequence: number, nowMs: number): void {
    this.#gap.note(sequence);
    if (sequence >= this.#gap.expected) this.#ask(nowMs);
  }

  #ask(nowMs: number): void {
    if (this.#workerId === null || !this.#gap.tryAsk(nowMs)) return;
    this.#handlers.sendNak(this.#workerId, this.#gap.expected);
  }

  #isProbeDue(nowMs: number): boolean {
    return nowMs - Math.max(this.#frameMs, this.#probeMs) >=
      this.#limits.silenceProbeMs;
  }

  #probe(nowMs: number): void {
    this.#probeMs = nowMs;
    this.#ask(nowMs);
  }

  #countOutStall(nowMs: number): void {
    const pauseMs = stallMs(this.#tickMs, nowMs, this.#limits);
    this.#tickMs = nowMs;
    this.#sentMs = Math.min(nowMs, this.#sentMs + pauseMs);
    this.#frameMs = Math.min(nowMs, this.#frameMs + pauseMs);
  }

  #lose(reason: LostReason, cancel: CancelReason): void {
    this.#close(cancel);
    this.#handlers.lost(reason, this.#tokens);
  }

  #violate(violation: Violation): void {
    this.#close("violation");
    this.#handlers.violated(violation, this.#tokens);
  }

  #close(reason: CancelReason): void {
    this.#isOver = true;
    if (this.#workerId !== null) {
      this.#handlers.sendCancel(this.#workerId, reason);
    }
  }
}
