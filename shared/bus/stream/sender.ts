/**
 * The worker's end of the answer to one offer: numbers its frames, keeps them until
 * the edge has acknowledged them, and sends them again on request.
 *
 * A pure state machine. Events are method calls, each with its time; actions are
 * calls of {@link StreamSenderHandlers}, made before the method returns: a list of
 * actions would be one more allocation for every token. Handlers must not throw. Only
 * `writable` and `finished` may call back into the sender.
 *
 * New frames are sent at once while the window has space. A NAK moves the sender
 * back; it then catches up by `replayBytes` per tick, and new frames wait for that.
 * Frames sent during an outage of the bus are lost like any others.
 */
import { Buffer } from "node:buffer";
import { STREAM_LIMITS, type StreamLimits } from "../../limits.ts";
import { encodeBriefly } from "../../text/utf8.ts";
import type { CancelReason, ControlRecord } from "./control.ts";
import {
  encodeFrame,
  encodeJson,
  FRAME_HEADER_BYTES,
  type FrameHeader,
  FrameType,
  writeFrameHeader,
} from "./frame.ts";
import { type AnswerEnd, encodeErr, type Failure } from "./payloads.ts";

/**
 * How a sender ends. `acked`: the edge has everything. `cancelled`: it needs no more.
 * `forgotten`: it was silent for `endForgetMs`.
 */
export type SenderOutcome = "acked" | "cancelled" | "forgotten";

/** The offer whose answer is sent, and by whom. */
export interface StreamSenderOptions {
  /** The number of the offer, from 1. Records for any other are ignored. */
  readonly offerNumber: number;
  readonly workerId: string;
  /** When the job arrived, on the clock of all other times. */
  readonly nowMs: number;
  /** Default: `STREAM_LIMITS`. */
  readonly limits?: StreamLimits;
}

/** What a sender does, and whom it tells what it has come to. */
export interface StreamSenderHandlers {
  /**
   * Sends this frame to the edge. Its bytes may change after this turn of the event
   * loop.
   */
  sendFrame(frame: Uint8Array): void;
  /**
   * Called after an acknowledgement if `isWritable`, which may have been false before.
   */
  writable(): void;
  /**
   * Called once, at the end: stops the backend if it is running, and drops the sender.
   */
  finished(outcome: SenderOutcome, reason: CancelReason | null): void;
}

/**
 * Memory is used again only this long after the last replay: a frame that was sent
 * again may be acknowledged before it has left, at the end of its turn of the event
 * loop.
 */
const REUSE_MS = 1_000;

/** Sends the answer to one offer, see the top of this file. */
export class StreamSender {
  /** All is over: nothing is sent, and calls do nothing. */
  isFinished = false;
  /** Numbered frames sent so far, including repeats. */
  framesSent = 0;
  /** Bytes kept here: less than the window plus the last write. */
  bufferedBytes = 0;
  readonly #limits: StreamLimits;
  readonly #slab = new ByteSlab();
  /** Numbered frames that are not acknowledged, whether sent or not. */
  readonly #frames: Uint8Array[] = [];
  #firstKept = 1;
  #next = 1;
  #highestSent = 0;
  /**
   * Bytes of the frames that were sent but not acknowledged: at most the window plus
   * one END or ERR.
   */
  #windowBytes = 0;
  /** Completion tokens of everything written, whether sent or not. */
  #tokens = 0;
  #isEnded = false;
  #sentMs: number;
  #heardMs: number;
  #beatMs: number;
  #replayMs = -Infinity;

  constructor(
    readonly options: StreamSenderOptions,
    readonly handlers: StreamSenderHandlers,
  ) {
    const { nowMs, limits = STREAM_LIMITS } = options;
    this.#limits = limits;
    this.#sentMs = nowMs;
    this.#heardMs = nowMs;
    this.#beatMs = nowMs;
  }

