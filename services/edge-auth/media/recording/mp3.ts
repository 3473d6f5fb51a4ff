/**
 * The length of an MP3 file: by the number of its frames, if the first one says that,
 * else by the rate of the first one.
 */
import { Buffer } from "node:buffer";
import { lengthOf, type Reading, UNKNOWN } from "./reading.ts";

/** Kilobits per second by their code: of MPEG 1, and of MPEG 2 and 2.5. */
const KILOBITS = {
  first: [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  later: [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
} as const;
const BYTES_PER_KILOBIT = 125;
/** Samples per second of MPEG 1 by their code. */
const RATES = [44_100, 48_000, 32_000] as const;
/** What these are divided by in MPEG 2.5, nothing, MPEG 2 and MPEG 1. */
const RATE_DIVISORS = [4, NaN, 2, 1] as const;
const SAMPLES = { first: 1_152, later: 576 } as const;
const HEAD_BYTES = 4;
const LAYER_3 = 1;
const MONO = 3;
/** Where the first frame is looked for: some files have other bytes before it. */
const SEARCHED_BYTES = 4_096;
/** The end of what the first frame may say. */
const INFO_BYTES_MAX = 64;

interface Frame {
  readonly bytes: number;
  readonly bytesPerSecond: number;
  readonly samples: number;
  readonly samplesPerSecond: number;
  /** Where it may state the number of all frames. */
  readonly infoAt: number;
}

/** Reads a file whose sound begins at this place with these bytes. */
export function* readMp3(at: number, beginning: Buffer): Reading {
  const more = yield {
    at: at + beginning.length,
    length: SEARCHED_BYTES,
  };
  const bytes = Buffer.concat([beginning, more]);
  for (let offset = 0; offset + HEAD_BYTES <= bytes.length; offset += 1) {
    const frame = frameAt(bytes, offset);
    if (frame === null) continue;
    const next = offset + frame.bytes;
    const isLast = next + HEAD_BYTES > bytes.length;
    // Other bytes may look like one frame, hardly like two.
    if (!isLast && frameAt(bytes, next) === null) continue;
    const frames = framesIn(bytes, offset, frame);
    const { samples, samplesPerSecond, bytesPerSecond } = frame;
    return frames === null
      ? (fileBytes) => (fileBytes - at - offset) / bytesPerSecond
      : lengthOf(frames * samples, samplesPerSecond);
  }
  return UNKNOWN;
}

function frameAt(bytes: Buffer, offset: number): Frame | null {
  const head = bytes.readUInt32BE(offset);
  const version = head >>> 19 & 3;
  const generation = version === 3 ? "first" : "later";
  const kilobits = KILOBITS[generation][head >>> 12 & 15] ?? 0;
  const rate = RATES[head >>> 10 & 3];
  const divisor = RATE_DIVISORS[version] ?? NaN;
  const isSync = head >>> 21 === 0x7ff && (head >>> 17 & 3) === LAYER_3;
  if (!isSync || kilobits === 0 || rate === undefined || isNaN(divisor)) {
    return null;
  }
  const samples = SAMPLES[generation];
  const samplesPerSecond = rate / divisor;
  const bytesPerSecond = kilobits * BYTES_PER_KILOBIT;
  const padding = head >>> 9 & 1;
  const isMono = (head >>> 6 & 3) === MONO;
  const sideBytes = version === 3 ? isMono ? 17 : 32 : isMono ? 9 : 17;
  return {
    bytes: Math.floor(samples * bytesPerSecond / samplesPerSecond) + padding,
    bytesPerSecond,
    samples,
    samplesPerSecond,
    infoAt: HEAD_BYTES + sideBytes,
  };
}

/** How many frames the first one says that there are; null: it does not say. */
function framesIn(
  bytes: Buffer,
  offset: number,
  { infoAt }: Frame,
): number | null {
  if (offset + INFO_BYTES_MAX > bytes.length) return null;
  const tagAt = (at: number) => bytes.toString("latin1", at, at + 4);
  const info = offset + infoAt;
  const hasInfo = /^(Xing|Info)$/.test(tagAt(info));
  if (hasInfo && (bytes.readUInt32BE(info + 4) & 1) === 1) {
    return bytes.readUInt32BE(info + 8);
  }
  const other = offset + OTHER_INFO.at;
  return tagAt(other) === "VBRI"
    ? bytes.readUInt32BE(other + OTHER_INFO.framesAt)
    : null;
}

/** Where the encoder of Fraunhofer states it. */
const OTHER_INFO = { at: 36, framesAt: 14 } as const;
