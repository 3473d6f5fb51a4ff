/** The length of a FLAC file (RFC 9639), which its first block says. */
import { lengthOf, type Reading, UNKNOWN } from "./reading.ts";

/** Rate, channels and bits of the samples, and how many there are: 64 bits. */
const INFO = { offset: 18, bytes: 8 } as const;
const RATE_SHIFT = 44n;
const SAMPLES_MASK = (1n << 36n) - 1n;

/** Reads a file whose `fLaC` is at this place. */
export function* readFlac(at: number): Reading {
  const info = yield { at: at + INFO.offset, length: INFO.bytes };
  if (info.length < INFO.bytes) return UNKNOWN;
  const bits = info.readBigUInt64BE();
  return lengthOf(Number(bits & SAMPLES_MASK), Number(bits >> RATE_SHIFT));
}
