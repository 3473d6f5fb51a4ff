/** Numbers in [0, 1), the same for the same seed on every machine (mulberry32). */
export function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = state + 0x6D2B79F5 | 0;
    let mixed = Math.imul(state ^ state >>> 15, 1 | state);
    mixed = mixed + Math.imul(mixed ^ mixed >>> 7, 61 | mixed) ^ mixed;
    return ((mixed ^ mixed >>> 14) >>> 0) / 4_294_967_296;
  };
}

/**
 * The seeds to run a property with: the fixed ones, or the one in `TEST_SEED`, as
 * in `TEST_SEED=123 deno task test tests/limits`.
 * Put the seed into the name of the test, so that a failure says what to repeat.
 */
export function seedsOr(fixed: readonly number[]): readonly number[] {
  const text = Deno.env.get("TEST_SEED");
  if (text === undefined) return fixed;
  const seed = Number(text);
  if (!Number.isSafeInteger(seed)) {
    throw new Error(`TEST_SEED is no whole number: ${text}`);
  }
  return [seed];
}
