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

interface FaultRule {
  /** What the caller is told unless there is something better to say. */
  code: ErrorCode;
  message: string;
  /** Another backend may do better. */
  canFailover: boolean;
  /** The same backend may do better in a moment. */
  canRetry: boolean;
  result: AttemptResult;
  /** The error says when to come back; SDKs then repeat by themselves. */
  isLimit: boolean;
}

const REPEATABLE = { canFailover: true, canRetry: true, isLimit: false };
const ELSEWHERE = { canFailover: true, canRetry: false, isLimit: false };
const FINAL = { canFailover: false, canRetry: false, isLimit: false };
const LIMIT = { canFailover: true, canRetry: false, isLimit: true };

/**
 * By fault. A refused request proves that the server is well. A limit says
 * nothing about its health, and trying again at once would be impolite. After a
 * timeout the client has waited long enough for this server.
 */
const RULES = {
  /** The request itself is refused: every backend would say the same. */
  request: {
    ...FINAL,
    code: "invalid_request",
    message: "The model server refused the request",
    result: "success",
  },
  /** The server refuses our credentials or account. */
  credentials: {
    ...ELSEWHERE,
    code: "upstream_error",
    message: "The model server refused the gateway's credentials",
    result: "failure",
  },
  /** The server does not have the model under the name we were told to use. */
  unknown_model: {
    ...ELSEWHERE,
    code: "upstream_error",
    message: "The model server does not have this model",
    result: "failure",
  },
  rate_limited: {
    ...LIMIT,
    code: "upstream_rate_limited",
    message: "The model server is at its limit, try again later",
    result: "ignored",
  },
  /** The server is well and has no room. */
  overloaded: {
    ...LIMIT,
    code: "overloaded",
    message: "The model server is busy, try again later",
    result: "overloaded",
  },
  /** No connection, or it ended before an answer began. */
  unreachable: {
    ...REPEATABLE,
    code: "upstream_unreachable",
    message: "The model server cannot be reached",
    result: "failure",
  },
  server_error: {
    ...REPEATABLE,
    code: "upstream_error",
    message: "The model server failed",
    result: "failure",
  },
  /** Nothing came for too long. */
  timeout: {
    ...ELSEWHERE,
    code: "upstream_timeout",
    message: "The model server did not answer in time",
    result: "failure",
  },
  /** The whole attempt took too long: there is no time left for another. */
  deadline: {
    ...FINAL,
    code: "upstream_timeout",
    message: "The model server did not finish in time",
    result: "failure",
  },
  /** The answer ended before it was complete. */
  truncated: {
    ...REPEATABLE,
    code: "upstream_truncated",
    message: "The model server ended its answer too early",
    result: "failure",
  },
  /** The answer is not what the protocol allows. */
  invalid: {
    ...ELSEWHERE,
    code: "upstream_invalid",
    message: "The model server sent an answer that cannot be understood",
    result: "failure",
  },
} as const satisfies { [fault: string]: FaultRule };

export type UpstreamFault = keyof typeof RULES;

/** What is asked of a caller where the server names no wait of its own. */
const RETRY_AFTER_MS = 1_000;
const WAITS: ReadonlySet<UpstreamFault> = new Set([
  "rate_limited",
  "overloaded",
  "unreachable",
]);

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
    const rule: FaultRule = RULES[fault];
    super(options.code ?? rule.code, options.message ?? rule.message, {
      ...(WAITS.has(fault) ? { retryAfterMs: RETRY_AFTER_MS } : {}),
      ...options,
    });
    this.fault = fault;
    this.rule = rule;
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
