/**
 * The log of kept answers: entries in order for each request, which no reader and no
 * writer can read without the request's key. The log itself is `log_nats.ts`.
 */

/** An entry of the log, as it was appended. */
export interface LogEntry {
  /** Its place in the log of all requests: of a later entry it is greater. */
  readonly sequence: number;
  readonly bytes: Uint8Array;
}

/**
 * Why the log did not do what it was asked. `taken`: the last entry of the request is
 * another one than the writer believes. `lost`: what the writer has appended is gone.
 * `full`: it takes no more bytes. `unavailable`: it did not answer, so an append may
 * have happened.
 */
export type LogFailure = "taken" | "lost" | "full" | "unavailable";

/** The log did not do what it was asked. */
export class KeptLogError extends Error {
  override readonly name = "KeptLogError";

  constructor(readonly reason: LogFailure, cause: unknown) {
    super(`Cannot use the log of answers (${reason}): ${cause}`, { cause });
  }
}

/** Appends the entries of one request, as the worker that runs it does. */
export interface KeptLogWriter {
  /**
   * Appends an entry if the last one of the request has this sequence; 0: there is
   * none. Resolves with the sequence of the new one. Throws a {@link KeptLogError}.
   */
  append(
    requestId: string,
    bytes: Uint8Array,
    lastSequence: number,
  ): Promise<number>;
  /** The last entry of a request; null: it has none. Throws a {@link KeptLogError}. */
  last(requestId: string): Promise<LogEntry | null>;
}

/** Reads and removes the entries of requests, as edges do. */
export interface KeptLogReader {
  /**
   * The first entry of a request from this sequence on; null: there is none, or this
   * server of the log does not have it yet. One that was started a moment ago may have
   * a later one, but not the first. Throws a {@link KeptLogError}.
   */
  next(requestId: string, fromSequence: number): Promise<LogEntry | null>;
  /** The same of the server that leads the log, which lacks none and costs more. */
  nextOfLeader(
    requestId: string,
    fromSequence: number,
  ): Promise<LogEntry | null>;
  /** The last entry of a request; null: it has none. Throws a {@link KeptLogError}. */
  last(requestId: string): Promise<LogEntry | null>;
  /** Removes all entries of a request. Throws a {@link KeptLogError}. */
  remove(requestId: string): Promise<void>;
  /**
   * Calls a function when an entry may have been appended; some are missed, and some
   * were refused. Returns a function that ends it.
   */
  watch(requestId: string, onEntry: () => void): () => void;
}
