/**
 * Frames of one answer on its way from a worker to an edge: 16 bytes of header,
 * then the payload. Numbers are big-endian.
 *
 * ```
 * 0  u8   version        1
 * 1  u8   type           see FrameType
 * 2  u16  flags          none defined: sent as 0, ignored
 * 4  u32  sequence       1, 2, 3 … over DATA, END and ERR; else the last one sent
 * 8  u32  offer number   the offer that this belongs to, from 1
 * 12 u32  tokens         completion tokens generated up to here
 * 16 …    payload
 * ```
 *
 * Every offer of a request to a worker has a number of its own, even one that is
 * rejected: only this number distinguishes a late frame from a current one.
 *
 * Concatenated in order, DATA payloads form one stream of lines, each ended by
 * `\n`. A line is one chunk of JSON, or, for a call without `stream`, the one
 * whole response. A frame may hold several lines or end in the middle of one.
 *
 * All other payloads are JSON, see `payloads.ts`.
 */
import { Buffer } from "node:buffer";
import { z } from "zod";
import { BUS_LIMITS } from "../../limits.ts";
import { encodeUtf8 } from "../../text/utf8.ts";

const FRAME_VERSION = 1;
/** The length of a frame's header; the rest of the frame is its payload. */
export const FRAME_HEADER_BYTES = 16;

/** What a frame says, with its code on the wire. */
export const FrameType = {
  /**
   * The job runs here. Payload: the worker's id. Implied by BEAT, and by DATA, END and
   * ERR when the edge chose the worker.
   */
  ACCEPT: 1,
  /**
   * The job does not run here. Payload: `RejectPayload`. Has no sequence number
   * and is never repeated.
   */
  REJECT: 2,
  /** The next bytes of the answer. */
  DATA: 3,
  /** The answer is complete. Payload: the usage. */
  END: 4,
  /** The answer will not be completed. Payload: `Failure`. */
  ERR: 5,
  /**
   * The job is still running; the header states its progress. Payload: the worker's id.
   */
  BEAT: 6,
} as const;

/** One of the codes of {@link FrameType}. */
export type FrameType = typeof FrameType[keyof typeof FrameType];
const FRAME_TYPES = Object.values(FrameType);

/** The header of a frame. The numbers have 32 bits without a sign. */
export interface FrameHeader {
  type: FrameType;
  /** The frame's own number, from 1; in ACCEPT and BEAT the highest one sent so far. */
  sequence: number;
  /**
   * The offer that this belongs to, from 1: each time a request is offered to a worker
   * counts.
   */
  offerNumber: number;
  /** Completion tokens generated up to here. */
  tokens: number;
}

/** A frame that was received. */
export interface Frame extends FrameHeader {
  /** A view of the message: copy what is needed after its handler returns. */
  payload: Uint8Array;
}

/** Returns a frame with memory of its own; the payload is copied. */
export function encodeFrame(
  header: FrameHeader,
  payload: Uint8Array,
): Uint8Array {
  const frame = Buffer.allocUnsafe(FRAME_HEADER_BYTES + payload.length);
  writeFrameHeader(header, frame);
  frame.set(payload, FRAME_HEADER_BYTES);
  return frame;
}

/** Writes the header into the first 16 bytes. Numbers beyond 32 bits are cut. */
export function writeFrameHeader(
  header: FrameHeader,
  target: Uint8Array,
): void {
  target[0] = FRAME_VERSION;
  target[1] = header.type;
  target[2] = 0;
  target[3] = 0;
  writeU32(target, 4, header.sequence);
  writeU32(target, 8, header.offerNumber);
  writeU32(target, 12, header.tokens);
}

