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
 * | `loading` | it is reading its data after a start | no |
 * | `read_only` | it is a replica: a failover is under way | no |
 * | `out_of_memory` | `maxmemory` is reached | no |
 * | `write_refused` | it cannot persist or replicate, so it takes no writes | no |
 * | `busy` | a script has been running for too long | no |
 * | `cluster_down` | the part of the cluster with these keys is away | no |
 * | `empty` | it holds none of our data: lost, or not there yet. Said by who asked for it | no |
 */
export type UnavailableReason =
  | "offline"
  | "circuit_open"
  | "closed"
  | "deadline"
  | "connection_lost"
  | "loading"
  | "read_only"
  | "out_of_memory"
  | "write_refused"
  | "busy"
  | "cluster_down"
  | "empty";

/** Error replies that mean "not now", by their first word. */
const REASON_OF_CODE: ReadonlyMap<string, UnavailableReason> = new Map([
  ["LOADING", "loading"],
  ["READONLY", "read_only"],
  ["MASTERDOWN", "read_only"],
  ["OOM", "out_of_memory"],
  ["MISCONF", "write_refused"],
  ["NOREPLICAS", "write_refused"],
  ["BUSY", "busy"],
  ["CLUSTERDOWN", "cluster_down"],
  ["TRYAGAIN", "cluster_down"],
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
    return new RedisUnavailableError(
      "connection_lost",
      "connection lost before the answer",
      error,
    );
  }
  const code = codeOf(error.message);
  const reason = REASON_OF_CODE.get(code);
  return reason === undefined
    ? new RedisReplyError(code, error.message, error)
    : new RedisUnavailableError(reason, error.message, error);
}

function codeOf(message: string): string {
  const end = message.indexOf(" ");
  return end < 0 ? message : message.slice(0, end);
}

/**
 * True when the server has answered that it cannot do its work now, for one of the
 * reasons above. Missing rights count as well, but only for a script, which asks for
 * nothing optional.
 */
export function isRefusal(
  error: RedisUnavailableError | RedisReplyError,
  args: readonly string[],
): boolean {
  if (error instanceof RedisUnavailableError) return !error.mayHaveRun;
  return args[0] === "EVALSHA" && isDenied(error);
}

/** True when this user may not do that, or is no longer known. */
export function isDenied(error: unknown): boolean {
  if (!(error instanceof RedisReplyError)) return false;
  if (error.code === "NOPERM" || error.code === "NOAUTH") return true;
  // Where a script's command is denied, Redis 7.0 and 8 each say it in other words.
  return /^ERR (The user executing the script can't |ACL failure in script: )/
    .test(error.message);
}

/** True when the server does not know a script: it restarted, or `SCRIPT FLUSH` was called. */
export function isNoScript(error: unknown): boolean {
  return error instanceof RedisReplyError && error.code === "NOSCRIPT";
}
