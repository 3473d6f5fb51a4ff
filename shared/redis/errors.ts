import { ErrorReply } from "redis";

/**
 * Why Redis could not serve a call.
 *
 * | reason | meaning | may have been executed |
 * | --- | --- | --- |
 * | `offline` | not connected, nothing was sent | no |
 * | `circuit_open` | connected, but it has stopped answering; nothing was sent | no |
 * | `closed` | this process has closed the link | no |
 * | `deadline` | sent, no answer in time | yes |
 * | `connection_lost` | sent, and the connection broke before the answer | yes |
 * | `read_only` | it is a replica: a failover is under way | no |
 * | `refused` | it answers that it cannot do its work now | no |
 * | `empty` | it holds none of our data; reported by the caller that looked | no |
 */
export type UnavailableReason =
  | "offline"
  | "circuit_open"
  | "closed"
  | "deadline"
  | "connection_lost"
  | "read_only"
  | "refused"
  | "empty";

/** First words of error replies that mean "not now". */
const NOT_NOW: ReadonlyMap<string, UnavailableReason> = new Map([
  ["READONLY", "read_only"],
  ["MASTERDOWN", "read_only"],
  ["LOADING", "refused"],
  ["OOM", "refused"],
  // It cannot write its disk, or has too few replicas.
  ["MISCONF", "refused"],
  ["NOREPLICAS", "refused"],
  // A script runs for too long.
  ["BUSY", "refused"],
  ["CLUSTERDOWN", "refused"],
  ["TRYAGAIN", "refused"],
]);

/** Redis cannot serve the call now; the same call may succeed later. */
export class RedisUnavailableError extends Error {
  override readonly name = "RedisUnavailableError";
  readonly reason: UnavailableReason;
  /** False: the call certainly changed nothing. True: nobody knows. */
  readonly mayHaveRun: boolean;

  constructor(reason: UnavailableReason, detail: string, cause?: unknown) {
    super(
      `Cannot reach redis: ${detail}`,
      cause === undefined ? undefined : { cause },
    );
    this.reason = reason;
    this.mayHaveRun = reason === "deadline" || reason === "connection_lost";
  }
}

/** Redis answered with an error that trying again will not cure: a mistake in the call, the rights or the data. */
export class RedisReplyError extends Error {
  override readonly name = "RedisReplyError";
  /** First word of the reply: `NOPERM`, `WRONGTYPE`, `ERR`. */
  readonly code: string;

  constructor(code: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}

/**
 * Sorts what the client library threw into the two classes above. An error
 * reply keeps its code; everything else means that the connection is gone.
 */
export function classifyRedisError(
  error: unknown,
): RedisUnavailableError | RedisReplyError {
  if (!(error instanceof ErrorReply)) {
    const detail = "connection lost before the answer";
    return new RedisUnavailableError("connection_lost", detail, error);
  }
  const [code = ""] = error.message.split(" ", 1);
  const reason = NOT_NOW.get(code);
  return reason === undefined
    ? new RedisReplyError(code, error.message, error)
    : new RedisUnavailableError(reason, error.message, error);
}

/** True when this user may not do that, or is no longer known. */
export function isDenied(error: unknown): boolean {
  if (!(error instanceof RedisReplyError)) return false;
  if (error.code === "NOPERM" || error.code === "NOAUTH") return true;
  // Where a script's command is denied, Redis 7.0 and 8 each word it differently.
  return /^ERR (The user executing the script can't |ACL failure in script: )/
    .test(error.message);
}
