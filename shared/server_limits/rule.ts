/**
 * The rule by which workers share the limits of a model server or of one of its keys,
 * although none of them decides for the others: each counts what it uses itself and
 * what the others have told.
 */

/** What is in use: requests that run, and requests and tokens of the last minute. */
export interface Use {
  readonly inFlight: number;
  readonly requests: number;
  readonly tokens: number;
}

/** What a limit bounds. */
export type Measure = keyof Use;

/** The bounds of a server or a key; one that is absent bounds nothing. */
export type Bounds = { readonly [Each in Measure]?: number | undefined };

/** What is known when a request comes. */
export interface Situation {
  readonly limit: number;
  /** What this worker uses. */
  readonly own: number;
  /** The part of it that the others may not have heard of yet. */
  readonly justTaken: number;
  /** What the others have told. */
  readonly others: number;
  /** How many workers take requests, this one included. */
  readonly workers: number;
}

/**
 * Whether this worker may take one more request.
 *
 * What it takes, the others hear some milliseconds later, and until then each of them
 * may take something, too. So nobody takes more in that time than an equal share of
 * what was free: of 30 free requests, each of three workers takes at most 10 before it
 * has told so, and together they stay within the limit. Where less is free than there
 * are workers, each may take one at a time, or the last request of a limit would be
 * nobody's: at most one per worker is then above the limit.
 */
export function mayTake(
  { limit, own, justTaken, others, workers }: Situation,
): boolean {
  const free = limit - own - others;
  const share = Math.max(1, (free + justTaken) / workers);
  return free > 0 && justTaken + 1 <= share;
}

/** By when all workers have heard what one has taken: it tells after 20 ms. */
export const SETTLE_MS = 100;
/** A request that waits for another to end looks again after this time. */
export const LOOK_AGAIN_MS = 50;

/** A {@link Situation} without its limit, for each measure. */
export interface Situations {
  readonly own: Use;
  readonly justTaken: Use;
  readonly others: Use;
  readonly workers: number;
  /** When the next part of the last minute is over, for any worker. */
  readonly nextFreeMs: number;
}

/**
 * How long a request must wait at least; 0: it may be sent now. What is bounded by the
 * minute waits for the first part of it to pass.
 */
export function waitOf(bounds: Bounds, situations: Situations): number {
  const { workers, nextFreeMs } = situations;
  let waitMs = 0;
  for (const measure of ["inFlight", "requests", "tokens"] as const) {
    const limit = bounds[measure];
    if (limit === undefined) continue;
    const own = situations.own[measure];
    const others = situations.others[measure];
    const justTaken = situations.justTaken[measure];
    if (mayTake({ limit, own, justTaken, others, workers })) continue;
    const isFull = own + others >= limit;
    const untilMs = isFull && measure !== "inFlight"
      ? nextFreeMs
      : LOOK_AGAIN_MS;
    waitMs = Math.max(waitMs, untilMs, LOOK_AGAIN_MS);
  }
  return waitMs;
}
