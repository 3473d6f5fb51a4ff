import { ApiError } from "@gateway/shared/openai/error";

/** Bounds the bytes of images that this process holds: a few of the largest would exhaust its memory. */
export class AnswerMemory {
  bytes = 0;

  constructor(readonly bytesMax: number) {}

  /** The share of one answer, which must be released. */
  open() {
    let held = 0;
    const set = (bytes: number) => {
      this.bytes += bytes - held;
      held = bytes;
    };
    return {
      get bytes(): number {
        return held;
      },
      /** If the process has no room for so many bytes, releases all and throws `overloaded`. */
      set: (bytes: number): void => {
        set(bytes);
        if (this.bytes <= this.bytesMax) return;
        // At once, so that answers that grow at the same time are not refused, too.
        set(0);
        // Another worker may have room.
        const message =
          "The server holds too many images. Please try again shortly.";
        throw new ApiError("overloaded", message, { retryAfterMs: 1_000 });
      },
      release: (): void => set(0),
    };
  }
}

export type HeldBytes = ReturnType<AnswerMemory["open"]>;
