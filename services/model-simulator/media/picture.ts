/**
 * Draws images and videos: circles that depend on the words, and the words themselves.
 */
import { Buffer } from "node:buffer";
import { crc32, deflateSync } from "node:zlib";
import { newRequestId } from "@gateway/shared/process/ids";
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

const CIRCLES = 14;
const BLACK = 0xff000000;
const WHITE = 0xffffffff;
const LINE_LETTERS = 24;
const LINES_MAX = 3;
/**
 * Digits and letters, each as five rows of three dots, the first row in the highest
 * bits.
 */
const LETTERS = [
  0x7b6f,
  0x2c97,
  0x62a7,
  0x628e,
  0x5bc9,
  0x798e,
  0x39ef,
  0x7292,
  0x7bef,
  0x7bce,
  0x2bed,
  0x6bae,
  0x3923,
  0x6b6e,
  0x79a7,
  0x79a4,
  0x396b,
  0x5bed,
  0x7497,
  0x126a,
  0x5bad,
  0x4927,
  0x5fed,
  0x6b6d,
  0x2b6a,
  0x6ba4,
  0x2b73,
  0x6bad,
  0x388e,
  0x7492,
  0x5b6f,
  0x5b6a,
  0x5bfd,
  0x5aad,
  0x5a92,
  0x72a7,
];
/** Few, because a frame costs some hundredths of a second. */
const FRAMES_PER_SECOND = 1;
/** The height of the full bar, as a share of the image. */
const BAR_SHARE = 0.05;

/**
 * The colour of each pixel, row by row: red, green, blue and opacity from the lowest
 * byte.
 */
export function draw(scene: Scene): Pixels {
  const { words, width, height, seed = "", finished = 1 } = scene;
  const random = seededRandom(hashText(`${seed} ${words}`));
  const colour = () => BLACK + Math.floor(random() * 0xffffff);
  const pixels = new Uint32Array(width * height).fill(colour());
  const fillRow = (y: number, from: number, to: number, colour: number) => {
    const [start, end] = [from, to].map((x) =>
      width * y + Math.max(0, Math.min(width, Math.round(x)))
    );
    if (y >= 0 && y < height) pixels.fill(colour, start, end);
  };
  for (let circle = 0; circle < Math.round(CIRCLES * finished); circle++) {
    const x = random() * width;
    const y = Math.floor(random() * height);
    const radius = Math.min(width, height) * (0.06 + random() * 0.2);
    const own = colour();
    for (let at = -Math.floor(radius); at <= radius; at++) {
      const half = Math.sqrt(radius ** 2 - at ** 2);
      fillRow(y + at, x - half, x + half, own);
    }
  }
  if (finished === 1) caption(scene, fillRow);
  return pixels;
}

/** The words and the maker, in white on a dark strip at the bottom of the image. */
function caption(
  { words, width, height }: Scene,
  fillRow: (y: number, from: number, to: number, colour: number) => void,
): void {
  const lines = words.match(/\S.{0,23}(?!\S)/gsu)?.slice(0, LINES_MAX) ?? [];
  lines.push("Model simulator");
  // A letter takes four dots, with the gap to the next one.
  const dot = Math.max(1, Math.floor(width / (4 * LINE_LETTERS + 2)));
  const top = height - dot * (1 + 6 * lines.length);
  for (let y = top; y < height; y++) {
    fillRow(y, 0, width, BLACK);
    const line = Math.floor((y - top) / dot) - 1;
    const [text = "", row] = [lines[Math.floor(line / 6)], line % 6];
    if (row > 4) continue;
    for (const [index, letter] of [...text].entries()) {
      const bits = LETTERS[parseInt(letter, 36)] ?? 0;
      for (let column = 0; column < 3; column++) {
        const x = dot * (1 + 4 * index + column);
        const isSet = bits >> (14 - 3 * row - column) & 1;
        if (isSet === 1) fillRow(y, x, x + dot, WHITE);
      }
    }
  }
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

/**
 * An MP4 file of this image, under a white bar that grows until the end. Width and
 * height are even.
 */
export async function filmOf(scene: Scene, seconds: number) {
  const { default: hme } = await import("h264-mp4-encoder");
  const { width, height } = scene;
  const encoder = await hme.createH264MP4Encoder();
  // All encoders share one file system.
  encoder.outputFilename = `${newRequestId()}.mp4`;
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
