/** How long a recording is: exact for WAV, estimated for compressed formats. */
import { Buffer } from "node:buffer";

/** Recordings of speech in compressed formats usually have about this rate. */
const USUAL_BITS_PER_SECOND = 64_000;
/** The text by which a format is known, and where it is. */
const MARKS = [
  { text: "OggS", at: 0 },
  { text: "fLaC", at: 0 },
  { text: "ID3", at: 0 },
  /** M4A and MP4. */
  { text: "ftyp", at: 4 },
  /** WebM and Matroska. */
  { text: "\x1a\x45\xdf\xa3", at: 0 },
];
/** The head of a frame of MPEG audio, layer III: eleven ones, version, layer 1. */
const MP3_HEAD = { mask: 0xffe6, bits: 0xffe2 };
/** Less has no sound in any format. */
const BYTES_MIN = 44;

/** The length of a recording in seconds; null for what is no recording. */
export function secondsOf(bytes: Uint8Array): number | null {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (file.length < BYTES_MIN) return null;
  const isRiff = file.toString("latin1", 0, 4) === "RIFF";
  if (isRiff && file.toString("latin1", 8, 12) === "WAVE") {
    return secondsOfWav(file);
  }
  const head = file.readUInt16BE(0);
  const isKnown = (head & MP3_HEAD.mask) === MP3_HEAD.bits ||
    MARKS.some(({ text, at }) =>
      file.toString("latin1", at, at + text.length) === text
    );
  return isKnown ? file.length * 8 / USUAL_BITS_PER_SECOND : null;
}

/** Reads the chunks of a WAV file up to its samples; null if it has none. */
function secondsOfWav(file: Buffer): number | null {
  let bytesPerSecond = 0;
  for (let at = 12; at + 8 <= file.length;) {
    const type = file.toString("latin1", at, at + 4);
    const size = file.readUInt32LE(at + 4);
    const content = at + 8;
    if (type === "fmt " && content + 12 <= file.length) {
      bytesPerSecond = file.readUInt32LE(content + 8);
    }
    if (type === "data") {
      const bytes = Math.min(size, file.length - content);
      return bytesPerSecond > 0 && bytes > 0 ? bytes / bytesPerSecond : null;
    }
    // Chunks begin at even places.
    at = content + size + size % 2;
  }
  return null;
}
