/**
 * The length of an Ogg file (RFC 3533): the number of samples up to the last of its
 * pages, which are passed by their sizes.
 */
import { Buffer } from "node:buffer";
import { lengthOf, type Reading, UNKNOWN } from "./reading.ts";

const PAGE_HEAD_BYTES = 27;
/** Where the head of a page has what is needed. */
const HEAD = { position: 6, stream: 14, segments: 26 } as const;
/** The position of a page on which no packet ends. */
const NO_POSITION = 0xffff_ffff_ffff_ffffn;
/** Positions of Opus are in parts of a second, whatever the recording was. */
const OPUS_RATE = 48_000;

/** How each kind of sound begins, and where that says its rate. */
const KINDS: readonly {
  readonly beginning: string;
  readonly bytes: number;
  rateIn(packet: Buffer): number;
}[] = [
  { beginning: "OpusHead", bytes: 19, rateIn: () => OPUS_RATE },
  {
    beginning: "\x01vorbis",
    bytes: 16,
    rateIn: (packet) => packet.readUInt32LE(12),
  },
  {
    beginning: "Speex   ",
    bytes: 40,
    rateIn: (packet) => packet.readUInt32LE(36),
  },
  {
    beginning: "\x7fFLAC",
    bytes: 30,
    rateIn: (packet) => packet.readUIntBE(27, 3) >>> 4,
  },
];
const IDENTITY_BYTES_MAX = 40;

interface Page {
  readonly position: bigint;
  readonly stream: number;
  readonly contentAt: number;
  readonly end: number;
}

/** Reads a file that begins with these bytes. */
export function* readOgg(beginning: Buffer): Reading {
  const first = yield* readPage(0, beginning);
  if (first === null || first === "end") return UNKNOWN;
  const { contentAt, stream } = first;
  const length = Math.min(first.end - contentAt, IDENTITY_BYTES_MAX);
  const rate = rateOf(yield { at: contentAt, length });
  let samples = 0n;
  let at = first.end;
  while (rate !== null) {
    const page = yield* readPage(at);
    if (page === null) break;
    if (page === "end") return lengthOf(Number(samples), rate);
    const isOurs = page.stream === stream && page.position !== NO_POSITION;
    if (isOurs && page.position > samples) samples = page.position;
    at = page.end;
  }
  return UNKNOWN;
}

/** Reads the head of the page at this place; null: there is none. */
function* readPage(
  at: number,
  beginning: Buffer = Buffer.alloc(0),
): Reading<Page | "end" | null> {
  const more = yield {
    at: at + beginning.length,
    length: PAGE_HEAD_BYTES - beginning.length,
  };
  const head = Buffer.concat([beginning, more]);
  if (head.length === 0) return "end";
  const isPage = head.length === PAGE_HEAD_BYTES &&
    head.toString("latin1", 0, 4) === "OggS";
  if (!isPage) return null;
  const segments = head.readUInt8(HEAD.segments);
  const sizes = yield { at: at + PAGE_HEAD_BYTES, length: segments };
  if (sizes.length < segments) return null;
  const contentAt = at + PAGE_HEAD_BYTES + segments;
  return {
    position: head.readBigUInt64LE(HEAD.position),
    stream: head.readUInt32LE(HEAD.stream),
    contentAt,
    end: contentAt + sizes.reduce((sum, bytes) => sum + bytes, 0),
  };
}

/** The samples per second of the sound that begins so; null: it is of no known kind. */
function rateOf(packet: Buffer): number | null {
  const text = packet.toString("latin1");
  const kind = KINDS.find(({ beginning, bytes }) =>
    text.startsWith(beginning) && packet.length >= bytes
  );
  return kind?.rateIn(packet) ?? null;
}
