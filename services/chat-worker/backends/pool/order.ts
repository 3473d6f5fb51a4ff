/** What decides when a backend is tried. */
export interface Rank {
  /** Lower is tried first. */
  preference: number;
  /** Share of requests among equals; 0: after all others of its preference. */
  weight: number;
}

/**
 * The order in which to try backends for one request: by preference, and among
 * equals at random, so that each is first as often as its weight says. Weights 3
 * and 1 are first in 75 % and 25 %.
 */
export function orderByRank<T extends Rank>(
  backends: readonly T[],
  random: () => number,
): readonly T[] {
  if (backends.length < 2) return backends;
  // Exponentially distributed arrival times: the smallest of them is that of i
  // with probability weight_i / sum, and so on for the rest.
  return backends
    .map((backend) => ({
      backend,
      arrival: -Math.log(1 - random()) / backend.weight,
    }))
    .sort((a, b) =>
      a.backend.preference - b.backend.preference || a.arrival - b.arrival
    )
    .map(({ backend }) => backend);
}