/** Returns a frame that views the message; null if it is none of this version. */
export function decodeFrame(message: Uint8Array): Frame | null {
  const type = FRAME_TYPES[(message[1] ?? 0) - 1];
  if (
    message.length < FRAME_HEADER_BYTES || message[0] !== FRAME_VERSION ||
    type === undefined
  ) return null;
  return {
    type,
    sequence: readU32(message, 4),
    offerNumber: readU32(message, 8),
    tokens: readU32(message, 12),
    payload: message.subarray(FRAME_HEADER_BYTES),
  };
}

const BATCH_VERSION = 2;
const BATCH_PREFIX_BYTES = 20;
const ID_BYTES = 16;

/** A frame, decoded or as bytes, and the request that it belongs to. */
export type FrameOf<Frame> = readonly [requestId: string, frame: Frame];

/**
 * Returns messages with copies of these frames, in order. One carries as many as fit
 * into `batchBytesMax`, because a message costs the bus and both ends more than a
 * frame. Its form:
 *
 * ```
 * 0  u8   version        2
 * then for each frame
 * 0  16   request id     the 32 hex characters as bytes
 * 16 u32  length         of the frame
 * 20 …    frame
 * ```
 */
export function encodeFrames(
  frames: readonly FrameOf<Uint8Array>[],
): Uint8Array[] {
  let bytes = 1;
  for (const [, frame] of frames) bytes += BATCH_PREFIX_BYTES + frame.length;
  if (bytes > BUS_LIMITS.batchBytesMax && frames.length > 1) {
    const half = frames.length >>> 1;
    const parts = [frames.slice(0, half), frames.slice(half)];
    return parts.flatMap(encodeFrames);
  }
  const message = Buffer.allocUnsafe(bytes);
  message[0] = BATCH_VERSION;
  let at = 1;
  for (const [requestId, frame] of frames) {
    message.subarray(at, at + ID_BYTES).setFromHex(requestId);
    writeU32(message, at + ID_BYTES, frame.length);
    at += BATCH_PREFIX_BYTES;
    message.set(frame, at);
    at += frame.length;
  }
  return [message];
}

/**
 * Returns the frames of a message, in order; null if it is truncated or of another
 * version. Their payloads are views of it.
 */
export function decodeFrames(message: Uint8Array): FrameOf<Frame>[] | null {
  if (message[0] !== BATCH_VERSION) return null;
  const frames: FrameOf<Frame>[] = [];
  for (let at = 1; at < message.length;) {
    const start = at + BATCH_PREFIX_BYTES;
    const end = start + readU32(message, at + ID_BYTES);
    const frame = decodeFrame(message.subarray(start, end));
    if (frame === null || end > message.length) return null;
    frames.push([message.subarray(at, at + ID_BYTES).toHex(), frame]);
    at = end;
  }
  return frames;
}

/**
 * Writes a number big-endian. By hand, because a DataView per frame costs more than the
 * four writes.
 */
export function writeU32(
  target: Uint8Array,
  offset: number,
  value: number,
): void {
  target[offset] = value >>> 24;
  target[offset + 1] = value >>> 16;
  target[offset + 2] = value >>> 8;
  target[offset + 3] = value;
}

/**
 * Reads a big-endian number. Bytes beyond the end count as 0: the caller has checked
 * the length.
 */
export function readU32(source: Uint8Array, offset: number): number {
  return (((source[offset] ?? 0) << 24) |
    ((source[offset + 1] ?? 0) << 16) |
    ((source[offset + 2] ?? 0) << 8) |
    (source[offset + 3] ?? 0)) >>> 0;
}

const decoder = new TextDecoder("utf-8", { fatal: true });

/** Returns a value as JSON in UTF-8. */
export function encodeJson(value: unknown): Uint8Array {
  return encodeUtf8(JSON.stringify(value));
}

/**
 * Reads JSON in UTF-8; null for anything that is not UTF-8, not JSON or does not match
 * the schema.
 */
export function parsePayload<T>(
  schema: z.ZodType<T>,
  bytes: Uint8Array,
): T | null {
  try {
    return schema.parse(JSON.parse(decoder.decode(bytes)));
  } catch {
    return null;
  }
}
