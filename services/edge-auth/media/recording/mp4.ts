/**
 * The length of an MP4 file, such as M4A (ISO 14496-12), which the box `mvhd` says,
 * wherever it stands.
 */
import type { Buffer } from "node:buffer";
import { lengthOf, type Reading, UNKNOWN } from "./reading.ts";

const HEAD_BYTES = 8;
const LARGE_SIZE_BYTES = 8;
/** The sizes that say: in the next eight bytes; up to the end of the file. */
const SIZE = { isLarge: 1, isOpen: 0 } as const;
/** As much of `mvhd` as says the length. */
const MOVIE_BYTES = 32;
/** Where that stands, by the version of the box. */
const MOVIE = {
  short: { scale: 12, duration: 16 },
  long: { scale: 20, duration: 24 },
} as const;

interface Box {
  readonly type: string;
  readonly contentAt: number;
  readonly end: number;
}

/** Reads a file that begins with these bytes. */
export function* readMp4(beginning: Buffer): Reading {
  let at = beginning.readUInt32BE(0);
  if (at < beginning.length) return UNKNOWN;
  for (;;) {
    const box = yield* readBox(at);
    if (box === null) return UNKNOWN;
    if (box.type === "mvhd") return yield* readMovie(box.contentAt);
    at = box.type === "moov" ? box.contentAt : box.end;
  }
}

/** Reads the head of the box at this place; null: there is none. */
function* readBox(at: number): Reading<Box | null> {
  const head = yield { at, length: HEAD_BYTES };
  if (head.length < HEAD_BYTES) return null;
  const type = head.toString("latin1", 4);
  const size = head.readUInt32BE(0);
  let contentAt = at + HEAD_BYTES;
  let bytes = size;
  if (size === SIZE.isLarge) {
    const large = yield { at: contentAt, length: LARGE_SIZE_BYTES };
    if (large.length < LARGE_SIZE_BYTES) return null;
    bytes = Number(large.readBigUInt64BE());
    contentAt += LARGE_SIZE_BYTES;
  } else if (size === SIZE.isOpen) bytes = Infinity;
  const end = at + bytes;
  return end < contentAt ? null : { type, contentAt, end };
}

function* readMovie(at: number): Reading {
  const movie = yield { at, length: MOVIE_BYTES };
  if (movie.length < MOVIE_BYTES) return UNKNOWN;
  const isLong = movie.readUInt8(0) === 1;
  const { scale, duration } = isLong ? MOVIE.long : MOVIE.short;
  const units = isLong
    ? Number(movie.readBigUInt64BE(duration))
    : movie.readUInt32BE(duration);
  // One that was recorded in pieces has none, or all bits set.
  return lengthOf(units, movie.readUInt32BE(scale));
}
