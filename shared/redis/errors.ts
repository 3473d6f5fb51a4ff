/** What can go wrong with Redis: unavailable for now, or a refused command. */
import { ErrorReply } from "redis";

/** Why Redis could not serve a call. */
export type UnavailableReason =
  /** Not connected, so nothing was sent. */
  | "offline"
  /** Connected, but it has stopped answering, so nothing was sent. */
  | "circuit_open"
  /** This process has closed the link. */
  | "closed"
  /** Sent, but no reply in time. */
  | "deadline"
  /** Sent, but the connection was lost before the reply. */
  | "connection_lost"
  /** It is a replica: a failover is in progress. */
  | "read_only"
  /** It replied that it cannot execute commands now. */
  | "refused"
  /** It holds none of our data: the caller has checked that. */
  | "empty";

/** Redis cannot serve the call now; the same call may succeed later. */
export class RedisUnavailableError extends Error {
  override readonly name = "RedisUnavailableError";
  /** Whether the call may have been executed. */
  readonly mayHaveRun: boolean;

  constructor(
    readonly reason: UnavailableReason,
    detail: string,
    cause?: unknown,
  ) {
    super(`Cannot reach redis: ${detail}`, { cause });
    this.mayHaveRun = reason === "deadline" || reason === "connection_lost";
  }
}

/**
 * Redis replied with an error that a retry does not fix: a mistake in the call, the
 * permissions or the data.
 */
export { ErrorReply as RedisReplyError };

/**
 * First words of error replies that mean "not now": of a replica, or of a server
 * without memory, disk, replicas or time.
 */
const READ_ONLY = /^(READONLY|MASTERDOWN) /;
const REFUSED = /^(LOADING|OOM|MISCONF|NOREPLICAS|BUSY|CLUSTERDOWN|TRYAGAIN) /;

/** Everything but an error reply means that the connection was lost. */
export function classifyRedisError(
  error: unknown,
): RedisUnavailableError | ErrorReply {
  if (!(error instanceof ErrorReply)) {
    const detail = "connection lost before the reply";
    return new RedisUnavailableError("connection_lost", detail, error);
  }
  const { message } = error;
  const isReadOnly = READ_ONLY.test(message);
  if (!isReadOnly && !REFUSED.test(message)) return error;
  const reason = isReadOnly ? "read_only" : "refused";
  return new RedisUnavailableError(reason, message, error);
}

/** Redis 7.0 and 8 have different messages for a denied command in a script. */
const DENIED =
  /^(NOPERM |NOAUTH |ERR (The user executing the script can't |ACL failure in script: ))/;

/** Whether this user lacks the permission, or no longer exists. */
export const isDenied = (error: unknown): boolean =>
  error instanceof ErrorReply && DENIED.test(error.message);
