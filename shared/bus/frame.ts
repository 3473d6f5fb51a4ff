/**
 * Frames of one answer on its way from a worker to an edge: 16 bytes of header,
 * then the payload. Numbers are big-endian.
 *
 * ```
 * 0  u8   version        1
 * 1  u8   type           see FrameType
 * 2  u16  flags          none defined: sent as 0, not looked at
 * 4  u32  sequence       1, 2, 3 … over DATA, END and ERR; other types carry the last one sent
 * 8  u32  attempt        which try of the request this belongs to, from 1
 * 12 u32  tokens         completion tokens produced up to here
 * 16 …    payload
 * ```
 *
 * Every dispatch of a request has its own attempt number, a dispatch that was
 * rejected included: it is all that tells a late frame from a current one.
 *
 * DATA payloads, put together in order, are one byte stream of lines, each ended
 * by `\n`. A line is one chunk of JSON, or, for a call without `stream`, the one
 * whole response. A frame may hold several lines or end in the middle of one.
 *
 * All other payloads are JSON with the worker's id in it (`frame_payload.ts`), so
 * that an edge can answer such a frame even when it knows nothing of the request.
 */

const FRAME_VERSION = 1;
export const FRAME_HEADER_BYTES = 16;

/** Largest value of the header's 32-bit numbers. */
export const FRAME_NUMBER_MAX = 0xffff_ffff;

/** What a frame says. */
export const FrameType = {
  /** The job runs here. Payload: {@link AcceptPayload}. Implied by BEAT, and by DATA, END and ERR when the edge chose the worker. */
  ACCEPT: 1,
  /** The job does not run here. Payload: {@link RejectPayload}. Has no sequence number and is never repeated. */
  REJECT: 2,
  /** Part of the answer. */
  DATA: 3,
  /** The answer is complete. Payload: {@link EndPayload}. */
  END: 4,
  /** The answer will not be completed. Payload: {@link ErrPayload}. */
  ERR: 5,
  /** Still at work, and this is how far it got. Payload: {@link AcceptPayload}. */
  BEAT: 6,
} as const;

export type FrameType = typeof FrameType[keyof typeof FrameType];

/** The header of a frame, without what is the same in every frame. */
export interface FrameHeader {
  type: FrameType;
  sequence: number;
  attempt: number;
  tokens: number;
}

/** A frame as it was received. `payload` is a view into the message, not a copy. */
export interface Frame extends FrameHeader {
  payload: Uint8Array;
}

/** Why bytes are not a frame. Their receiver counts and ignores them. */
export type FrameFault = "short" | "unknown_version" | "unknown_type";

/** One message: header and payload in one new array. */
export function encodeFrame(
  header: FrameHeader,
  payload: Uint8Array,
): Uint8Array<ArrayBuffer> {
  const frame = new Uint8Array(FRAME_HEADER_BYTES + payload.length);
  writeFrameHeader(header, frame);
  frame.set(payload, FRAME_HEADER_BYTES);
  return frame;
}

/**
 * Writes the 16 bytes of a header at `offset`, for a caller that has put, or will
 * put, the payload behind it itself. Numbers beyond 32 bits are the caller's
 * fault and are cut. Throws a RangeError when there is no room.
 */
export function writeFrameHeader(
  header: FrameHeader,
  target: Uint8Array,
  offset: number = 0,
): void {
  if (target.length - offset < FRAME_HEADER_BYTES) {
    throw new RangeError(
      `Cannot write frame header: ${target.length - offset} bytes left`,
    );
  }
  target[offset] = FRAME_VERSION;
  target[offset + 1] = header.type;
  target[offset + 2] = 0;
  target[offset + 3] = 0;
  writeU32(target, offset + 4, header.sequence);
  writeU32(target, offset + 8, header.attempt);
  writeU32(target, offset + 12, header.tokens);
}

/** Reads one message. Never throws: what cannot be read is named by a {@link FrameFault}. */
export function decodeFrame(message: Uint8Array): Frame | FrameFault {
  if (message.length < FRAME_HEADER_BYTES) return "short";
  if (message[0] !== FRAME_VERSION) return "unknown_version";
  const type = frameTypeOf(message[1]);
  if (type === null) return "unknown_type";
  return {
    type,
    sequence: readU32(message, 4),
    attempt: readU32(message, 8),
    tokens: readU32(message, 12),
    payload: message.subarray(FRAME_HEADER_BYTES),
  };
}

function frameTypeOf(value: number | undefined): FrameType | null {
  switch (value) {
    case FrameType.ACCEPT:
    case FrameType.REJECT:
    case FrameType.DATA:
    case FrameType.END:
    case FrameType.ERR:
    case FrameType.BEAT:
      return value;
    default:
      return null;
  }
}

/** Big-endian. By hand because a DataView per frame costs more than the four writes. */
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

/** Big-endian. Bytes beyond the end read as 0: the caller has checked the length. */
export function readU32(source: Uint8Array, offset: number): number {
  return (((source[offset] ?? 0) << 24) |
    ((source[offset + 1] ?? 0) << 16) |
    ((source[offset + 2] ?? 0) << 8) |
    (source[offset + 3] ?? 0)) >>> 0;
}
