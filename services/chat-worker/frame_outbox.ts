/**
 * Batches frames for the bus. When many answers stream at once, their frames wait a
 * moment for each other, so that one write to the socket carries a dozen tokens:
 * system calls, here, in the bus and at the edge, are most of the cost of a token. An
 * idle worker sends at once.
 *
 * Frames are published in order, all in one turn of the event loop, so that the bus
 * client writes them together.
 */
import { FrameType } from "@gateway/shared/bus/frame";

/** How long a token may wait for others. A model generates one every 10 to 50 ms. */
export const FRAME_WAIT_MS = 1;
/** With fewer answers than this, waiting is rarely worthwhile. */
export const BUSY_JOBS_MIN = 16;

/** Offset of the type in a frame, see `shared/bus/frame.ts`. */
const TYPE_OFFSET = 1;

/**
 * Creates the function that sends a frame, now or in a moment. `publish` must not
 * throw; `scheduleSoon` runs a function within {@link FRAME_WAIT_MS}; `isBusy` returns
 * whether enough answers are running to make waiting worthwhile.
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
    // Everything but tokens is sent at once.
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
