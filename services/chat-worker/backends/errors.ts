/** What can go wrong with a model server, and what follows from it. */
import type { Usage } from "@gateway/shared/openai/chat";
import {
  ApiError,
  type ApiErrorOptions,
  type ErrorCode,
} from "@gateway/shared/openai/error";

/**
 * What an attempt tells the circuit breaker. `overloaded`: there was no room,
 * which is no failure while others find some. `ignored`: it says nothing about
 * the server.
 */
export type AttemptResult = "success" | "failure" | "overloaded" | "ignored";

/** What follows from a fault that comes before the first event. */
interface FaultRule {
  /** What the caller is told unless there is something better to say. */
  code: ErrorCode;
  message: string;
  result: AttemptResult;
  /** Another backend may do better. */
  canFailover: boolean;
  /** The same backend may do better in a moment. */
  canRetry: boolean;
  /** The error says when to come back. */
  isLimit: boolean;
  /** What is asked of a caller where the server names no wait of its own. */
  retryAfterMs?: number;
}

type Remedy = "none" | "elsewhere" | "again" | "later";

function rule(
  code: ErrorCode,
  message: string,
  remedy: Remedy,
  result: AttemptResult = "failure",
): FaultRule {
  return {
    code,
    message: `The model server ${message}`,
    result,
    canFailover: remedy !== "none",
    canRetry: remedy === "again",
    isLimit: remedy === "later",
    ...(remedy === "later" || code === "upstream_unreachable"
      ? { retryAfterMs: 1_000 }
      : {}),
  };
}

export type UpstreamFault =
  /** The request itself is refused: every backend would say the same. */
  | "request"
  /** The server refuses our credentials or account. */
  | "credentials"
  /** The server does not have the model under the name we were told to use. */
  | "unknown_model"
  | "rate_limited"
  /** The server is well and has no room. */
  | "overloaded"
  /** No connection, or it ended before an answer began. */
  | "unreachable"
  | "server_error"
  /** Nothing came for too long. */
  | "timeout"
  /** The whole attempt took too long: there is no time left for another. */
  | "deadline"
  /** The answer ended before it was complete. */
  | "truncated"
  /** The answer is not what the protocol allows. */
  | "invalid";

/**
 * A refused request proves that the server is well. A limit says nothing about its
 * health, and trying again at once would be impolite. After a timeout the client
 * has waited long enough for this server.
 */
const RULES: Record<UpstreamFault, FaultRule> = {
  request: rule("invalid_request", "refused the request", "none", "success"),
  credentials: rule(
    "upstream_error",
    "refused the gateway's credentials",
    "elsewhere",
  ),
  unknown_model: rule(
    "upstream_error",
    "does not have this model",
    "elsewhere",
  ),
  rate_limited: rule(
    "upstream_rate_limited",
    "is at its limit, try again later",
    "later",
    "ignored",
  ),
  overloaded: rule(
    "overloaded",
    "is busy, try again later",
    "later",
    "overloaded",
  ),
  unreachable: rule("upstream_unreachable", "cannot be reached", "again"),
  server_error: rule("upstream_error", "failed", "again"),
  timeout: rule("upstream_timeout", "did not answer in time", "elsewhere"),
  deadline: rule("upstream_timeout", "did not finish in time", "none"),
  truncated: rule("upstream_truncated", "ended its answer too early", "again"),
  invalid: rule(
    "upstream_invalid",
    "sent an answer that cannot be understood",
    "elsewhere",
  ),
};

/** How an {@link UpstreamError} differs from its fault's usual answer. */
export interface UpstreamErrorOptions extends ApiErrorOptions {
  code?: ErrorCode;
  /** For the caller: must have been sanitised. */
  message?: string;
  /** What the attempt has cost, where the server counted it. */
  usage?: Usage;
}

/** A failed attempt at a model server. `cause` is for the log and holds no credential. */
export class UpstreamError extends ApiError {
  readonly fault: UpstreamFault;
  readonly rule: FaultRule;
  readonly usage: Usage | null;

  constructor(fault: UpstreamFault, options: UpstreamErrorOptions = {}) {
    const { code, message, retryAfterMs } = RULES[fault];
    super(options.code ?? code, options.message ?? message, {
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
      ...options,
    });
    this.fault = fault;
    this.rule = RULES[fault];
    this.usage = options.usage ?? null;
  }
}

/** The error of an answer that breaks the protocol; `detail` says how, for the log. */
export function invalidAnswer(detail: string): UpstreamError {
  return new UpstreamError("invalid", { cause: new Error(detail) });
}

/** The error of an answer cut short; `detail` says where, for the log. */
export function truncatedAnswer(detail: string): UpstreamError {
  return new UpstreamError("truncated", { cause: new Error(detail) });
}
