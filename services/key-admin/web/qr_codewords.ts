/** The bytes of a QR code: the text, filled up, with Reed-Solomon codewords to correct errors by. */

/** Per version: all codewords, error correction codewords per block, blocks. */
const VERSIONS:
  readonly (readonly [total: number, ecc: number, blocks: number])[] = [
    [26, 10, 1],
    [44, 16, 1],
    [70, 26, 1],
    [100, 18, 2],
    [134, 24, 2],
    [172, 16, 4],
    [196, 18, 4],
    [242, 22, 4],
    [292, 22, 5],
    [346, 26, 5],
  ];

/** From this version on the length of the text takes two bytes. */
const LONG_LENGTH_FROM = 10;

/**
 * The smallest version that holds the text, 1 to 10, and its codewords in the order
 * in which they are drawn. Null when the text is too long.
 */
export function codewordsOf(
  text: string,
): { version: number; codewords: number[] } | null {
  const bytes = new TextEncoder().encode(text);
  const version = 1 +
    VERSIONS.findIndex((_, index) =>
      bytes.length + (index + 1 < LONG_LENGTH_FROM ? 2 : 3) <=
        dataCodewords(index + 1)
    );
  if (version === 0) return null;
  const codewords = withCorrection(dataBytes(bytes, version), version);
  return { version, codewords };
}

function specOf(version: number) {
  const [total, ecc, blocks] = VERSIONS[version - 1] ?? [0, 0, 0];
  return { total, ecc, blocks };
}

function dataCodewords(version: number): number {
  const { total, ecc, blocks } = specOf(version);
  return total - ecc * blocks;
}

/** Mode, length, the bytes, and filling up to the capacity. */
function dataBytes(bytes: Uint8Array, version: number): number[] {
  const bits: number[] = [];
  const push = (value: number, length: number) => {
    for (let bit = length - 1; bit >= 0; bit--) bits.push(value >> bit & 1);
  };
  push(0b0100, 4);
  push(bytes.length, version < LONG_LENGTH_FROM ? 8 : 16);
  for (const byte of bytes) push(byte, 8);
  push(0, 4);
  const capacity = dataCodewords(version);
  const data: number[] = [];
  for (let at = 0; at < bits.length && data.length < capacity; at += 8) {
    data.push(
      bits.slice(at, at + 8).concat(Array(8).fill(0)).slice(0, 8)
        .reduce((value, bit) => value << 1 | bit, 0),
    );
  }
  for (let fill = 0xec; data.length < capacity; fill ^= 0xec ^ 0x11) {
    data.push(fill);
  }
  return data;
}

/** Cuts the data into blocks, adds Reed-Solomon codewords to each and interleaves them. */
function withCorrection(data: readonly number[], version: number): number[] {
  const { total, ecc, blocks } = specOf(version);
  const shortLength = Math.floor(total / blocks) - ecc;
  const shortBlocks = blocks - total % blocks;
  const generator = generatorOf(ecc);
  const parts: { data: number[]; ecc: number[] }[] = [];
  let at = 0;
  for (let block = 0; block < blocks; block++) {
    const length = shortLength + (block < shortBlocks ? 0 : 1);
    const part = data.slice(at, at + length);
    parts.push({ data: part, ecc: remainder(part, generator) });
    at += length;
  }
  const result: number[] = [];
  for (let at = 0; at <= shortLength; at++) {
    for (const part of parts) result.push(...part.data.slice(at, at + 1));
  }
  for (let at = 0; at < ecc; at++) {
    for (const part of parts) result.push(part.ecc[at] ?? 0);
  }
  return result;
}

/** Product in GF(256) modulo x^8 + x^4 + x^3 + x^2 + 1. */
function multiply(a: number, b: number): number {
  let product = 0;
  for (let bit = 7; bit >= 0; bit--) {
    product = product << 1 ^ (product >> 7) * 0x11d;
    if (b >> bit & 1) product ^= a;
  }
  return product;
}

/** (x - 1)(x - 2)(x - 4) …, without its leading 1. */
function generatorOf(degree: number): number[] {
  let generator: number[] = [...Array(degree - 1).fill(0), 1];
  let root = 1;
  for (let step = 0; step < degree; step++) {
    generator = generator.map((value, at) =>
      multiply(value, root) ^ (generator[at + 1] ?? 0)
    );
    root = multiply(root, 2);
  }
  return generator;
}

function remainder(
  data: readonly number[],
  generator: readonly number[],
): number[] {
  let rest: number[] = Array(generator.length).fill(0);
  for (const byte of data) {
    const factor = byte ^ (rest[0] ?? 0);
    rest = generator.map((value, at) =>
      (rest[at + 1] ?? 0) ^ multiply(value, factor)
    );
  }
  return rest;
}
