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

export interface FrameOutboxDependencies {
  /** Sends one frame. Must not throw. */
  publish: (subject: string, frame: Uint8Array) => void;
  /** Runs `flush` within {@link FRAME_WAIT_MS}. */
  scheduleSoon: (flush: () => void) => void;
  /** Whether enough answers run for waiting to pay off. */
  isBusy: () => boolean;
}

/** How long a token may wait for others. A model makes one every 10 to 50 ms. */
export const FRAME_WAIT_MS = 1;
/** With fewer answers than this there is rarely anything to wait for. */
export const BUSY_JOBS_MIN = 16;

/** Offset of the type in a frame, see `shared/bus/frame.ts`. */
const TYPE_OFFSET = 1;

export class FrameOutbox {
  readonly #d: FrameOutboxDependencies;
  #waiting: [subject: string, frame: Uint8Array][] = [];
  #isScheduled = false;

  constructor(dependencies: FrameOutboxDependencies) {
    this.#d = dependencies;
  }

  /** Sends a frame, now or in a moment. Everything but tokens goes now. */
  send(subject: string, frame: Uint8Array): void {
    this.#waiting.push([subject, frame]);
    const isToken = frame[TYPE_OFFSET] === FrameType.DATA;
    if (!isToken || !this.#d.isBusy()) return this.#flush();
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#d.scheduleSoon(() => {
      this.#isScheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    for (const [subject, frame] of this.#waiting) {
      this.#d.publish(subject, frame);
    }
    this.#waiting = [];
  }
}
