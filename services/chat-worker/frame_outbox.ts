/**
 * Frames on their way to the bus. When many answers stream at once, their frames
 * wait a moment for each other, so that one write to the socket carries a dozen
 * tokens: system calls, here, in the bus and at the edge, are most of what a token
 * costs. A quiet worker sends at once.
 *
 * Frames leave in the order in which they came, all in one turn of the event loop,
 * which is what makes the bus client write them together.
 */
import { FrameType } from "@gateway/shared/bus/frame";

/** How long a token may wait for others. A model makes one every 10 to 50 ms. */
export const FRAME_WAIT_MS = 1;
/** With fewer answers than this there is rarely anything to wait for. */
export const BUSY_JOBS_MIN = 16;

/** Offset of the type in a frame, see `shared/bus/frame.ts`. */
const TYPE_OFFSET = 1;

/**
 * Makes the function that sends a frame, now or in a moment. `publish` must not
 * throw; `scheduleSoon` runs a function within {@link FRAME_WAIT_MS}; `isBusy` says
 * whether enough answers run for waiting to pay off.
 */
export function createFrameOutbox({ publish, scheduleSoon, isBusy }: {
  publish: (subject: string, frame: Uint8Array) => void;
  scheduleSoon: (flush: () => void) => void;
  isBusy: () => boolean;
}): (subject: string, frame: Uint8Array) => void {
  let waiting: [subject: string, frame: Uint8Array][] = [];
  let isScheduled = false;
  const flush = () => {
    for (const [subject, frame] of waiting) publish(subject, frame);
    waiting = [];
  };
  return (subject, frame) => {
    waiting.push([subject, frame]);
    // Everything but tokens goes now.
    const isToken = frame[TYPE_OFFSET] === FrameType.DATA;
    if (!isToken || !isBusy()) return flush();
    if (isScheduled) return;
    isScheduled = true;
    scheduleSoon(() => {
      isScheduled = false;
      flush();
    });
  };
}
