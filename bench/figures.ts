/** The arithmetic of the benchmark. Pure. */

/** The value below which a share of the sorted numbers lies; NaN of none. */
export function percentile(sorted: readonly number[], share: number): number {
  const index = Math.min(sorted.length - 1, Math.floor(sorted.length * share));
  return sorted[index] ?? NaN;
}

/** The middle one of the numbers that are known, the mean of two middle ones. */
export function median(values: readonly number[]): number {
  const numbers = values.filter((value) => !Number.isNaN(value))
    .sort((a, b) => a - b);
  const half = numbers.length / 2;
  const upper = numbers[Math.floor(half)] ?? NaN;
  return Number.isInteger(half)
    ? (upper + (numbers[half - 1] ?? NaN)) / 2
    : upper;
}

/**
 * Each figure's median over the rounds; a round has the same figures in the same order.
 */
export function medians(rounds: readonly (readonly number[])[]): number[] {
  return (rounds[0] ?? []).map((_, i) =>
    median(rounds.map((r) => r[i] ?? NaN))
  );
}

/**
 * What `after` costs in units of `before`, and whether that is beyond the tolerance:
 * 0.1 allows 10 % more. The median of the rounds' ratios: what disturbs a round
 * disturbs both. A cost that could not be measured is no reason to pass.
 */
export function compareCosts(
  before: readonly number[],
  after: readonly number[],
  tolerance: number,
): { ratio: number; isWorse: boolean } {
  const ratio = median(after.map((cost, i) => cost / (before[i] ?? NaN)));
  return { ratio, isWorse: !(ratio <= 1 + tolerance) };
}

/** What has become cheaper by less than this is as cheap as before. */
const SETTLED_SHARE = 0.03;
/** This many rounds in a row must not have become cheaper. */
const SETTLED_ROUNDS = 3;

/** Whether costs of one round after the other have stopped falling. */
export function isSettled(costs: readonly number[]): boolean {
  if (costs.length <= SETTLED_ROUNDS) return false;
  const least = Math.min(...costs.slice(0, -SETTLED_ROUNDS));
  const latest = Math.min(...costs.slice(-SETTLED_ROUNDS));
  return latest >= least * (1 - SETTLED_SHARE);
}

/** Says how each row but the first compares with it in a cost, round by round. */
export function costNotes(
  rows: readonly { name: string; rounds: readonly (readonly number[])[] }[],
  { column, tolerance }: { column: number; tolerance: number },
): string[] {
  const costsOf = (rounds: readonly (readonly number[])[]) =>
    rounds.map((round) => round[column] ?? NaN);
  const [first, ...others] = rows;
  const without = costsOf(first?.rounds ?? []);
  return others.map(({ name, rounds }) => {
    const { ratio, isWorse } = compareCosts(
      without,
      costsOf(rounds),
      tolerance,
    );
    const verdict = isWorse ? "too much" : "ok";
    return `${name}: ${ratio.toFixed(3)} times that without, ${verdict}`;
  });
}
