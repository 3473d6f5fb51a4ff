/** Files of recordings, made byte by byte as their formats say. */
import { Buffer } from "node:buffer";
import { recording } from "../../../../tests/e2e/media/recording_fixture.ts";

const ascii = (text: string) => Buffer.from(text, "latin1");

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

const join = (...parts: readonly (Uint8Array | string)[]): Buffer =>
  Buffer.concat(
    parts.map((part) => typeof part === "string" ? ascii(part) : part),
  );

/** A WAV file of 16-bit samples at 16 kHz, with another chunk before its format. */
export function wavFile(seconds: number): Buffer {
  const plain = recording(44 + seconds * 32_000);
  const other = Buffer.from("JUNK\x03\0\0\0abc\0", "latin1");
  return join(plain.subarray(0, 12), other, plain.subarray(12));
}

/** A FLAC file that says its samples, without any. */
export function flacFile(samples: number, perSecond = 44_100): Buffer {
  const info = Buffer.alloc(34);
  const channels = 1n << 41n;
  const bits = 15n << 36n;
  info.writeBigUInt64BE(
    BigInt(perSecond) << 44n | channels | bits | BigInt(samples),
    10,
  );
  return join("fLaC", Uint8Array.of(0x80, 0, 0, 34), info);
}

/** The head of a frame of MPEG 1, layer 3, 128 kbit/s, 44.1 kHz, two channels. */
const FRAME_HEAD = 0xfffb9000;
const FRAME_BYTES = 417;

/** Frames of an MP3 file; the first one has this text behind its side information. */
export function mp3Frames(
  count: number,
  info: Uint8Array | string = "",
): Buffer {
  const frame = join(u32(FRAME_HEAD), Buffer.alloc(FRAME_BYTES - 4));
  const frames = Array.from({ length: count }, () => frame);
  const bytes = join(...frames);
  bytes.set(join(info), 36);
  return bytes;
}

/** What says how many frames there are. */
export const xing = (frames: number) => join("Xing", u32(1), u32(frames));
/** The same of another encoder. */
export const vbri = (frames: number) =>
  join("VBRI", Buffer.alloc(10), u32(frames));

/** Marks of this many bytes, as programs write them in front of MP3 files. */
export function marks(bytes: number): Buffer {
  const size = [bytes >> 21, bytes >> 14, bytes >> 7, bytes]
    .map((part) => part & 127);
  return join("ID3\x04\0\0", Uint8Array.from(size), Buffer.alloc(bytes, 0xff));
}

/** A page of an Ogg file. */
function oggPage(
  content: Uint8Array,
  { position, stream = 7 }: { position: bigint; stream?: number },
): Buffer {
  const head = Buffer.alloc(22);
  head.write("OggS");
  head.writeBigUInt64LE(position, 6);
  head.writeUInt32LE(stream, 14);
  const sizes = [];
  for (let left = content.length; left >= 0; left -= 255) {
    sizes.push(Math.min(left, 255));
  }
  return join(head, u32(0), Uint8Array.of(sizes.length, ...sizes), content);
}

const NO_POSITION = 0xffff_ffff_ffff_ffffn;

/** An Ogg file whose sound begins with this packet, and ends at this position. */
export function oggFile(
  identity: Uint8Array | string,
  position: number,
): Buffer {
  const sound = Buffer.alloc(600);
  const last = BigInt(position);
  return join(
    oggPage(join(identity), { position: 0n }),
    oggPage(sound, { position: last / 2n }),
    oggPage(sound, { position: last * 9n, stream: 8 }),
    oggPage(sound, { position: last }),
    oggPage(sound, { position: NO_POSITION }),
  );
}

/** How Opus, Vorbis, Speex and FLAC begin in an Ogg file, by their rate. */
export const OGG_KINDS = {
  opus: "OpusHead\x01\x01\0\0\x80\xbb\0\0\0\0\0",
  vorbis: join("\x01vorbis\0\0\0\0\x02", little(44_100), Buffer.alloc(14)),
  speex: join("Speex   ".padEnd(36), little(16_000), Buffer.alloc(40)),
  flac: join("\x7fFLAC\x01\0\0\x01", flacFile(0)),
} as const;

function little(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

const box = (type: string, ...content: readonly (Uint8Array | string)[]) => {
  const bytes = join(...content);
  return join(u32(bytes.length + 8), type, bytes);
};

/** An M4A file whose head stands before or after the sound. */
export function m4aFile(
  { units, scale, isLong = false, isLast = false }: {
    units: number;
    scale: number;
    /** Whether its numbers have 64 bits. */
    isLong?: boolean;
    isLast?: boolean;
  },
): Buffer {
  const wide = (value: number) =>
    isLong ? join(u32(Math.floor(value / 2 ** 32)), u32(value % 2 ** 32)) : u32(
      value,
    );
  const times = join(wide(1), wide(1), u32(scale), wide(units));
  const movie = box(
    "moov",
    box("free"),
    box(
      "mvhd",
      Uint8Array.of(isLong ? 1 : 0, 0, 0, 0),
      times,
      Buffer.alloc(80),
    ),
  );
  const sound = isLong
    ? join(u32(1), "mdat", u32(0), u32(1_016), Buffer.alloc(1_000))
    : box("mdat", Buffer.alloc(1_000));
  const type = box("ftyp", "M4A \0\0\0\0isom");
  return isLast ? join(type, sound, movie) : join(type, movie, sound);
}
