import { ErrorReply } from "redis";

/**
 * Why Redis could not serve a call.
 *
 * | reason | meaning | may have been executed |
 * | --- | --- | --- |
 * | `offline` | not connected; nothing was sent | no |
 * | `circuit_open` | connected, but it has stopped answering; nothing was sent | no |
 * | `closed` | this process has closed the link | no |
 * | `deadline` | sent, but no reply in time | yes |
 * | `connection_lost` | sent, but the connection was lost before the reply | yes |
 * | `read_only` | it is a replica: a failover is in progress | no |
 * | `refused` | it replied that it cannot execute commands now | no |
 * | `empty` | it holds none of our data; set by the caller that checked | no |
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

/** Redis cannot serve the call now; the same call may succeed later. */
export class RedisUnavailableError extends Error {
  override readonly name = "RedisUnavailableError";
  /** False: the call certainly changed nothing. True: it is unknown. */
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

/** Redis replied with an error that a retry does not fix: a mistake in the call, the permissions or the data. */
export { ErrorReply as RedisReplyError };

/** First words of error replies that mean "not now": of a replica, or of a server without memory, disk, replicas or time. */
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
