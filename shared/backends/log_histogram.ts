/**
 * Counts of values by their size: few numbers, which can be added up over minutes and
 * workers, and from which percentiles are read. Each cell is √2 times as wide as the
 * one before, so a percentile is off by 19 % at most.
 */

/** How many cells a histogram has: the last one begins at 32,768 times the first. */
export const CELLS = 32;
const CELLS_PER_DOUBLING = 2;

/** What a histogram counts. */
export interface Scale {
  /** The upper bound of the first cell. */
  readonly firstMax: number;
}

/** Times to the first token: 10 ms and less, up to about five minutes. */
export const FIRST_TOKEN_MS: Scale = { firstMax: 10 };
/** Tokens per second: half a token and less, up to about 16,000. */
export const TOKENS_PER_SECOND: Scale = { firstMax: 0.5 };

/** The cell in which a value counts. */
export function cellOf(value: number, { firstMax }: Scale): number {
  if (value <= firstMax) return 0;
  const cell = Math.ceil(CELLS_PER_DOUBLING * Math.log2(value / firstMax));
  return Math.min(cell, CELLS - 1);
}

/** The median and the 95th percentile, in the unit of what was counted. */
export interface Percentiles {
  p50: number;
  p95: number;
}

/** The percentiles of what was counted; null if that is nothing. */
export function percentilesOf(
  counts: ArrayLike<number>,
  scale: Scale,
): Percentiles | null {
  let total = 0;
  for (let cell = 0; cell < CELLS; cell++) total += counts[cell] ?? 0;
  if (total === 0) return null;
  const at = (share: number) => quantile(counts, total * share, scale);
  return { p50: at(0.5), p95: at(0.95) };
}

/** The value that this many of the counted ones do not exceed, within its cell. */
function quantile(
  counts: ArrayLike<number>,
  rank: number,
  { firstMax }: Scale,
): number {
  let below = 0;
  for (let cell = 0; cell < CELLS; cell++) {
    const count = counts[cell] ?? 0;
    if (count > 0 && below + count >= rank) {
      const part = (rank - below) / count;
      return firstMax * 2 ** ((cell - 1 + part) / CELLS_PER_DOUBLING);
    }
    below += count;
  }
  return firstMax * 2 ** ((CELLS - 1) / CELLS_PER_DOUBLING);
}
