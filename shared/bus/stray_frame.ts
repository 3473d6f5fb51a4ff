import { type Frame, FrameType } from "./frame.ts";
import { parseWorker } from "./frame_payload.ts";

/** A control record that the edge owes a worker, and the worker. */
export type StrayAnswer =
  | { type: "ack"; workerId: string; attempt: number; sequence: number }
  | { type: "cancel"; workerId: string; attempt: number };

/**
 * Answers a frame that no receiver took: its request is finished, its attempt is
 * an old one, or the edge never knew it. The end of such a stream is acknowledged
 * so that the worker forgets it; a stream that still runs is cancelled, reason
 * `unknown_stream`. Null when the frame does not name its worker (DATA) or needs
 * no answer (REJECT): a worker that hears nothing sends a BEAT within a second.
 *
 * Needs no memory of finished requests: such frames name their worker.
 */
export function strayFrameAnswer(frame: Frame): StrayAnswer | null {
  const { type, attempt, sequence } = frame;
  if (type === FrameType.DATA || type === FrameType.REJECT) return null;
  const workerId = parseWorker(frame.payload);
  if (workerId === null) return null;
  return type === FrameType.END || type === FrameType.ERR
    ? { type: "ack", workerId, attempt, sequence }
    : { type: "cancel", workerId, attempt };
}
