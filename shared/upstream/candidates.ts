/** The order in which the backends of a model are tried. */
import { type Candidate, distanceOf, fullOf } from "../models/affinity.ts";
import type { MonotonicNow } from "../process/clock.ts";
import { LOOK_AGAIN_MS } from "../server_limits/rule.ts";

/** A backend, as far as its place is concerned. */
export interface Place extends Candidate {
  readonly backend: { readonly config: { readonly preference: number } };
  readonly breaker: { readonly waitMs: number };
  readonly keyring: { waitMs(): number } | null;
  /**
   * The time until which the server asked not to be called, because of a limit or
   * overload.
   */
  readonly limitedUntilMs: number;
  /**
   * Whether it can take nothing now because of a limit; found anew for each request.
   */
  isLimited: boolean;
  /** Its place among backends of the same preference, found anew for each request. */
  arrival: number;
}

/** What the order depends on, besides the backends. */
export interface OrderOptions {
  /** The conversation of the request, if there is one to keep together. */
  session: string | undefined;
  now: MonotonicNow;
  /** From 0 to 1, as `Math.random`. */
  random: () => number;
}

const NONE: ReadonlySet<unknown> = new Set();

/**
 * Those that can take nothing because of a limit last, then by preference, and among
 * equals by the session, or at random by weight.
 */
export function inOrder<Each extends Place>(
  places: readonly Each[],
  { session, now, random }: OrderOptions,
): readonly Each[] {
  if (places.length < 2) return places;
  const nowMs = now();
  for (const place of places) {
    place.isLimited = nowMs < place.limitedUntilMs ||
      place.keyring !== null && place.keyring.waitMs() > 0;
    place.arrival = session === undefined
      // Exponentially distributed arrival times: the smallest of them is that of i
      // with probability weight_i / sum, and so on for the rest.
      ? -Math.log(1 - random()) / place.weight
      : distanceOf(session, place);
  }
  const full = session === undefined ? NONE : fullIn(places);
  return places.toSorted((a, b) =>
    Number(a.isLimited) - Number(b.isLimited) ||
    a.backend.config.preference - b.backend.config.preference ||
    Number(full.has(a)) - Number(full.has(b)) ||
    a.arrival - b.arrival
  );
}

/** Those that have more than their share of what backends like them run. */
function fullIn(places: readonly Place[]): ReadonlySet<unknown> {
  const open = places.filter(({ breaker, isLimited }) =>
    breaker.waitMs === 0 && !isLimited
  );
  const equals = Map.groupBy(open, ({ backend }) => backend.config.preference);
  return new Set(equals.values().flatMap((each) => fullOf(each).values()));
}

/** What may bound the use of a backend. */
type Bounded = Pick<Place, "breaker" | "keyring">;

/**
 * How long a request that these have not taken must wait at least until one of them
 * may; 0: it has nothing to wait for. `wasLimited`: a limit was the reason.
 */
export function waitAfter(
  places: readonly Bounded[],
  wasLimited: boolean,
): number {
  const waits = places.map(({ breaker, keyring }) => {
    if (keyring === null || breaker.waitMs > 0) return 0;
    // It may be free again since then.
    return keyring.waitMs() || (wasLimited ? LOOK_AGAIN_MS : 0);
  }).filter((ms) => ms > 0);
  return waits.length === 0 ? 0 : Math.min(...waits);
}
