/**
 * Frames of one answer on its way from a worker to an edge: 16 bytes of header,
 * then the payload. Numbers are big-endian.
 *
 * ```
 * 0  u8   version        1
 * 1  u8   type           see FrameType
 * 2  u16  flags          see FrameFlag
 * 4  u32  sequence       1, 2, 3 … over DATA, END and ERR; other types carry the last one sent
 * 8  u32  attempt        which try of the request this belongs to, from 1
 * 12 u32  tokens         completion tokens produced up to here
 * 16 …    payload
 * ```
 *
 * DATA payloads, put together in order, are one byte stream of lines, each ended
 * by `\n`. A line is one chunk of JSON, or, for a call without `stream`, the one
 * whole response. A frame may hold several lines or end in the middle of one.
 */

export const FRAME_VERSION = 1;
export const FRAME_HEADER_BYTES = 16;

/** What a frame says. */
export const FrameType = {
  /** The job runs here. Payload: `{"worker": id}`. Implied by DATA, END and ERR when the edge chose the worker. */
  ACCEPT: 1,
  /** The job does not run here. Payload: {@link RejectPayload}. */
  REJECT: 2,
  /** Part of the answer. */
  DATA: 3,
  /** The answer is complete. Payload: {@link EndPayload}. */
  END: 4,
  /** The answer will not be completed. Payload: {@link ErrPayload}. */
  ERR: 5,
  /** Nothing to send now, still at work. No payload. */
  BEAT: 6,
} as const;

export type FrameType = typeof FrameType[keyof typeof FrameType];
