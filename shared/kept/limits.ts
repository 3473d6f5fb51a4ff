/**
 * Every bound of kept answers: what it limits, why it has this value, and what happens
 * beyond it. The others are in `../limits.ts`.
 */

const KIB = 1024;
const MIB = 1024 * KIB;

/** Kept answers, their log and those who read it. */
export const KEPT_LIMITS = {
  /** The header `X-Gateway-Keep`. Beyond: 400. */
  secondsMax: 3_600,
  /** For how long an answer is kept whose request has only an `Idempotency-Key`. */
  secondsDefault: 600,
  /** The header `Idempotency-Key`, which is printable ASCII. Beyond: 400. */
  idempotencyKeyCharsMax: 255,
  /**
   * One answer: a long one of a chat has 100 kB, 100 vectors 2 MB. Beyond: it ends with
   * `keep_failed`.
   */
  answerBytesMax: 16 * MIB,
  /** What a request reserves of the bytes of its account until its answer has ended. */
  reservedBytes: 64 * KIB,
  /** The answers of one account, default of `KEEP_ACCOUNT_BYTES`. Beyond: 429. */
  accountBytesMax: 64 * MIB,
  /**
   * All answers, default of `KEEP_BYTES`, which compose keeps in the memory of NATS.
   * Beyond: `keep_failed`.
   */
  bytesMax: 256 * MIB,
  /** One entry of the log, of the 1 MiB that a message of the bus may have. */
  entryBytesMax: 256 * KIB,
  /** What waits for the log in a worker. Beyond: it reads no more of its backend. */
  waitingBytesMax: 512 * KIB,
  /**
   * The pause between two entries of one answer, so that they carry several tokens. A
   * client that resumes gets them this much later.
   */
  entryMs: 50,
  /** With many jobs the pause is longer: a worker appends some 1,000 entries a second. */
  entryMsPerJob: 1,
  /** The longest pause between two entries: five times a second. */
  entryMsMax: 200,
  /** How long a call of the log may take; it is repeated. */
  callMs: 2_000,
  /** The log may be away for this long. Beyond: `keep_failed`. */
  awayMs: 10_000,
  /** The pause before a call is repeated. */
  retryMs: 250,
  /** A worker without anything else to append says after this long that it lives. */
  signMs: 5_000,
  /** A log without an entry for this long has lost its worker. */
  silentMs: 20_000,
  /**
   * How soon a reader without entries looks again: an entry that is announced may come
   * a moment later. Each time it waits twice as long.
   */
  lookMs: 5,
  /** The longest such wait. */
  lookMsMax: 500,
  /**
   * Readers of an edge to which entries are announced: a server of the bus allows 200
   * subscriptions of a connection. Beyond: they look every `lookMsMax`.
   */
  watchedMax: 150,
  /** How often a reader without entries asks what has become of the answer. */
  askMs: 1_000,
  /** A stream that is read on is opened after this long, if there is no event. */
  headMs: 1_000,
  /** Entries that a reader hands over before its client has taken them. */
  aheadMax: 16,
  /** How often an edge says which answers it looks after. */
  renewMs: 10_000,
  /** An answer of which no edge says that belongs to whoever looks. */
  orphanMs: 30_000,
  /** How often an edge looks for such answers and for expired ones. */
  sweepMs: 10_000,
  /** How many of them it takes at a time. */
  sweptMax: 100,
  /** How often an edge makes sure that there is a log. */
  watchMs: 10_000,
  /** For how long readers hear why a request failed that is not remembered. */
  failureMs: 60_000,
} as const;
