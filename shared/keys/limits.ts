/**
 * Every bound of keys and of what is recorded of them: what it limits, why it has this
 * value, and what happens beyond it. The others are in `../limits.ts`.
 */

/** API keys, see `key.ts`. */
export const KEY_LIMITS = {
  descriptionCharsMax: 100,
  /** docs/security.md has the reason. Beyond: 409, or an error of the command line. */
  keysPerOwnerMax: 100_000,
  /** Key hashes that an edge remembers with their principals. 100 bytes each. */
  lookupEntriesMax: 100_000,
  /** Unknown hashes an edge remembers, and for how long. */
  unknownEntriesMax: 10_000,
  unknownMs: 30_000,
  /**
   * Unknown keys that are looked up for a client address, default of
   * `UNKNOWN_KEYS_PER_SECOND`. Beyond: 429.
   */
  unknownPerSecond: 20,
  /**
   * A sixth of the 150 ms in which 503 is promised is reserved for a busy event loop.
   */
  checkMs: 125,
  /** How often an edge checks whether Redis still holds the same set of data. */
  storeWatchMs: 500,
} as const;

/**
 * The record of refused, failed and slow requests, see `limits/failed_requests.ts` of
 * the edge.
 */
export const FAILED_REQUESTS = {
  /**
   * Rows of a key and reason in one write; what is beyond is counted in the last one.
   * So a flood fills the log with 20 rows a second, not with thousands.
   */
  rowsPerWrite: 20,
  /** How often an edge writes, once per key. One that is killed loses this much. */
  writeMs: 1_000,
  /** Rows and counters that an edge holds, 6 MB. Beyond: counted as lost. */
  heldMax: 20_000,
  /**
   * Defaults of `REQUEST_LOG_DAYS` and `REQUEST_LOG_ROWS`. 10,000 rows take 2.1 MB of
   * Redis: with 20 failures an hour, a week is 3,400.
   */
  days: 7,
  rows: 10_000,
  /** Default of `SLOW_REQUEST_SECONDS`, by when clients begin to give up. */
  slowMs: 30_000,
} as const;

/** Whose a deleted key was is known for this long, for the request log. */
export const DELETED_KEY_SECONDS = 30 * 86_400;
