/** The length of a WAV file, of which the head says what a second takes. */
import type { Buffer } from "node:buffer";
import { type Length, type Reading, UNKNOWN } from "./reading.ts";

/** `RIFF`, the size and `WAVE`: chunks follow. */
const HEAD_BYTES = 12;
const CHUNK_HEAD_BYTES = 8;
const FORMAT_BYTES = 16;
/** What follows in the extended form, up to the code of the samples. */
const EXTENSION_BYTES = 10;
const EXTENDED = 0xfffe;
/** Samples, whole or as fractions, and their two forms of telephones. */
const SAMPLE_CODES = new Set([1, 3, 6, 7]);
const BITS_PER_BYTE = 8;

/** Reads what follows the first twelve bytes. */
export function* readWav(): Reading {
  let at = HEAD_BYTES;
  for (;;) {
    const head = yield { at, length: CHUNK_HEAD_BYTES };
    if (head.length < CHUNK_HEAD_BYTES) return UNKNOWN;
    at += CHUNK_HEAD_BYTES;
    if (head.toString("latin1", 0, 4) === "fmt ") return yield* readFormat(at);
    const bytes = head.readUInt32LE(4);
    at += bytes + bytes % 2;
  }
}

function* readFormat(at: number): Reading {
  const format = yield { at, length: FORMAT_BYTES };
  if (format.length < FORMAT_BYTES) return UNKNOWN;
  let code = format.readUInt16LE(0);
  if (code === EXTENDED) {
    const more = yield { at: at + FORMAT_BYTES, length: EXTENSION_BYTES };
    if (more.length < EXTENSION_BYTES) return UNKNOWN;
    code = more.readUInt16LE(EXTENSION_BYTES - 2);
  }
  return SAMPLE_CODES.has(code) ? lengthBy(format) : UNKNOWN;
}

/**
 * Players ignore the rate of bytes and the size of the samples, which may claim
 * anything.
 */
function lengthBy(format: Buffer): Length {
  const channels = format.readUInt16LE(2);
  const samplesPerSecond = format.readUInt32LE(4);
  const bits = format.readUInt16LE(14);
  const perSecond = channels * samplesPerSecond * bits / BITS_PER_BYTE;
  return perSecond > 0 ? (fileBytes) => fileBytes / perSecond : UNKNOWN;
}
