/**
 * The edge's end of one attempt's answer: puts its frames in order, hands each on
 * once, acknowledges what the client took, asks for what was lost, and notices a
 * worker that does not take the job or falls silent.
 *
 * A pure state machine: events are method calls with their time, and each returns
 * what came of it. What the worker must hear goes to its control records. An
 * attempt ends by one of the events `rejected`, `ended`, `failed`, `lost` and
 * `violated`, or by `cancel()`; nothing follows.
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
import type { CancelReason, ControlSink } from "./control.ts";
import {
  type AcceptPayload,
  type EndPayload,
  type ErrPayload,
  type Frame,
  FRAME_HEADER_BYTES,
  FrameType,
  parseEnd,
  parseErr,
  parseReject,
  parseWorker,
  type RejectPayload,
} from "./frame.ts";

/** `not_accepted`: no sign of the job within `acceptMs`. `silent`: accepted, then nothing for `silenceLostMs`. */
export type LostReason = "not_accepted" | "silent";

/** `payload`: not what its type says. `window`: more bytes than credit. `worker`: two workers answer one attempt. */
export type Violation = "payload" | "window" | "worker";

/** What came of a frame or a tick. */
export type StreamEvent =
  | { type: "nothing" }
  /** A frame of another attempt, or after the end: to be answered by `answerStrayFrame`. */
  | { type: "stray" }
  /**
   * The next bytes of the answer, a view of the message: copy what is kept. To be
   * reported by `delivered(sequence)` when the client's socket has taken them.
   */
  | { type: "data"; payload: Uint8Array; sequence: number }
  /** The job does not run: try another worker. */
  | { type: "rejected"; reject: RejectPayload }
  /** The answer is complete with what was handed on. */
  | { type: "ended"; end: EndPayload }
  /** The answer stays incomplete with what was handed on. */
  | { type: "failed"; error: ErrPayload }
  /** Nobody answers. */
  | { type: "lost"; reason: LostReason }
  /** The worker breaks the protocol: a bug or another version. */
  | { type: "violated"; violation: Violation };

/** What a {@link StreamReceiver} is made with. */
export interface StreamReceiverOptions {
  requestId: string;
  attempt: number;
  /** The worker the job was sent to, or null when any may take it. */
  workerId: string | null;
  /** When the job was sent. */
  nowMs: number;
  /** Takes what a worker must hear. */
  controlFor: (workerId: string) => ControlSink;
  limits?: StreamLimits;
}

const NOTHING: StreamEvent = { type: "nothing" };
const STRAY: StreamEvent = { type: "stray" };

/** The receiving end of one attempt. Made when the job is sent. */
export class StreamReceiver {
  readonly attempt: number;
  readonly #options: StreamReceiverOptions;
  readonly #limits: StreamLimits;
  readonly #gap: GapWatch;
  readonly #credit: DeliveryCredit;
  #workerId: string | null;
  #isAccepted = false;
  #isOver = false;
  #tokens = 0;
  #naks = 0;
  #frameMs: number;
  #probeMs: number;

  constructor(options: StreamReceiverOptions) {
    this.attempt = options.attempt;
    this.#options = options;
    this.#limits = options.limits ?? STREAM_LIMITS;
    this.#gap = new GapWatch(this.#limits);
    this.#credit = new DeliveryCredit(this.#limits);
    this.#workerId = options.workerId;
    this.#frameMs = options.nowMs;
    this.#probeMs = options.nowMs;
  }

  /** Who runs the job, or was asked to, or null. */
  get workerId(): string | null {
    return this.#workerId;
  }

  /** Whether the job runs at this worker. */
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

  /** How often frames were asked for again. */
  get naks(): number {
    return this.#naks;
  }

  /** Bytes handed on that the client has not taken, frame headers included. */
  get undeliveredBytes(): number {
    return this.#credit.undeliveredBytes;
  }

