/** Repeats one run of a property test: `TEST_SEED=123 deno task test tests/limits`. */
const SEED_VARIABLE = "TEST_SEED";

/**
 * The seeds to run a property with: the fixed ones, or the one in `TEST_SEED`.
 * Put the seed into the name of the test, so that a failure says what to repeat.
 */
export function seedsOr(fixed: readonly number[]): readonly number[] {
  const wanted = Deno.env.get(SEED_VARIABLE);
  if (wanted === undefined) return fixed;
  const seed = Number(wanted);
  if (!Number.isSafeInteger(seed)) {
    throw new Error(`${SEED_VARIABLE} is no whole number: ${wanted}`);
  }
  return [seed];
}
