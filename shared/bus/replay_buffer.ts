import { STREAM_LIMITS, type StreamLimits } from "../limits.ts";
import { ByteSlab } from "./byte_slab.ts";
import {
  FRAME_HEADER_BYTES,
  FRAME_NUMBER_MAX,
  FrameType,
  writeFrameHeader,
} from "./frame.ts";

/** A payload, or what is left of it, for which there was no room yet. */
interface WaitingPayload {
  type: FrameType;
  payload: Uint8Array;
  tokens: number;
}

/**
 * The numbered frames of one attempt from the moment they are written until they
 * are acknowledged. Knows nothing of time and of the bus.
 *
 * Frames in it, headers included, are at most `windowBytes`, and one END or ERR.
 * What is written beyond that waits and becomes frames when there is room.
 *
 * A cursor stands at the next frame to go out. Frames always leave in order: to
 * send again means to move the cursor back.
 */
export class ReplayBuffer {
  readonly #attempt: number;
  readonly #limits: StreamLimits;
  readonly #slab = new ByteSlab();
  readonly #frames: Uint8Array[] = [];
  readonly #waiting: WaitingPayload[] = [];
  #firstSequence = 1;
  #frameBytes = 0;
  #waitingBytes = 0;
  #cursor = 1;
  /** Tokens of what is in frames. A payload counts with its last byte. */
  #framedTokens = 0;

  constructor(attempt: number, limits: StreamLimits = STREAM_LIMITS) {
    this.#attempt = attempt;
    this.#limits = limits;
  }

  /** Whether nothing waits and there is room for more. */
  get hasRoom(): boolean {
    return !this.isWaiting && this.#frameBytes < this.#limits.windowBytes;
  }

  /** Whether everything written is acknowledged. */
  get isEmpty(): boolean {
    return !this.isWaiting && this.#frames.length === 0;
  }

  /** Whether every frame has gone out. */
  get isCaughtUp(): boolean {
    return this.#cursor > this.lastSequence;
  }

  /** Whether something waits that is not in a frame yet. */
  get isWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** Bytes kept: frames, and what waits for room. */
  get bytes(): number {
    return this.#frameBytes + this.#waitingBytes;
  }

  /** The number of the lowest frame kept. */
  get firstSequence(): number {
    return this.#firstSequence;
  }

  /** The number of the latest frame, 0 before the first. */
  get lastSequence(): number {
    return this.#firstSequence + this.#frames.length - 1;
  }

  /** The number of the next frame to go out. */
  get cursor(): number {
    return this.#cursor;
  }

  /** Adds bytes of the answer, which are copied, in as many frames as it takes. */
  write(payload: Uint8Array, tokens: number): void {
    if (!this.isWaiting && this.#fits(payload.length)) {
      this.#framedTokens = tokens;
      this.#append(FrameType.DATA, payload);
      return;
    }
    this.close(FrameType.DATA, payload, tokens);
    const rest = this.#waiting.at(-1);
    if (rest !== undefined) rest.payload = rest.payload.slice();
  }

  /** Adds the END or ERR behind all that was written. It needs no room: nothing follows it. */
  close(type: FrameType, payload: Uint8Array, tokens: number): void {
    this.#waiting.push({ type, payload, tokens });
    this.#waitingBytes += payload.length;
    this.#moveWaiting();
  }

  /** The frame at the cursor, which moves on, or undefined when all have gone out. */
  take(): Uint8Array | undefined {
    const frame = this.#frames[this.#cursor - this.#firstSequence];
    if (frame !== undefined) this.#cursor++;
    return frame;
  }

  /** The latest frame, or undefined when it is acknowledged. */
  last(): Uint8Array | undefined {
    return this.#frames.at(-1);
  }

  /** Moves the cursor back to a frame that is still kept. */
  rewind(sequence: number): void {
    this.#cursor = sequence;
  }

  /** Everything up to `sequence` is acknowledged. */
  dropThrough(sequence: number): void {
    const count = Math.max(0, sequence - this.#firstSequence + 1);
    const dropped = this.#frames.splice(0, count);
    for (const frame of dropped) this.#frameBytes -= frame.length;
    this.#firstSequence += dropped.length;
    this.#cursor = Math.max(this.#cursor, this.#firstSequence);
    this.#moveWaiting();
  }

  /** Lets go of everything. */
  clear(): void {
    this.#waiting.length = 0;
    this.#waitingBytes = 0;
    this.dropThrough(this.lastSequence);
  }

  #fits(payloadBytes: number): boolean {
    return payloadBytes <= this.#limits.framePayloadBytesMax &&
      this.#frameBytes + FRAME_HEADER_BYTES + payloadBytes <=
        this.#limits.windowBytes;
  }

  /** Cuts what waits into frames as far as there is room. */
  #moveWaiting(): void {
    for (;;) {
      const head = this.#waiting[0];
      if (head === undefined) return;
      const isData = head.type === FrameType.DATA;
      const size = isData
        ? Math.min(head.payload.length, this.#limits.framePayloadBytesMax)
        : head.payload.length;
      if (isData && !this.#fits(size)) return;
      const piece = head.payload.subarray(0, size);
      head.payload = head.payload.subarray(size);
      this.#waitingBytes -= size;
      if (head.payload.length === 0) {
        this.#framedTokens = head.tokens;
        this.#waiting.shift();
      }
      this.#append(head.type, piece);
    }
  }

  #append(type: FrameType, payload: Uint8Array): void {
    const sequence = this.lastSequence + 1;
    // 2^32 frames would be 4 billion chunks of one answer: a fault, not a load.
    if (sequence > FRAME_NUMBER_MAX) throw new Error("Stream is too long");
    const frame = this.#slab.take(FRAME_HEADER_BYTES + payload.length);
    writeFrameHeader({
      type,
      sequence,
      attempt: this.#attempt,
      tokens: this.#framedTokens,
    }, frame);
    frame.set(payload, FRAME_HEADER_BYTES);
    this.#frames.push(frame);
    this.#frameBytes += frame.length;
  }
}
