/**
 * The worker's end of one attempt's answer: numbers its frames, keeps them until
 * the edge has acknowledged them, sends them again when asked.
 *
 * A pure state machine. Events are method calls, each with the time it happened
 * at; actions are calls of {@link StreamSenderHandlers}, made before the method
 * returns. Handlers instead of a list of actions, because a list would be one more
 * allocation for every token; a test that wants a list pushes to one. Handlers
 * must not throw. Only `writable` and `finished` may call back into the sender.
 *
 * New frames go out at once. After a NAK or a time without bus the sender lags
 * behind; it then catches up by `replayBytes` a tick, and new frames queue behind.
 */

import { STREAM_LIMITS, type StreamLimits } from "../limits.ts";
import type { CancelReason } from "./control.ts";
import {
  encodeAccept,
  encodeEnd,
  encodeErr,
  encodeFrame,
  type EndPayload,
  type ErrPayload,
  FrameType,
} from "./frame.ts";
import { ReplayBuffer } from "./replay_buffer.ts";

/**
 * How an attempt left the worker. `acked`: the edge has all of it. `cancelled`:
 * the edge wants no more of it. `forgotten`: no edge was heard for `endForgetMs`.
 */
export type SenderOutcome = "acked" | "cancelled" | "forgotten";

/** What a {@link StreamSender} does. */
export interface StreamSenderHandlers {
  /** Publish this frame on the edge's stream subject. The bytes are never changed afterwards. */
  sendFrame(frame: Uint8Array): void;
  /** There is room again after `isWritable` was false. */
  writable(): void;
  /** Called once, last of all: stop the backend if it still runs and drop the sender. */
  finished(outcome: SenderOutcome, reason: CancelReason | null): void;
}

/** What a {@link StreamSender} is made with. */
export interface StreamSenderOptions {
  attempt: number;
  workerId: string;
  nowMs: number;
  limits?: StreamLimits;
}

/** The sending end of one attempt. Made when the worker takes the job. */
export class StreamSender {
  readonly #attempt: number;
  readonly #workerId: string;
  readonly #limits: StreamLimits;
  readonly #handlers: StreamSenderHandlers;
  readonly #buffer: ReplayBuffer;
  /** Completion tokens of everything written, sent or not. */
  #tokens = 0;
  #isConnected = true;
  #isEnded = false;
  #isFinished = false;
  /** Whether the driver was told to stop and waits for `writable`. */
  #isBlocked = false;
  /** Numbered frames sent so far, and the highest number among them. */
  #framesSent = 0;
  #highestSent = 0;
  #sentMs: number;
  #heardMs: number;
  #beatMs: number;
  #replayMs = -Infinity;

  constructor(options: StreamSenderOptions, handlers: StreamSenderHandlers) {
    this.#attempt = options.attempt;
    this.#workerId = options.workerId;
    this.#limits = options.limits ?? STREAM_LIMITS;
    this.#handlers = handlers;
    this.#buffer = new ReplayBuffer(options.attempt, this.#limits);
    this.#sentMs = options.nowMs;
    this.#heardMs = options.nowMs;
    this.#beatMs = options.nowMs;
  }

  /** Whether the driver should go on reading its backend. False after the end. */
  get isWritable(): boolean {
    return !this.#isEnded && !this.#isFinished && this.#buffer.hasRoom;
  }

  get isFinished(): boolean {
    return this.#isFinished;
  }

  /** Numbered frames sent so far, repeats included. */
  get framesSent(): number {
    return this.#framesSent;
  }

  /** Frames among them that had been sent before. */
  get framesRepeated(): number {
    return this.#framesSent - this.#highestSent;
  }

  /** Bytes kept here: at most the window, one END or ERR, and what was written while not writable. */
  get bufferedBytes(): number {
    return this.#buffer.bytes;
  }