  /** Takes a frame of this request. */
  onFrame(frame: Frame, nowMs: number): StreamEvent {
    if (this.#isOver || frame.attempt !== this.attempt) return STRAY;
    this.#frameMs = nowMs;
    this.#tokens = Math.max(this.#tokens, frame.tokens);
    switch (frame.type) {
      case FrameType.DATA:
      case FrameType.END:
      case FrameType.ERR:
        return this.#onNumbered(frame, nowMs);
      case FrameType.REJECT:
        return this.#onReject(frame);
      case FrameType.ACCEPT:
      case FrameType.BEAT:
        return this.#onSign(frame, nowMs);
    }
  }

  /** The client's socket has taken everything up to and with this frame. */
  delivered(sequence: number): void {
    if (!this.#isOver && this.#credit.take(sequence)) this.#ack();
  }

  /** The edge wants no more of it. */
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
  onTick(nowMs: number): StreamEvent {
    if (this.#isOver) return NOTHING;
    if (!this.#isAccepted) {
      return nowMs - this.#options.nowMs < DISPATCH_LIMITS.acceptMs
        ? NOTHING
        : this.#lose("not_accepted", "not_accepted");
    }
    const { silenceLostMs, silenceProbeMs } = this.#limits;
    if (nowMs - this.#frameMs >= silenceLostMs) {
      return this.#lose("silent", "worker_lost");
    }
    if (this.#gap.isOpen) this.#ask(nowMs);
    else if (nowMs - Math.max(this.#frameMs, this.#probeMs) >= silenceProbeMs) {
      this.#probe(nowMs);
    }
    return NOTHING;
  }

  #onSign(frame: Frame, nowMs: number): StreamEvent {
    const workerId = parseWorker(frame.payload);
    if (workerId === null) return this.#violate("payload");
    if (!this.#accept(workerId)) return this.#violate("worker");
    // Repeats an ACK that may be lost, and tells the worker that it is heard.
    if (frame.type === FrameType.BEAT) this.#ack();
    return this.#noteGap(frame.sequence, nowMs);
  }

  #onReject(frame: Frame): StreamEvent {
    // An answer that has begun can only end by END or ERR.
    if (this.#gap.expected > 1) return NOTHING;
    const reject = parseReject(frame.payload);
    if (reject === null) return this.#violate("payload");
    this.#isOver = true;
    return { type: "rejected", reject };
  }

  #onNumbered(frame: Frame, nowMs: number): StreamEvent {
    // Without its worker's name nothing can be asked or acknowledged: the next
    // BEAT tells it, and how far the answer has got.
    if (this.#workerId === null) return NOTHING;
    this.#isAccepted = true;
    const { type, payload, sequence } = frame;
    if (sequence !== this.#gap.expected) return this.#noteGap(sequence, nowMs);
    this.#gap.advance(nowMs);
    if (type === FrameType.DATA) {
      return this.#credit.add(FRAME_HEADER_BYTES + payload.length)
        ? { type: "data", payload, sequence }
        : this.#violate("window");
    }
    return type === FrameType.END
      ? this.#finish(
        sequence,
        parseEnd(payload),
        (end) => ({ type: "ended", end }),
      )
      : this.#finish(
        sequence,
        parseErr(payload),
        (error) => ({ type: "failed", error }),
      );
  }

  #finish<T extends AcceptPayload>(
    sequence: number,
    parsed: T | null,
    eventOf: (payload: Omit<T, "worker">) => StreamEvent,
  ): StreamEvent {
    if (parsed === null) return this.#violate("payload");
    const { worker, ...payload } = parsed;
    if (worker !== this.#workerId) return this.#violate("worker");
    this.#isOver = true;
    this.#tell((control, id) => control.ack(id, this.attempt, sequence));
    return eventOf(payload);
  }

  /** False when the job runs at another worker. */
  #accept(workerId: string): boolean {
    if (this.#workerId !== null && this.#workerId !== workerId) return false;
    this.#workerId = workerId;
    this.#isAccepted = true;
    return true;
  }

  #ack(): void {
    const sequence = this.#credit.acknowledge();
    this.#tell((control, id) => control.ack(id, this.attempt, sequence));
  }

  #noteGap(sequence: number, nowMs: number): StreamEvent {
    this.#gap.note(sequence);
    if (sequence >= this.#gap.expected) this.#ask(nowMs);
    return NOTHING;
  }

  #ask(nowMs: number): void {
    if (!this.#gap.tryAsk(nowMs)) return;
    const from = this.#gap.expected;
    this.#naks += 1;
    this.#tell((control, id) => control.nak(id, this.attempt, from));
  }

  #probe(nowMs: number): void {
    this.#probeMs = nowMs;
    this.#ask(nowMs);
  }

  #lose(reason: LostReason, cancel: CancelReason): StreamEvent {
    this.#close(cancel);
    return { type: "lost", reason };
  }

  #violate(violation: Violation): StreamEvent {
    this.#close("violation");
    return { type: "violated", violation };
  }

  #close(reason: CancelReason): void {
    this.#isOver = true;
    this.#tell((control, id) => control.cancel(id, this.attempt, reason));
  }

  #tell(say: (control: ControlSink, requestId: string) => void): void {
    const { controlFor, requestId } = this.#options;
    if (this.#workerId !== null) say(controlFor(this.#workerId), requestId);
  }
}

