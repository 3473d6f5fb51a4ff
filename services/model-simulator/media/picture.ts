/** Draws images and videos: a mosaic whose colours depend on the words. */
import { Buffer } from "node:buffer";
import { crc32, deflateSync } from "node:zlib";
import { hashText, seededRandom } from "../chat/language.ts";
import { sleep } from "../serving/answer.ts";

export interface Scene {
  readonly words: string;
  readonly width: number;
  readonly height: number;
  /** Tells images of the same words apart. */
  readonly seed?: string;
  /** The finished part of the image, 0 to 1. Default: 1. */
  readonly finished?: number;
}

type Pixels = Uint32Array<ArrayBuffer>;

/** In each row, and rows. */
const TILES = 8;
const BLACK = 0xff000000;
const WHITE = 0xffffffff;
/** Few, because a frame costs some hundredths of a second. */
const FRAMES_PER_SECOND = 1;
/** The height of the full bar, as a share of the image. */
const BAR_SHARE = 0.05;

/** The colour of each pixel, row by row: red, green, blue and opacity from the lowest byte. */
function draw(
  { words, width, height, seed = "", finished = 1 }: Scene,
): Pixels {
  const random = seededRandom(hashText(`${seed} ${words}`));
  const colours = Array.from(
    { length: TILES ** 2 },
    () => BLACK + Math.floor(random() * 0xffffff),
  );
  const pixels = new Uint32Array(width * height).fill(BLACK);
  for (let y = 0; y < Math.round(height * finished); y++) {
    const row = TILES * Math.floor(TILES * y / height);
    for (const [column, colour] of colours.slice(row, row + TILES).entries()) {
      const start = width * y + Math.round(width * column / TILES);
      pixels.fill(colour, start, width * (y + 1));
    }
  }
  return pixels;
}

/** A PNG file, which names its maker. */
export function pictureOf(scene: Scene): Uint8Array {
  const { width, height } = scene;
  const pixels = Buffer.from(draw(scene).buffer);
  const rowBytes = 4 * width;
  // Each row follows a zero: it is not filtered.
  const rows = Buffer.alloc(height * (1 + rowBytes));
  for (let y = 0; y < height; y++) {
    const at = y * rowBytes;
    pixels.copy(rows, at + y + 1, at, at + rowBytes);
  }
  // Eight bits each of red, green, blue and opacity.
  const form = Buffer.from([8, 6, 0, 0, 0]);
  const head = Buffer.concat([bigEndian(width), bigEndian(height), form]);
  return Buffer.concat([
    Buffer.from("\x89PNG\r\n\x1a\n", "latin1"),
    chunkOf("IHDR", head),
    chunkOf("tEXt", "Software\0The gateway's model simulator"),
    chunkOf("IDAT", deflateSync(rows, { level: 1 })),
    chunkOf("IEND"),
  ]);
}

/** Its size, type, data and checksum. */
function chunkOf(type: string, data: Uint8Array | string = ""): Buffer {
  const named = Buffer.concat([Buffer.from(type), Buffer.from(data)]);
  const size = bigEndian(named.length - type.length);
  return Buffer.concat([size, named, bigEndian(crc32(named))]);
}

const bigEndian = (number: number) =>
  Buffer.from(Uint32Array.of(number).buffer).reverse();

/** An MP4 file of this image, under a white bar that grows until the end. Width and height are even. */
export async function filmOf(scene: Scene, seconds: number) {
  const { default: hme } = await import("h264-mp4-encoder");
  const { width, height } = scene;
  const encoder = await hme.createH264MP4Encoder();
  Object.assign(encoder, { width, height, frameRate: FRAMES_PER_SECOND });
  encoder.initialize();
  const pixels = draw(scene);
  const frames = seconds * FRAMES_PER_SECOND;
  for (let frame = 1; frame <= frames; frame++) {
    const rows = Math.round(height * BAR_SHARE * frame / frames);
    pixels.fill(WHITE, 0, width * rows);
    encoder.addFrameRgba(new Uint8Array(pixels.buffer));
    await sleep(0);
  }
  encoder.finalize();
  const film = encoder.FS.readFile(encoder.outputFilename);
  encoder.FS.unlink(encoder.outputFilename);
  encoder.delete();
  return film;
}
