/** Draws images: coloured circles that depend on the words, and the words themselves. */
import font from "@fontsource/dejavu-sans/metadata.json" with { type: "json" };
import { initWasm, Resvg } from "@resvg/resvg-wasm";
import { hashText, type Random, seededRandom } from "../chat/language.ts";

export interface Scene {
  readonly words: string;
  readonly width: number;
  readonly height: number;
  /** Tells images of the same words apart. */
  readonly seed?: number;
  /** The finished part of the image, 0 to 1. Default: 1. */
  readonly finished?: number;
  /** A `data:` URL of an image that is shown instead of the circles. */
  readonly photo?: string;
}

const readPackageFile = (path: string) =>
  Deno.readFile(new URL(import.meta.resolve(path)));
const FONT = await readPackageFile(
  `@fontsource/${font.id}/files/${font.id}-latin-400-normal.woff2`,
);
await initWasm(readPackageFile("@resvg/resvg-wasm/index_bg.wasm"));

const CIRCLES = 14;
const LINES_MAX = 5;
/** The size of letters as a share of the shorter side. */
const FONT_SHARE = 0.055;
/** Shares of the size of letters. */
const LINE_HEIGHT = 1.35;
const LETTER_WIDTH = 0.58;

/** The image as a PNG file and as RGBA, four bytes for each pixel, row by row. */
export function draw(scene: Scene) {
  const svg = new Resvg(svgOf(scene), {
    font: { fontBuffers: [FONT], defaultFontFamily: font.family },
  });
  const image = svg.render();
  const drawn = { png: image.asPng(), pixels: image.pixels };
  image.free();
  svg.free();
  return drawn;
}

function svgOf(scene: Scene): string {
  const { words, width, height, seed = 0, finished = 1, photo } = scene;
  const random = seededRandom(hashText(`${seed} ${words}`));
  const hue = Math.floor(random() * 360);
  const circles = Array.from(
    { length: CIRCLES },
    () => circle(scene, random, hue),
  )
    .slice(0, Math.round(CIRCLES * finished));
  const content = photo === undefined
    ? circles.join("")
    : `<image href="${photo}" width="${width}" height="${height}"
        preserveAspectRatio="xMidYMid slice" opacity="${finished}"/>`;
  return `<svg xmlns="http://www.w3.org/2000/svg"
    width="${width}" height="${height}" font-family="${font.family}">
    <rect width="100%" height="100%" fill="hsl(${hue}, 45%, 38%)"/>
    ${content}${finished === 1 ? caption(scene) : ""}</svg>`;
}

function circle({ width, height }: Scene, random: Random, hue: number): string {
  const [x, y] = [random() * width, random() * height];
  const radius = (0.06 + random() * 0.2) * Math.min(width, height);
  const own = Math.floor(hue + random() * 120);
  return `<circle cx="${x}" cy="${y}" r="${radius}" opacity=".65"
    fill="hsl(${own}, 65%, ${40 + own % 45}%)"/>`;
}

/** The words and the maker on a dark strip at the bottom of the image. */
function caption({ words, width, height }: Scene): string {
  const size = Math.min(width, height) * FONT_SHARE;
  const lines = wrap(words, (width - 2 * size) / (size * LETTER_WIDTH));
  const top = height - (lines.length * LINE_HEIGHT + 2.5) * size;
  const text = lines.map((line, index) =>
    `<text x="${size}" y="${top + (index * LINE_HEIGHT + 1.7) * size}"
      font-size="${size}">${line}</text>`
  );
  return `<rect y="${top}" width="100%" height="100%" opacity=".7"/>
    <g fill="#fff">${text.join("")}<text x="${size}" y="${height - size * 0.8}"
    font-size="${size / 2}">Model simulator · ${width} × ${height}</text></g>`;
}

/** The first lines of a text, safe in XML. */
function wrap(text: string, lettersMax: number): string[] {
  const clean = text.toWellFormed().replace(/[\p{Cc}\uFFFE\uFFFF]/gu, " ");
  const lines = [""];
  for (const word of clean.split(/\s+/)) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (longer.length > lettersMax) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  const shown = lines.filter(Boolean).slice(0, LINES_MAX);
  return shown.map((line) =>
    line.slice(0, lettersMax)
      .replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`)
  );
}
