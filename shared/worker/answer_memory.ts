import { ANSWER_BYTES_HELD_MAX } from "../limits.ts";
import { ApiError } from "../openai/error.ts";

/**
 * Bounds the bytes of answers that this process holds as a whole: a few of the largest
 * would exhaust its memory.
 */
export class AnswerMemory {
  bytes = 0;

  constructor(readonly bytesMax: number = ANSWER_BYTES_HELD_MAX) {}

  /** The share of one answer, which must be released. */
  open() {
    const held = {
      bytes: 0,
      /**
       * If the process has no room for so many bytes, releases all and throws
       * `overloaded`.
       */
      set: (bytes: number): void => {
        this.bytes += bytes - held.bytes;
        held.bytes = bytes;
        if (bytes === 0 || this.bytes <= this.bytesMax) return;
        // At once, so that answers that grow at the same time are not refused, too.
        held.set(0);
        // Another worker may have room.
        const message =
          "Too many large answers are in progress. Please try again shortly.";
        throw new ApiError("overloaded", message, { retryAfterMs: 1_000 });
      },
    };
    return held;
  }
}

/** What one answer holds, see {@link AnswerMemory.open}. */
export type HeldBytes = ReturnType<AnswerMemory["open"]>;