/**
 * Which frame must come next, whether one is missing, and when to ask for it.
 *
 * Asking is paced: at most once in `nakIntervalMs`, and ever less often, down to
 * once in `nakIntervalMaxMs`, while it changes nothing. As soon as an answer
 * arrives, frame after frame, it gets twice that interval from the latest one.
 */
class GapWatch {
  readonly #limits: StreamLimits;
  /** The number of the frame that must come next. */
  expected = 1;
  /** The highest number that is known to exist. */
  #known = 0;
  #dueMs = -Infinity;
  #delayMs: number;

  constructor(limits: StreamLimits) {
    this.#limits = limits;
    this.#delayMs = limits.nakIntervalMs;
  }

  /** Whether the expected frame is known to exist. */
  get isOpen(): boolean {
    return this.#known >= this.expected;
  }

  /** Frames up to `sequence` exist. */
  note(sequence: number): void {
    this.#known = Math.max(this.#known, sequence);
  }

  /** The expected frame came. */
  advance(nowMs: number): void {
    const { nakIntervalMs } = this.#limits;
    this.expected++;
    this.#delayMs = nakIntervalMs;
    if (this.isOpen) this.#dueMs = nowMs + 2 * nakIntervalMs;
    else this.#dueMs = Math.min(this.#dueMs, nowMs + nakIntervalMs);
  }

  /** Forgets the pace: the bus was away, and the answers with it. */
  hurry(): void {
    this.#dueMs = -Infinity;
    this.#delayMs = this.#limits.nakIntervalMs;
  }

  /** Whether to ask now. If so, the next time is later. */
  tryAsk(nowMs: number): boolean {
    if (nowMs < this.#dueMs) return false;
    this.#dueMs = nowMs + this.#delayMs;
    this.#delayMs = Math.min(2 * this.#delayMs, this.#limits.nakIntervalMaxMs);
    return true;
  }
}

/**
 * What was handed on, what the client has taken of it, and when that is worth an
 * acknowledgement: after `ackBytes` or `ackFrames`. Bytes include frame headers,
 * as in the sender's window.
 */
class DeliveryCredit {
  readonly #limits: StreamLimits;
  /** Bytes of each frame that the client has not taken, in order. */
  readonly #frameBytes: number[] = [];
  undeliveredBytes = 0;
  #unackedBytes = 0;
  #deliveredSequence = 0;
  #ackedSequence = 0;

  constructor(limits: StreamLimits) {
    this.#limits = limits;
  }

  /** Counts the next frame. False when that is more than the window allows. */
  add(frameBytes: number): boolean {
    this.#frameBytes.push(frameBytes);
    this.undeliveredBytes += frameBytes;
    return this.undeliveredBytes <= this.#limits.windowBytes;
  }

  /** The client has taken everything up to and with this frame. True when an acknowledgement is due. */
  take(sequence: number): boolean {
    const count = sequence - this.#deliveredSequence;
    if (count <= 0) return false;
    if (count > this.#frameBytes.length) {
      throw new Error(`Frame ${sequence} was not handed on yet`);
    }
    for (const bytes of this.#frameBytes.splice(0, count)) {
      this.undeliveredBytes -= bytes;
      this.#unackedBytes += bytes;
    }
    this.#deliveredSequence = sequence;
    return this.#unackedBytes >= this.#limits.ackBytes ||
      sequence - this.#ackedSequence >= this.#limits.ackFrames;
  }

  /** The sequence number to acknowledge now, due or not. */
  acknowledge(): number {
    this.#unackedBytes = 0;
    this.#ackedSequence = this.#deliveredSequence;
    return this.#ackedSequence;
  }
}

/**
 * Answers a frame that no receiver took: its request is finished, its attempt is
 * an old one, or the edge never knew it. The end of such a stream is acknowledged
 * so that the worker forgets it; a stream that still runs is cancelled. DATA does
 * not name its worker and REJECT needs no answer: a worker that hears nothing sends
 * a BEAT within a second. Needs no memory of finished requests.
 */
export function answerStrayFrame(
  requestId: string,
  { type, attempt, sequence, payload }: Frame,
  controlFor: (workerId: string) => ControlSink,
): void {
  if (type === FrameType.DATA || type === FrameType.REJECT) return;
  const workerId = parseWorker(payload);
  if (workerId === null) return;
  const control = controlFor(workerId);
  if (type === FrameType.END || type === FrameType.ERR) {
    control.ack(requestId, attempt, sequence);
  } else control.cancel(requestId, attempt, "unknown_stream");
}
