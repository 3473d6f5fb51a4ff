/**
 * The edge's end of one attempt's answer: delivers its frames in order and once,
 * acknowledges what the client took, asks for what was lost, and notices a worker
 * that does not accept the job or falls silent.
 *
 * A pure state machine: events are method calls with their time, and each returns
 * its result. What it has to tell the worker goes out as control records. An
 * attempt ends with one of the events `rejected`, `ended`, `failed`, `lost` and
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
import type { Usage } from "../openai/chat.ts";
import type { CancelReason, ControlAction, ControlRecord } from "./control.ts";
import {
  type Failure,
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

/** The result of a frame or a tick. */
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
  /** The answer is complete with what was delivered. */
  | { type: "ended"; usage: Usage | null }
  /** The answer stays incomplete with what was delivered. */
  | { type: "failed"; failure: Failure }
  /** Nobody answers. */
  | { type: "lost"; reason: LostReason }
  /** The worker breaks the protocol: a bug or another version. */
  | { type: "violated"; violation: Violation };

export type SendControl = (workerId: string, record: ControlRecord) => void;

/** Options of a {@link StreamReceiver}. */
export interface StreamReceiverOptions {
  requestId: string;
  attempt: number;
  /** The worker the job was sent to, or null when any may take it. */
  workerId: string | null;
  /** When the job was sent. */
  nowMs: number;
  /** Sends a record to a worker. */
  control: SendControl;
  limits?: StreamLimits;
}

const NOTHING: StreamEvent = { type: "nothing" };
const STRAY: StreamEvent = { type: "stray" };

/**
 * The receiving end of one attempt. Made when the job is sent.
 *
 * Asking for lost frames is paced: at most once in `nakIntervalMs`, and ever less
 * often, down to once in `nakIntervalMaxMs`, while it changes nothing. As soon as
 * an answer arrives, frame after frame, it gets twice that interval from the latest
 * one.
 */
export class StreamReceiver {
  readonly attempt: number;
  readonly #options: StreamReceiverOptions;
  readonly #limits: StreamLimits;
  #workerId: string | null;
  #isAccepted = false;
  #isOver = false;
  #tokens = 0;
  #naks = 0;
  #frameMs: number;
  #probeMs: number;
  /** The number of the frame that must come next, and the highest that is known to exist. */
  #expected = 1;
  #known = 0;
  /** From when on frames may be asked for, and for how long not after that. */
  #askMs = -Infinity;
  #askDelayMs: number;
  /** Bytes of each frame that was delivered and that the client has not taken, headers included. */
  readonly #untaken: number[] = [];
  #untakenBytes = 0;
  #takenSequence = 0;
  #ackedSequence = 0;
  /** Bytes that the client has taken since the last acknowledgement. */
  #unackedBytes = 0;

