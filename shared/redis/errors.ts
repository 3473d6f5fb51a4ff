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

/** Codes of error replies that mean "not now": of a replica, or of a server without memory, disk, replicas or time. */
const READ_ONLY = /^(READONLY|MASTERDOWN)$/;
const REFUSED = /^(LOADING|OOM|MISCONF|NOREPLICAS|BUSY|CLUSTERDOWN|TRYAGAIN)$/;

/** Redis cannot serve the call now; the same call may succeed later. */
export class RedisUnavailableError extends Error {
  override readonly name = "RedisUnavailableError";
  readonly reason: UnavailableReason;
  /** False: the call certainly changed nothing. True: it is unknown. */
  readonly mayHaveRun: boolean;

  constructor(reason: UnavailableReason, detail: string, cause?: unknown) {
    super(`Cannot reach redis: ${detail}`, { cause });
    this.reason = reason;
    this.mayHaveRun = reason === "deadline" || reason === "connection_lost";
  }
}

/** Redis replied with an error that a retry does not fix: a mistake in the call, the permissions or the data. */
export class RedisReplyError extends Error {
  override readonly name = "RedisReplyError";
  /** First word of the reply: `NOPERM`, `WRONGTYPE`, `ERR`. */
  readonly code: string;

  constructor(code: string, message: string, cause?: unknown) {
    super(message, { cause });
    this.code = code;
  }
}

/** An error reply of the library keeps its code; everything else means that the connection was lost. */
export function classifyRedisError(
  error: unknown,
): RedisUnavailableError | RedisReplyError {
  if (!(error instanceof ErrorReply)) {
    const detail = "connection lost before the reply";
    return new RedisUnavailableError("connection_lost", detail, error);
  }
  const [code = ""] = error.message.split(" ", 1);
  const isReadOnly = READ_ONLY.test(code);
  if (!isReadOnly && !REFUSED.test(code)) {
    return new RedisReplyError(code, error.message, error);
  }
  const reason = isReadOnly ? "read_only" : "refused";
  return new RedisUnavailableError(reason, error.message, error);
}

/** Whether this user lacks the permission, or no longer exists. */
export function isDenied(error: unknown): boolean {
  if (!(error instanceof RedisReplyError)) return false;
  if (error.code === "NOPERM" || error.code === "NOAUTH") return true;
  // Redis 7.0 and 8 have different messages for a denied command in a script.
  return /^ERR (The user executing the script can't |ACL failure in script: )/
    .test(error.message);
}
