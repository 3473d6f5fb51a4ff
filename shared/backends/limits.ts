/** The bounds of what workers keep and tell of their backends. */

const SECOND_MS = 1_000;

/** Numbers for {@link BackendTable}, reports and their readers. */
export const BACKEND_LIMITS = {
  /**
   * Backends of which a worker keeps statistics, 16 KiB each; beyond, it forgets the
   * one that was not used for longest.
   */
  backendsMax: 1_000,
  /** Characters of an error in a server's words, of which the first tell its cause. */
  errorCharsMax: 300,
  /** An error is shown for a day. */
  errorMs: 24 * 3_600 * SECOND_MS,
  /** Rows of one message: about 300 KiB if all of them are as long as can be. */
  rowsPerMessage: 100,
  /** How often a worker looks whether the state of a backend has changed. */
  lookMs: 250,
  /** How often it tells what has changed in numbers only, for up to 100 backends. */
  tellMs: 2 * SECOND_MS,
  /** How often it tells even if nothing has changed. */
  repeatMs: 5 * SECOND_MS,
  /** What a worker has not repeated for this long is gone. */
  rowMs: 30 * SECOND_MS,
} as const;
