/** How the head of a file is read: forwards only, while its bytes pass by. */
import type { Buffer } from "node:buffer";

/** The bytes that a reader wants next. */
export interface Want {
  /** From the beginning of the file, and never before what the reader has had. */
  readonly at: number;
  readonly length: number;
}

/**
 * The seconds of a recording, when it is known how many bytes its file has; null: it
 * does not say.
 */
export type Length = (fileBytes: number) => number | null;

/**
 * Yields what it wants, and gets it; less where the file ends before. Returns the
 * length.
 */
export type Reading<Result = Length> = Generator<Want, Result, Buffer>;

/** The length of a file that does not state it. */
export const UNKNOWN: Length = () => null;

/** The length of this many samples, if both numbers make sense. */
export function lengthOf(samples: number, perSecond: number): Length {
  return samples > 0 && perSecond > 0 ? () => samples / perSecond : UNKNOWN;
}