  get #isReplaying(): boolean {
    return this.#next <= this.#highestSent;
  }

  get #lastKept(): number {
    return this.#firstKept + this.#frames.length - 1;
  }

  /**
   * Whether the driver should continue to read from its backend. False after the end.
   */
  get isWritable(): boolean {
    return !this.#isEnded && !this.isFinished &&
      this.bufferedBytes < this.#limits.windowBytes;
  }

  /** How many of `framesSent` had been sent before. */
  get framesRepeated(): number {
    return this.framesSent - this.#highestSent;
  }

  /** Reports that the job runs here. The next BEAT makes up for a lost ACCEPT. */
  accept(nowMs: number): void {
    if (!this.isFinished) this.#sendUnnumbered(FrameType.ACCEPT, nowMs);
  }

  /**
   * Sends a copy of the next bytes; `tokens` counts all completion tokens up to their
   * end. Does nothing once the answer is over, and throws after `end` or `fail`.
   */
  write(payload: Uint8Array, tokens: number, nowMs: number): void {
    if (this.isFinished) return;
    const { framePayloadBytesMax } = this.#limits;
    for (let at = 0; at < payload.length; at += framePayloadBytesMax) {
      const end = at + framePayloadBytesMax;
      // The tokens count once the last byte is written.
      if (end >= payload.length) this.#tokens = tokens;
      this.#append(FrameType.DATA, payload.subarray(at, end));
    }
    this.#sendNew(nowMs);
  }

  /** The answer is complete. END is repeated until it is acknowledged. */
  end(end: AnswerEnd, tokens: number, nowMs: number): void {
    if (this.isFinished) return;
    const payload = { worker: this.options.workerId, ...end };
    const bytes = encodeBriefly(JSON.stringify(payload));
    this.#appendLast(FrameType.END, bytes, tokens);
    this.#sendNew(nowMs);
  }

  /** The answer failed. ERR follows everything written, and is repeated like END. */
  fail(error: Failure, tokens: number, nowMs: number): void {
    if (this.isFinished) return;
    const payload = encodeErr(this.options.workerId, error);
    this.#appendLast(FrameType.ERR, payload, tokens);
    this.#sendNew(nowMs);
  }

  /** A record for this request has arrived, for whichever offer. */
  onControl(record: ControlRecord, nowMs: number): void {
    if (record.offerNumber !== this.options.offerNumber || this.isFinished) {
      return;
    }
    if (record.type === "cancel") return this.cancel(record.reason);
    this.#heardMs = nowMs;
    if (record.type === "ack") this.#onAck(record.sequence, nowMs);
    else this.#onNak(record.sequence, nowMs);
  }

  /** Ends the answer at once: what was not sent is dropped. */
  cancel(reason: CancelReason): void {
    if (!this.isFinished) this.#finish("cancelled", reason);
  }

  /**
   * The bus works again after an outage: the BEAT shows the edge what it may have
   * missed.
   */
  onReconnect(nowMs: number): void {
    if (!this.isFinished) this.#beat(nowMs);
  }

  /** Must be called every `tickMs`. */
  onTick(nowMs: number): void {
    if (this.isFinished) return;
    const { endForgetMs, endRetryMs } = this.#limits;
    const end = this.#isEnded ? this.#frames.at(-1) : undefined;
    if (nowMs - this.#heardMs >= endForgetMs) {
      this.#finish("forgotten", null);
    } else if (this.#isReplaying) {
      this.#catchUp(nowMs);
    } else if (end !== undefined && this.#next > this.#lastKept) {
      if (nowMs - this.#sentMs >= endRetryMs) this.#sendNumbered(end, nowMs);
    } else if (this.#isBeatDue(nowMs)) {
      this.#beat(nowMs);
    }
  }

  /** The client has everything up to `sequence`, so these frames are dropped. */
  #onAck(sequence: number, nowMs: number): void {
    if (sequence > this.#highestSent) return;
    const acknowledged = Math.max(0, sequence - this.#firstKept + 1);
    for (const frame of this.#frames.splice(0, acknowledged)) {
      this.bufferedBytes -= frame.length;
      this.#windowBytes -= frame.length;
    }
    if (this.#frames.length === 0 && nowMs - this.#replayMs >= REUSE_MS) {
      this.#slab.clear();
    }
    this.#firstKept += acknowledged;
    this.#next = Math.max(this.#next, this.#firstKept);
    if (this.#isEnded && this.#frames.length === 0) {
      return this.#finish("acked", null);
    }
    this.#sendNew(nowMs);
    if (this.isWritable) this.handlers.writable();
  }

  /** The edge requests `fromSequence` and what follows, if these frames exist. */
  #onNak(fromSequence: number, nowMs: number): void {
    // Older than an acknowledgement that overtook it, or for a frame never sent.
    if (fromSequence < this.#firstKept) return;
    if (fromSequence > this.#highestSent + 1) return;
    const isProbe = fromSequence > this.#highestSent;
    const lastMs = isProbe ? this.#beatMs : this.#replayMs;
    if (nowMs - lastMs < this.#limits.nakIntervalMs) return;
    if (isProbe) this.#beat(nowMs);
    else if (fromSequence < this.#next) {
      this.#replayMs = nowMs;
      this.#next = fromSequence;
      this.#catchUp(nowMs);
    }
  }

  #appendLast(type: FrameType, payload: Uint8Array, tokens: number): void {
    this.#tokens = tokens;
    this.#append(type, payload);
    this.#isEnded = true;
  }

  #append(type: FrameType, payload: Uint8Array): void {
    if (this.#isEnded) throw new Error("Cannot write: the answer has ended");
    const frame = this.#slab.take(FRAME_HEADER_BYTES + payload.length);
    writeFrameHeader(this.#headerOf(type, this.#lastKept + 1), frame);
    frame.set(payload, FRAME_HEADER_BYTES);
    this.#frames.push(frame);
    this.bufferedBytes += frame.length;
  }

  #sendNew(nowMs: number): void {
    if (this.#isReplaying) return;
    for (;;) {
      const frame = this.#frames[this.#next - this.#firstKept];
      if (frame === undefined) return;
      // END and ERR may exceed the window: nothing follows them.
      const isLast = this.#isEnded && this.#next === this.#lastKept;
      const windowBytes = this.#windowBytes + frame.length;
      if (windowBytes > this.#limits.windowBytes && !isLast) return;
      this.#windowBytes = windowBytes;
      this.#highestSent = this.#next++;
      this.#sendNumbered(frame, nowMs);
    }
  }

  #catchUp(nowMs: number): void {
    for (let bytes = 0; bytes < this.#limits.replayBytes;) {
      const frame = this.#frames[this.#next - this.#firstKept];
      if (frame === undefined || !this.#isReplaying) break;
      bytes += frame.length;
      this.#next++;
      this.#sendNumbered(frame, nowMs);
    }
    this.#sendNew(nowMs);
  }

  /**
   * A busy stream that receives nothing beats as well: the edge answers a BEAT, if need
   * be with a CANCEL.
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
    this.#sentMs = nowMs;
    const header = this.#headerOf(type, this.#highestSent);
    const payload = encodeJson({ worker: this.options.workerId });
    this.handlers.sendFrame(encodeFrame(header, payload));
  }

  #headerOf(type: FrameType, sequence: number): FrameHeader {
    const { offerNumber } = this.options;
    return { type, sequence, offerNumber, tokens: this.#tokens };
  }

  #sendNumbered(frame: Uint8Array, nowMs: number): void {
    this.framesSent += 1;
    this.#sentMs = nowMs;
    this.handlers.sendFrame(frame);
  }

  #finish(outcome: SenderOutcome, reason: CancelReason | null): void {
    this.isFinished = true;
    this.#frames.length = 0;
    this.bufferedBytes = 0;
    this.handlers.finished(outcome, reason);
  }
}

/**
 * Slabs grow up to this size, from {@link SLAB_BYTES_MIN}, so that short answers use
 * little memory.
 */
const SLAB_BYTES_MAX = 8_192;
const SLAB_BYTES_MIN = 512;

/**
 * Cuts many small arrays from a few large ones: V8 allocates each array outside its
 * heap, at six times the cost. A slab lives as long as any piece of it, so pieces of
 * one must be released together: a slab for each stream.
 */
export class ByteSlab {
  #slab: Uint8Array = new Uint8Array(0);
  #used = 0;

  /** Returns a piece of `bytes`, of any values. Large ones are arrays of their own. */
  take(bytes: number): Uint8Array {
    if (bytes > SLAB_BYTES_MAX / 4) return new Uint8Array(bytes);
    if (this.#used + bytes > this.#slab.length) {
      // The slab has room for more: END follows the only frame of a whole answer.
      const doubleSize = 2 * Math.max(this.#slab.length, bytes);
      const size = Math.max(
        SLAB_BYTES_MIN,
        Math.min(doubleSize, SLAB_BYTES_MAX),
      );
      // The first ones come from the pool of `Buffer`, which is faster still.
      this.#slab = Buffer.allocUnsafe(size);
      this.#used = 0;
    }
    const start = this.#used;
    this.#used += bytes;
    return this.#slab.subarray(start, this.#used);
  }

  /** Nobody needs the pieces any more: the next ones take their place. */
  clear(): void {
    this.#used = 0;
  }
}
