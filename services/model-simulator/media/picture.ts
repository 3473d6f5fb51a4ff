/** Plain pictures as PNG files: as small as files of the requested size can be. */
import { Buffer } from "node:buffer";
import { crc32, deflateSync } from "node:zlib";
import { hashText } from "../chat/language.ts";

/** What a picture looks like: only its size and its colour. */
export interface Scene {
  readonly width: number;
  readonly height: number;
  /** Decides about the colour. */
  readonly words: string;
  /** Tells pictures of the same words apart. */
  readonly seed?: string;
  /** The finished part of the picture, from the top, 0 to 1. Default: 1. */
  readonly finished?: number;
}

const SIGNATURE = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");
/** One bit for each pixel, which names a colour of the palette; see RFC 2083, 4.1.1. */
const FORM = Buffer.from([1, 3, 0, 0, 0]);
const UNFINISHED_COLOUR = 0x808080;
/** Eight pixels of the first and of the second colour of the palette. */
const FINISHED = 0x00;
const UNFINISHED = 0xff;

/**
 * The PNG file of a picture, which names its maker. The same scene has the same file.
 */
export function pictureOf(scene: Scene): Uint8Array {
  const { width, height, words, seed = "", finished = 1 } = scene;
  // Each row follows a zero: it is not filtered.
  const rowBytes = 1 + Math.ceil(width / 8);
  const rows = Buffer.alloc(height * rowBytes, FINISHED);
  for (let y = Math.round(height * finished); y < height; y++) {
    rows.fill(UNFINISHED, y * rowBytes + 1, (y + 1) * rowBytes);
  }
  const colour = hashText(`${seed} ${words}`) & 0xffffff;
  return Buffer.concat([
    SIGNATURE,
    chunkOf("IHDR", Buffer.concat([uint32(width), uint32(height), FORM])),
    chunkOf("PLTE", Buffer.concat([rgb(colour), rgb(UNFINISHED_COLOUR)])),
    chunkOf("tEXt", Buffer.from("Software\0The gateway's model simulator")),
    chunkOf("IDAT", deflateSync(rows)),
    chunkOf("IEND", Buffer.alloc(0)),
  ]);
}

/** A chunk of a PNG file: its size, type, data and checksum. */
function chunkOf(type: string, data: Buffer): Buffer {
  const typeAndData = Buffer.concat([Buffer.from(type), data]);
  return Buffer.concat([
    uint32(data.length),
    typeAndData,
    uint32(crc32(typeAndData)),
  ]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

function rgb(colour: number): Buffer {
  return uint32(colour).subarray(1);
}