  /** Tells the edge that the job runs here. A lost ACCEPT is made good by the next BEAT. */
  accept(nowMs: number): void {
    if (!this.#isFinished) this.#sendUnnumbered(FrameType.ACCEPT, nowMs);
  }

  /**
   * Sends the next bytes of the answer; `tokens` counts all completion tokens up
   * to and with them. The bytes are copied. Nothing happens for no bytes, or once
   * the attempt is over. Throws after the end, which is the driver's fault.
   */
  write(payload: Uint8Array, tokens: number, nowMs: number): void {
    if (this.#isFinished || payload.length === 0) return;
    this.#assertOpen();
    const wasCaughtUp = this.#buffer.isCaughtUp;
    this.#tokens = tokens;
    this.#buffer.write(payload, tokens);
    if (wasCaughtUp) this.#sendAll(nowMs);
    if (!this.isWritable) this.#isBlocked = true;
  }

  /** The answer is complete. END is repeated until it is acknowledged. */
  end(end: EndPayload, tokens: number, nowMs: number): void {
    this.#close(FrameType.END, encodeEnd(this.#workerId, end), tokens, nowMs);
  }

  /** The answer stays incomplete. ERR follows all that was written, and is repeated like an END. */
  fail(error: ErrPayload, tokens: number, nowMs: number): void {
    this.#close(FrameType.ERR, encodeErr(this.#workerId, error), tokens, nowMs);
  }

  /** Everything up to `sequence` is with the client: it is dropped and its room is free. */
  onAck(attempt: number, sequence: number, nowMs: number): void {
    if (this.#isFinished || attempt !== this.#attempt) return;
    this.#heardMs = nowMs;
    if (sequence > this.#buffer.lastSequence) return;
    const wasCaughtUp = this.#buffer.isCaughtUp;
    this.#buffer.dropThrough(sequence);
    if (this.#isEnded && this.#buffer.isEmpty) {
      this.#finish("acked", null);
      return;
    }
    if (wasCaughtUp) this.#sendAll(nowMs);
    if (this.#isBlocked && this.isWritable) {
      this.#isBlocked = false;
      this.#handlers.writable();
    }
  }

  /** The edge lacks `fromSequence` and what follows, or asks whether there is any. */
  onNak(attempt: number, fromSequence: number, nowMs: number): void {
    if (this.#isFinished || attempt !== this.#attempt) return;
    this.#heardMs = nowMs;
    // Older than an acknowledgement that overtook it, or of something never sent.
    if (fromSequence < this.#buffer.firstSequence) return;
    if (fromSequence > this.#buffer.lastSequence + 1) return;
    if (fromSequence >= this.#buffer.cursor) {
      this.#answerProbe(nowMs);
      return;
    }
    if (nowMs - this.#replayMs < this.#limits.nakIntervalMs) return;
    this.#replayMs = nowMs;
    this.#buffer.rewind(fromSequence);
    this.#catchUp(nowMs);
  }

  /** The edge, or the worker itself, wants no more of this attempt. */
  onCancel(attempt: number, reason: CancelReason): void {
    if (this.#isFinished || attempt !== this.#attempt) return;
    this.#finish("cancelled", reason);
  }

  /** The bus is away: frames are kept, not sent, until {@link onReconnect}. */
  onDisconnect(): void {
    this.#isConnected = false;
  }

  /** The bus is back. What was lost shows at the edge as a gap before what is sent now. */
  onReconnect(nowMs: number): void {
    if (this.#isFinished) return;
    this.#isConnected = true;
    if (this.#buffer.isCaughtUp) this.#beat(nowMs);
    else this.#catchUp(nowMs);
  }

  /** Time passes: to be called every `tickMs`. */
  onTick(nowMs: number): void {
    if (this.#isFinished) return;
    if (nowMs - this.#heardMs >= this.#limits.endForgetMs) {
      this.#finish("forgotten", null);
    } else if (!this.#buffer.isCaughtUp) {
      this.#catchUp(nowMs);
    } else if (this.#isEnded && !this.#buffer.isWaiting) {
      this.#repeatEnd(nowMs);
    } else if (this.#isBeatDue(nowMs)) {
      this.#beat(nowMs);
    }
  }

  #assertOpen(): void {
    if (this.#isEnded) throw new Error("Cannot write: the answer has ended");
  }

  #close(
    type: FrameType,
    payload: Uint8Array,
    tokens: number,
    nowMs: number,
  ): void {
    if (this.#isFinished) return;
    this.#assertOpen();
    const wasCaughtUp = this.#buffer.isCaughtUp;
    this.#isEnded = true;
    this.#tokens = tokens;
    this.#buffer.close(type, payload, tokens);
    if (wasCaughtUp) this.#sendAll(nowMs);
  }

  /** New frames: the window bounds them, so they need no pace. */
  #sendAll(nowMs: number): void {
    if (!this.#isConnected) return;
    for (;;) {
      const frame = this.#buffer.take();
      if (frame === undefined) return;
      this.#sendNumbered(frame, nowMs);
    }
  }

  #catchUp(nowMs: number): void {
    if (!this.#isConnected) return;
    let sentBytes = 0;
    while (sentBytes < this.#limits.replayBytes) {
      const frame = this.#buffer.take();
      if (frame === undefined) return;
      sentBytes += frame.length;
      this.#sendNumbered(frame, nowMs);
    }
  }

  #repeatEnd(nowMs: number): void {
    if (nowMs - this.#sentMs < this.#limits.endRetryMs) return;
    const last = this.#buffer.last();
    if (last === undefined || !this.#isConnected) return;
    this.#sendNumbered(last, nowMs);
  }

  #answerProbe(nowMs: number): void {
    if (!this.#buffer.isCaughtUp) return;
    if (nowMs - this.#beatMs >= this.#limits.nakIntervalMs) this.#beat(nowMs);
  }

  /**
   * A BEAT says where a silent stream stands. A busy stream also sends one when it
   * hears nothing: the edge answers it, with a CANCEL if it has lost interest.
   */
  #isBeatDue(nowMs: number): boolean {
    const { idleBeatMs } = this.#limits;
    return nowMs - this.#sentMs >= idleBeatMs ||
      (nowMs - this.#heardMs >= idleBeatMs &&
        nowMs - this.#beatMs >= idleBeatMs);
  }

  #beat(nowMs: number): void {
    this.#beatMs = nowMs;
    this.#sendUnnumbered(FrameType.BEAT, nowMs);
  }

  #sendUnnumbered(type: FrameType, nowMs: number): void {
    if (!this.#isConnected) return;
    const frame = encodeFrame({
      type,
      sequence: this.#buffer.lastSequence,
      attempt: this.#attempt,
      tokens: this.#tokens,
    }, encodeAccept(this.#workerId));
    this.#send(frame, nowMs);
  }

  /** A frame that the cursor has just passed, or the last one again. */
  #sendNumbered(frame: Uint8Array, nowMs: number): void {
    this.#framesSent += 1;
    this.#highestSent = Math.max(this.#highestSent, this.#buffer.cursor - 1);
    this.#send(frame, nowMs);
  }

  #send(frame: Uint8Array, nowMs: number): void {
    this.#sentMs = nowMs;
    this.#handlers.sendFrame(frame);
  }

  #finish(outcome: SenderOutcome, reason: CancelReason | null): void {
    this.#isFinished = true;
    this.#buffer.clear();
    this.#handlers.finished(outcome, reason);
  }
}
