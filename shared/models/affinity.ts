/**
 * Where the requests of a session go: always to the same of several equal servers,
 * which then finds the beginning of the conversation in its cache, unless it has more
 * than its share to do. Rendezvous hashing: no worker has to tell others, and when a
 * server comes or goes, only its own sessions move.
 */

/** How far above the mean load of the servers one may be, by its weight. */
const LOAD_BOUND = 1.25;
const UINT32 = 2 ** 32;

/** A server among which one is chosen. */
export interface Candidate {
  /** {@link seedOf} its name. */
  readonly seed: number;
  /** Its share of the sessions. */
  readonly weight: number;
  /** The requests that run there now. */
  readonly running: number;
}

/** The number of a server by which sessions find it, from its name. */
export function seedOf(name: string): number {
  // FNV-1a, whose last bits alone would not be random enough.
  let hash = 0x811c9dc5;
  for (let at = 0; at < name.length; at++) {
    hash = Math.imul(hash ^ name.charCodeAt(at), 0x01000193);
  }
  return mixed(hash);
}

/** The finalizer of MurmurHash3: each bit of the result depends on all of them. */
function mixed(hash: number): number {
  let bits = hash;
  bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}

/**
 * The distance of a session from a server: the nearest one gets it. Of servers of the
 * weights 3 and 1, the first is nearest to three quarters of all sessions.
 *
 * `session` has 16 hexadecimal digits; of any other text the distance is a constant.
 */
export function distanceOf(
  session: string,
  { seed, weight }: Pick<Candidate, "seed" | "weight">,
): number {
  const high = parseInt(session.slice(0, 8), 16);
  const low = parseInt(session.slice(8, 16), 16);
  const hash = mixed(mixed(high ^ seed) ^ low);
  return -Math.log((hash + 0.5) / UINT32) / weight;
}

/**
 * The candidates that have as many requests as they may: with one more, they would be
 * above 1.25 times the mean, rounded up. Never all of them.
 *
 * Four equal servers that run 7, 2, 2 and 1 requests may run 5 each when the next one
 * comes: `ceil(1.25 * 13 / 4)`. So the first is full.
 */
export function fullOf<Each extends Candidate>(
  candidates: readonly Each[],
): ReadonlySet<Each> {
  let requests = 1;
  let weights = 0;
  for (const { running, weight } of candidates) {
    requests += running;
    weights += weight;
  }
  const share = LOAD_BOUND * requests / weights;
  return new Set(
    candidates.filter(({ running, weight }) =>
      running >= Math.ceil(share * weight)
    ),
  );
}
