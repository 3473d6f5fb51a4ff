/** A source of numbers in [0, 1), like `Math.random`. */
export type Random = () => number;

/**
 * The 32-bit hash of a string, the same in every process: FNV-1a over the UTF-16
 * code units, then murmur3's final mix so that near strings land far apart.
 */
export function hash32(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/**
 * A source that gives the same numbers for the same label in every process:
 * the sfc32 generator (Chris Doty-Humphrey's PractRand), 128 bits of state.
 */
export function randomFrom(label: string): Random {
  let a = hash32(`a${label}`);
  let b = hash32(`b${label}`);
  let c = hash32(`c${label}`);
  let counter = 1;
  const next = () => {
    const sum = (a + b + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + sum) | 0;
    return (sum >>> 0) / 0x1_0000_0000;
  };
  // The first outputs still show the seed: 12 rounds are what its author runs.
  for (let i = 0; i < 12; i++) next();
  return next;
}

/** An integer in `[from, to]`, both included. */
export function integerBetween(
  random: Random,
  from: number,
  to: number,
): number {
  return from + Math.floor(random() * (to - from + 1));
}

/** One of the items. Undefined only for an empty list. */
export function pick<T>(random: Random, items: readonly T[]): T | undefined {
  return items[Math.floor(random() * items.length)];
}

/** The items in an order of chance; the list itself stays as it is. */
export function shuffled<T>(random: Random, items: readonly T[]): T[] {
  const keyed = items.map((item) => ({ item, key: random() }));
  return keyed.sort((one, other) => one.key - other.key).map(({ item }) =>
    item
  );
}
