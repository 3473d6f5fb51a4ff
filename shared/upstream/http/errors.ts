/** The faults of model servers, and how each is answered and remedied. */
import type { Usage } from "../../openai/completion.ts";
import {
  ApiError,
  type ApiErrorOptions,
  type ErrorCode,
  type OwnAnswer,
} from "../../openai/error.ts";

/**
 * What may help: nothing, another backend, the same one in a moment, or the same one
 * later.
 */
type Remedy = "none" | "elsewhere" | "again" | "later";

/**
 * The default code and message for callers, and what may help. A rate limit does not
 * mean that a server is unhealthy, and an immediate retry would make it worse. After
 * a timeout the client has waited long enough for this server.
 */
const FAULTS = {
  /** Every backend would refuse this request; the server is healthy. */
  request: ["invalid_request", "none", "refused the request"],
  credentials: [
    "upstream_error",
    "elsewhere",
    "refused the gateway's credentials",
  ],
  unknown_model: ["upstream_error", "elsewhere", "does not have this model"],
  /** It may serve all else: nothing is said about its health. */
  no_endpoint: ["upstream_error", "elsewhere", "does not have this endpoint"],
  /** Following it would send the key and the request to another server. */
  redirect: [
    "upstream_error",
    "elsewhere",
    "redirects requests, which are not followed",
  ],
  rate_limited: [
    "upstream_rate_limited",
    "later",
    "has reached its rate limit, try again later",
  ],
  /** The server is healthy but has no capacity. */
  overloaded: ["overloaded", "later", "is busy, try again later"],
  /** No connection, or it ended before an answer began. */
  unreachable: ["upstream_unreachable", "again", "cannot be reached"],
  server_error: ["upstream_error", "again", "failed"],
  timeout: ["upstream_timeout", "elsewhere", "did not answer in time"],
  /** The whole attempt took too long: there is no time left for another. */
  deadline: ["upstream_timeout", "none", "did not finish in time"],
  truncated: ["upstream_truncated", "again", "ended its answer too early"],
  /** What came is no answer: the server, or a proxy before it, has failed. */
  invalid: ["upstream_invalid", "elsewhere", "sent an invalid answer"],
  /** The model has answered, so that asking once more would cost its work again. */
  unsupported: [
    "upstream_invalid",
    "none",
    "sent an answer in a form that is not supported",
  ],
} as const satisfies {
  [fault: string]: readonly [ErrorCode, Remedy, message: string];
};

/** How a call to a model server failed: a row of the table above. */
export type UpstreamFault = keyof typeof FAULTS;

/** The `Retry-After` for callers if the server sends none. */
const RETRY_AFTER_MS = 1_000;

interface UpstreamErrorOptions extends ApiErrorOptions {
  code?: ErrorCode | undefined;
  /**
   * Shown to the caller, so it must have been redacted. If it is empty, the fault's
   * default is used.
   */
  message?: string | undefined;
  usage?: Usage;
}

/**
 * A failed attempt at a model server. `cause` is for the log and holds no credential.
 */
export class UpstreamError extends ApiError {
  readonly remedy: Remedy;
  readonly usage: Usage | null;

  constructor(
    readonly fault: UpstreamFault,
    options: UpstreamErrorOptions = {},
  ) {
    const [code, remedy, message] = FAULTS[fault];
    const waits = remedy === "later" || fault === "unreachable";
    const waitMs = waits ? RETRY_AFTER_MS : undefined;
    super(
      options.code ?? code,
      options.message || `The model server ${message}`,
      { ...options, retryAfterMs: options.retryAfterMs ?? waitMs },
    );
    this.remedy = remedy;
    this.usage = options.usage ?? null;
  }

  /** The same error, with the answer by which the server has reported it. */
  keeping(answer: OwnAnswer): UpstreamError {
    const { code, message, param, wireCode, type, status, usage } = this;
    return new UpstreamError(this.fault, {
      code,
      message,
      wireCode,
      type,
      status,
      answer,
      cause: this.cause,
      ...param !== null && { param },
      ...this.retryAfterMs !== null && { retryAfterMs: this.retryAfterMs },
      ...usage !== null && { usage },
    });
  }

  get logText(): string {
    const { message, cause } = this;
    return cause instanceof Error ? `${message}: ${cause.message}` : message;
  }
}

/** The error of an answer that breaks the protocol; `detail` says how, for the log. */
export const invalidAnswer = (detail: string): UpstreamError =>
  new UpstreamError("invalid", { cause: new Error(detail) });

/**
 * The error of an answer in a form that cannot be read; `detail` says why, for the log.
 */
export const unsupportedAnswer = (detail: string): UpstreamError =>
  new UpstreamError("unsupported", { cause: new Error(detail) });

/** The error of an answer cut short; `detail` says where, for the log. */
export const truncatedAnswer = (detail: string): UpstreamError =>
  new UpstreamError("truncated", { cause: new Error(detail) });

/**
 * All servers that a request could be sent to are at their limits, for `waitMs` at
 * least.
 */
export class SaturatedError extends UpstreamError {
  constructor(readonly waitMs: number) {
    const message = "The model servers have reached their limits, " +
      "try again later";
    super("rate_limited", { message, retryAfterMs: Math.ceil(waitMs) });
  }
}
