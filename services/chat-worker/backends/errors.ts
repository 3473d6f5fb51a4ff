/** What can go wrong with a model server, and what follows from it. */
import type { Usage } from "@gateway/shared/openai/chat";
import {
  ApiError,
  type ApiErrorOptions,
  type ErrorCode,
} from "@gateway/shared/openai/error";

/** What an attempt tells the circuit breaker. `ignored`: it says nothing about the server. */
export type AttemptResult = "success" | "failure" | "ignored";

/** What follows from a fault. */
interface FaultRule {
  /** What the caller is told unless there is something better to say. */
  code: ErrorCode;
  message: string;
  /** What may help: nothing, another backend, the same one in a moment, or when it says so. */
  remedy: "none" | "elsewhere" | "again" | "later";
  /** What it tells the circuit breaker. */
  result: AttemptResult;
}

function rule(
  code: ErrorCode,
  message: string,
  remedy: FaultRule["remedy"],
  result: AttemptResult = "failure",
): FaultRule {
  return { code, message: `The model server ${message}`, remedy, result };
}

/**
 * A refused request proves that the server is healthy. A limit says nothing about its
 * health, and retrying at once would make it worse. After a timeout the client
 * has waited long enough for this server.
 */
const RULES = {
  /** Every backend would refuse this request. */
  request: rule("invalid_request", "refused the request", "none", "success"),
  /** The server refuses our credentials or account. */
  credentials: rule(
    "upstream_error",
    "refused the gateway's credentials",
    "elsewhere",
  ),
  /** The server does not have the model under the name we were told to use. */
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
  /** The server is healthy but has no room. */
  overloaded: rule(
    "overloaded",
    "is busy, try again later",
    "later",
    "ignored",
  ),
  /** No connection, or it ended before an answer began. */
  unreachable: rule("upstream_unreachable", "cannot be reached", "again"),
  server_error: rule("upstream_error", "failed", "again"),
  /** Nothing came for too long. */
  timeout: rule("upstream_timeout", "did not answer in time", "elsewhere"),
  /** The whole attempt took too long: there is no time left for another. */
  deadline: rule("upstream_timeout", "did not finish in time", "none"),
  /** The answer ended before it was complete. */
  truncated: rule("upstream_truncated", "ended its answer too early", "again"),
  /** The answer is not what the protocol allows. */
  invalid: rule(
    "upstream_invalid",
    "sent an answer that cannot be understood",
    "elsewhere",
  ),
} as const;

export type UpstreamFault = keyof typeof RULES;

/** The wait that callers are told where the server gives none. */
const RETRY_AFTER_MS = 1_000;

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
    const { code, message, remedy } = RULES[fault];
    const waits = remedy === "later" || fault === "unreachable";
    super(options.code ?? code, options.message ?? message, {
      ...(waits ? { retryAfterMs: RETRY_AFTER_MS } : {}),
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
