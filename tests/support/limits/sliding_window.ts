/** Judges of a limit: they look at every window of a run, wherever it begins. */

/** What a limit let pass, and when; times of one run are by one clock. */
export interface Passed {
  atMs: number;
  /** 1 for a request, its tokens for a token limit; less than 0 gives back. */
  cost: number;
}

const MS_PER_MINUTE = 60_000;

/**
 * The most that passed in any window beyond what refills in it at `perMinute`: a
 * limiter with a burst of 600 holds when this is 600 at most. A window begins and
 * ends with something that passed, and may be as short as one event.
 */
export function worstBurst(passed: readonly Passed[], perMinute: number) {
  let worst = 0;
  let sum = 0;
  let best = Infinity;
  for (const { atMs, cost } of inOrder(passed)) {
    const refilled = atMs * perMinute / MS_PER_MINUTE;
    best = Math.min(best, sum - refilled);
    sum += cost;
    worst = Math.max(worst, sum - refilled - best);
  }
  return worst;
}

/** The most that passed in any window of `lengthMs`, both of its ends included. */
export function worstWindow(passed: readonly Passed[], lengthMs: number) {
  const ordered = inOrder(passed);
  let worst = 0;
  let sum = 0;
  let first = 0;
  for (const { atMs, cost } of ordered) {
    sum += cost;
    for (; atMs - (ordered[first]?.atMs ?? atMs) > lengthMs; first += 1) {
      sum -= ordered[first]?.cost ?? 0;
    }
    worst = Math.max(worst, sum);
  }
  return worst;
}

/** The sum of what passed. */
export function total(passed: readonly Passed[]): number {
  return passed.reduce((sum, { cost }) => sum + cost, 0);
}

/** From the first that passed to the last. */
export function spanMs(passed: readonly Passed[]): number {
  const ordered = inOrder(passed);
  return (ordered.at(-1)?.atMs ?? 0) - (ordered[0]?.atMs ?? 0);
}

function inOrder(passed: readonly Passed[]): readonly Passed[] {
  return passed.toSorted((a, b) => a.atMs - b.atMs);
}