  constructor(options: StreamReceiverOptions) {
    this.attempt = options.attempt;
    this.#options = options;
    this.#limits = options.limits ?? STREAM_LIMITS;
    this.#askDelayMs = this.#limits.nakIntervalMs;
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

  /** Bytes delivered that the client has not taken, frame headers included. */
  get undeliveredBytes(): number {
    return this.#untakenBytes;
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
    const count = sequence - this.#takenSequence;
    if (this.#isOver || count <= 0) return;
    if (count > this.#untaken.length) {
      throw new Error(`Frame ${sequence} was not delivered yet`);
    }
    for (const bytes of this.#untaken.splice(0, count)) {
      this.#untakenBytes -= bytes;
      this.#unackedBytes += bytes;
    }
    this.#takenSequence = sequence;
    const { ackBytes, ackFrames } = this.#limits;
    const isDue = this.#unackedBytes >= ackBytes ||
      sequence - this.#ackedSequence >= ackFrames;
    if (isDue) this.#ack();
  }

  /** Ends the attempt: the edge does not want the rest. */
  cancel(reason: CancelReason): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#tell({ type: "cancel", reason });
  }

  /** The bus is back after an outage: asks at once for what may be lost. */
  onReconnect(nowMs: number): void {
    if (this.#isOver || !this.#isAccepted) return;
    this.#askMs = nowMs;
    this.#askDelayMs = this.#limits.nakIntervalMs;
    this.#probe(nowMs);
  }

  /** To be called every `tickMs`. */
  onTick(nowMs: number): StreamEvent {
    if (this.#isOver) return NOTHING;
    if (!this.#isAccepted) {
      const isInTime = nowMs - this.#options.nowMs < DISPATCH_LIMITS.acceptMs;
      return isInTime ? NOTHING : this.#lose("not_accepted", "not_accepted");
    }
    const { silenceLostMs, silenceProbeMs } = this.#limits;
    if (nowMs - this.#frameMs >= silenceLostMs) {
      return this.#lose("silent", "worker_lost");
    }
    if (this.#known >= this.#expected) this.#ask(nowMs);
    else if (nowMs - Math.max(this.#frameMs, this.#probeMs) >= silenceProbeMs) {
      this.#probe(nowMs);
    }
    return NOTHING;
  }

  #onSign(frame: Frame, nowMs: number): StreamEvent {
    const workerId = parseWorker(frame.payload);
    if (workerId === null) return this.#violate("payload");
    this.#workerId ??= workerId;
    if (this.#workerId !== workerId) return this.#violate("worker");
    this.#isAccepted = true;
    // Repeats an ACK that may be lost, and shows the worker that the edge is alive.
    if (frame.type === FrameType.BEAT) this.#ack();
    return this.#noteGap(frame.sequence, nowMs);
  }

  #onReject(frame: Frame): StreamEvent {
    // An answer that has begun can only end by END or ERR.
    if (this.#expected > 1) return NOTHING;
    const reject = parseReject(frame.payload);
    if (reject === null) return this.#violate("payload");
    this.#isOver = true;
    return { type: "rejected", reject };
  }

  #onNumbered(frame: Frame, nowMs: number): StreamEvent {
    // Nothing can be asked or acknowledged before the worker is known: the next
    // BEAT names it, and says how far the answer has got.
    if (this.#workerId === null) return NOTHING;
    this.#isAccepted = true;
    const { type, payload, sequence } = frame;
    if (sequence !== this.#expected) return this.#noteGap(sequence, nowMs);
    this.#expected += 1;
    const { nakIntervalMs, windowBytes } = this.#limits;
    this.#askDelayMs = nakIntervalMs;
    this.#askMs = this.#known >= this.#expected
      ? nowMs + 2 * nakIntervalMs
      : Math.min(this.#askMs, nowMs + nakIntervalMs);
    if (type !== FrameType.DATA) return this.#onEnd(frame);
    const bytes = FRAME_HEADER_BYTES + payload.length;
    this.#untaken.push(bytes);
    this.#untakenBytes += bytes;
    return this.#untakenBytes <= windowBytes
      ? { type: "data", payload, sequence }
      : this.#violate("window");
  }

  /** Takes an END or ERR. */
  #onEnd({ type, payload, sequence }: Frame): StreamEvent {
    const failure = type === FrameType.ERR ? parseErr(payload) : null;
    const end = type === FrameType.ERR ? failure : parseEnd(payload);
    if (end === null) return this.#violate("payload");
    if (end.worker !== this.#workerId) return this.#violate("worker");
    this.#isOver = true;
    this.#tell({ type: "ack", sequence });
    return failure === null
      ? { type: "ended", usage: end.usage }
      : { type: "failed", failure };
  }

  #ack(): void {
    this.#unackedBytes = 0;
    this.#ackedSequence = this.#takenSequence;
    this.#tell({ type: "ack", sequence: this.#ackedSequence });
  }

  /** Frames up to `sequence` exist. */
  #noteGap(sequence: number, nowMs: number): StreamEvent {
    this.#known = Math.max(this.#known, sequence);
    if (sequence >= this.#expected) this.#ask(nowMs);
    return NOTHING;
  }

  #probe(nowMs: number): void {
    this.#probeMs = nowMs;
    this.#ask(nowMs);
  }

  /** Asks for what comes next, unless that was asked a moment ago. */
  #ask(nowMs: number): void {
    if (nowMs < this.#askMs) return;
    this.#askMs = nowMs + this.#askDelayMs;
    this.#askDelayMs = Math.min(
      2 * this.#askDelayMs,
      this.#limits.nakIntervalMaxMs,
    );
    this.#naks += 1;
    this.#tell({ type: "nak", sequence: this.#expected });
  }

  #lose(reason: LostReason, cancel: CancelReason): StreamEvent {
    this.cancel(cancel);
    return { type: "lost", reason };
  }

  #violate(violation: Violation): StreamEvent {
    this.cancel("violation");
    return { type: "violated", violation };
  }

  #tell(action: ControlAction): void {
    const { control, requestId } = this.#options;
    if (this.#workerId === null) return;
    control(this.#workerId, { ...action, requestId, attempt: this.attempt });
  }
}

/**
 * Answers a frame that no receiver took: its request has ended, its attempt is an
 * old one, or the edge never knew it. The end of such a stream is acknowledged
 * so that the worker forgets it; a stream that still runs is cancelled. DATA does
 * not name its worker and REJECT needs no answer: a worker that hears nothing sends
 * a BEAT within a second. Needs no memory of finished requests.
 */
export function answerStrayFrame(
  requestId: string,
  { type, attempt, sequence, payload }: Frame,
  control: SendControl,
): void {
  if (type === FrameType.DATA || type === FrameType.REJECT) return;
  const workerId = parseWorker(payload);
  if (workerId === null) return;
  control(workerId, {
    requestId,
    attempt,
    ...(type === FrameType.END || type === FrameType.ERR
      ? { type: "ack", sequence }
      : { type: "cancel", reason: "unknown_stream" }),
  });
}
