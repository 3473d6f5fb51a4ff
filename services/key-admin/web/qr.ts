import { codewordsOf } from "./qr_codewords.ts";

/**
 * QR codes (ISO/IEC 18004) for short texts: byte mode, error correction M,
 * versions 1 to 10, which is up to 213 bytes. Enough for an authenticator's URI,
 * and the reason why no secret has to go through somebody's library or service.
 */

/** Rows of modules; true is dark. */
export type QrModules = readonly (readonly boolean[])[];

const MASKS = [0, 1, 2, 3, 4, 5, 6, 7];

/** Encodes a text, or null when it is too long. */
export function encodeQr(text: string): QrModules | null {
  const found = codewordsOf(text);
  if (found === null) return null;
  const drawn = MASKS.map((mask) => draw(found.version, found.codewords, mask));
  return drawn.reduce((best, next) =>
    penalty(next) < penalty(best) ? next : best
  );
}

/** Draws everything with one of the eight masks. */
function draw(
  version: number,
  codewords: readonly number[],
  mask: number,
): boolean[][] {
  const size = 17 + 4 * version;
  const dark = grid(size);
  const isFixed = grid(size);
  const set = (x: number, y: number, value: boolean) => {
    const row = dark[y];
    const fixedRow = isFixed[y];
    if (row === undefined || fixedRow === undefined || x < 0 || x >= size) {
      return;
    }
    row[x] = value;
    fixedRow[x] = true;
  };
  drawPatterns(version, size, set);
  drawFormat(mask, size, set);
  if (version >= 7) drawVersion(version, size, set);
  drawData(codewords, mask, dark, isFixed);
  return dark;
}

type SetModule = (x: number, y: number, value: boolean) => void;

const grid = (size: number): boolean[][] =>
  Array.from({ length: size }, () => Array<boolean>(size).fill(false));

function drawPatterns(version: number, size: number, set: SetModule): void {
  for (let at = 0; at < size; at++) {
    set(6, at, at % 2 === 0);
    set(at, 6, at % 2 === 0);
  }
  for (const [cx, cy] of [[3, 3], [size - 4, 3], [3, size - 4]] as const) {
    square(
      4,
      (dx, dy, ring) => set(cx + dx, cy + dy, ring !== 2 && ring !== 4),
    );
  }
  const places = alignmentPlaces(version, size);
  for (const cx of places) {
    for (const cy of places) {
      const isCorner = (cx === 6 && cy === 6) ||
        (cx === 6 && cy === size - 7) || (cx === size - 7 && cy === 6);
      if (isCorner) continue;
      square(2, (dx, dy, ring) => set(cx + dx, cy + dy, ring !== 1));
    }
  }
}

function square(
  radius: number,
  visit: (dx: number, dy: number, ring: number) => void,
): void {
  for (let dy = -radius; dy <= radius; dy++) {
    for (let dx = -radius; dx <= radius; dx++) {
      visit(dx, dy, Math.max(Math.abs(dx), Math.abs(dy)));
    }
  }
}

function alignmentPlaces(version: number, size: number): number[] {
  if (version === 1) return [];
  return version < 7 ? [6, size - 7] : [6, (size - 1) / 2, size - 7];
}

/** Correction level M (00) and the mask, protected by a BCH code. */
function drawFormat(mask: number, size: number, set: SetModule): void {
  let rest = mask;
  for (let step = 0; step < 10; step++) rest = rest << 1 ^ (rest >> 9) * 0x537;
  const bits = (mask << 10 | rest) ^ 0x5412;
  const bit = (at: number) => (bits >> at & 1) === 1;
  for (let at = 0; at < 6; at++) set(8, at, bit(at));
  set(8, 7, bit(6));
  set(8, 8, bit(7));
  set(7, 8, bit(8));
  for (let at = 9; at < 15; at++) set(14 - at, 8, bit(at));
  for (let at = 0; at < 8; at++) set(size - 1 - at, 8, bit(at));
  for (let at = 8; at < 15; at++) set(8, size - 15 + at, bit(at));
  set(8, size - 8, true);
}

function drawVersion(version: number, size: number, set: SetModule): void {
  let rest = version;
  for (let step = 0; step < 12; step++) {
    rest = rest << 1 ^ (rest >> 11) * 0x1f25;
  }
  const bits = version << 12 | rest;
  for (let at = 0; at < 18; at++) {
    const value = (bits >> at & 1) === 1;
    const far = size - 11 + at % 3;
    const near = Math.floor(at / 3);
    set(far, near, value);
    set(near, far, value);
  }
}

/** Two columns at a time, from the right, up and down in turn. */
function drawData(
  codewords: readonly number[],
  mask: number,
  dark: boolean[][],
  isFixed: readonly (readonly boolean[])[],
): void {
  const size = dark.length;
  let at = 0;
  for (let right = size - 1; right >= 1; right -= 2) {
    if (right === 6) right = 5; // The column of the timing pattern.
    for (let step = 0; step < size; step++) {
      const isUpward = (right + 1 & 2) === 0;
      const y = isUpward ? size - 1 - step : step;
      for (const x of [right, right - 1]) {
        const row = dark[y];
        if (row === undefined || isFixed[y]?.[x]) continue;
        const codeword = codewords[at >> 3] ?? 0;
        const bit = (codeword >> (7 - (at & 7)) & 1) === 1;
        row[x] = bit !== isMasked(mask, x, y);
        at++;
      }
    }
  }
}

function isMasked(mask: number, x: number, y: number): boolean {
  switch (mask) {
    case 0:
      return (x + y) % 2 === 0;
    case 1:
      return y % 2 === 0;
    case 2:
      return x % 3 === 0;
    case 3:
      return (x + y) % 3 === 0;
    case 4:
      return (Math.floor(x / 3) + Math.floor(y / 2)) % 2 === 0;
    case 5:
      return x * y % 2 + x * y % 3 === 0;
    case 6:
      return (x * y % 2 + x * y % 3) % 2 === 0;
    default:
      return ((x + y) % 2 + x * y % 3) % 2 === 0;
  }
}

/** How hard to read: long runs and solid squares, the two rules that matter most. */
function penalty(dark: QrModules): number {
  const size = dark.length;
  const at = (x: number, y: number) => dark[y]?.[x];
  let points = 0;
  for (let line = 0; line < size; line++) {
    for (
      const cell of [(n: number) => at(n, line), (n: number) => at(line, n)]
    ) {
      let run = 1;
      for (let n = 1; n <= size; n++) {
        if (n < size && cell(n) === cell(n - 1)) run++;
        else {
          if (run >= 5) points += run - 2;
          run = 1;
        }
      }
    }
  }
  for (let y = 1; y < size; y++) {
    for (let x = 1; x < size; x++) {
      const colour = at(x, y);
      const isSolid = colour === at(x - 1, y) && colour === at(x, y - 1) &&
        colour === at(x - 1, y - 1);
      if (isSolid) points += 3;
    }
  }
  return points;
}
