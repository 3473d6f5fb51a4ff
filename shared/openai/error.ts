/**
 * The error contract: a table of codes, and the class of such errors. Bodies have
 * OpenAI's shape, except for authentication failures, whose body is fixed by the
 * service specification.
 */
import type { FailureReason } from "../keys/limiter_state.ts";
import type { ErrorBody } from "./completion.ts";

export interface ErrorKind {
  status: number;
  type: string;
  retryable: boolean;
  /** The code sent to clients, if it differs from the internal one. */
  wireCode?: string;
}

const kind = (type: string, status: number, retryable: boolean): ErrorKind => (
  { status, type, retryable }
);
const auth = (status: number) => kind("error", status, false);
const invalid = (status: number, retryable = false) =>
  kind("invalid_request_error", status, retryable);
const limited = (type: "requests" | "tokens", retryable = true) => (
  { ...kind(type, 429, retryable), wireCode: "rate_limit_exceeded" }
);
const fault = (status: number, retryable = true) =>
  kind("server_error", status, retryable);

/** Every error code of the gateway itself. */
export const ERROR_KINDS = {
  // Authentication: fixed by the specification, `type` is "error" and there is no
  // `param`.
  unauthorized: auth(401),
  key_disabled: auth(403),
  forbidden: auth(403),

  // The request is invalid.
  invalid_json: invalid(400),
  invalid_type: invalid(400),
  invalid_value: invalid(400),
  missing_required_parameter: invalid(400),
  integer_below_min_value: invalid(400),
  integer_above_max_value: invalid(400),
  decimal_below_min_value: invalid(400),
  decimal_above_max_value: invalid(400),
  empty_array: invalid(400),
  array_above_max_length: invalid(400),
  empty_string: invalid(400),
  string_above_max_length: invalid(400),
  unsupported_parameter: invalid(400),
  unsupported_value: invalid(400),
  context_length_exceeded: invalid(400),
  invalid_request: invalid(400),
  model_not_found: invalid(404),
  not_found: invalid(404),
  method_not_allowed: invalid(405),
  request_timeout: invalid(408, true),
  request_too_large: invalid(413),
  unsupported_media_type: invalid(415),

  // The caller must wait.
  rate_limit_exceeded: limited("requests"),
  token_limit_exceeded: limited("tokens"),
  daily_limit_exceeded: limited("tokens", false),
  media_limit_exceeded: limited("requests", false),
  concurrency_limit_exceeded: limited("requests"),
  upstream_rate_limited: limited("requests"),

  // The service failed or is unavailable.
  internal_error: fault(500),
  upstream_error: fault(502),
  upstream_unreachable: fault(502),
  upstream_invalid: fault(502),
  upstream_truncated: fault(502),
  service_unavailable: fault(503),
  overloaded: fault(503),
  no_worker: { ...fault(503), wireCode: "overloaded" },
  bus_unavailable: fault(503),
  server_shutdown: fault(503),
  worker_lost: fault(502),
  upstream_timeout: fault(504),
  deadline_exceeded: fault(504, false),
  /** A running request was stopped because its key was disabled or deleted. */
  key_revoked: auth(403),
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof ERROR_KINDS;

export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERROR_KINDS, code);
}

/** The body of every authentication failure, exactly as in the specification. */
export const UNAUTHORIZED_BODY: ErrorBody = {
  error: { code: "unauthorized", message: "unauthorized", type: "error" },
};

export interface ApiErrorOptions {
  /** Path of the offending request field, `messages[0].content`. */
  param?: string | undefined;
  /** How long the caller should wait, for 429 and 503. At least 1. */
  retryAfterMs?: number | undefined;
  /** Overrides `type` of the table: a model server's own type. */
  type?: string;
  /** Overrides the code on the wire: a model server's own code. */
  wireCode?: string | null | undefined;
  /** Overrides the status of the table: a model server's own 4xx. */
  status?: number;
  /** Further headers of the HTTP response, such as the state of the limits. */
  headers?: Readonly<Record<string, string>>;
  /**
   * Why, more precisely than the code says: for the owner of the key, never for the
   * caller.
   */
  reason?: FailureReason | null;
  cause?: unknown;
}

/**
 * An error for the caller: its message is sent unchanged, so it names fields and limits
 * but no internals.
 */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly type: string;
  readonly param: string | null;
  readonly wireCode: string | null;
  readonly retryAfterMs: number | null;
  readonly retryable: boolean;
  readonly headers: Readonly<Record<string, string>>;
  readonly reason: FailureReason | null;

  constructor(
    readonly code: ErrorCode,
    message: string,
    options: ApiErrorOptions = {},
  ) {
    const { cause, param, retryAfterMs, headers, reason } = options;
    super(message, cause === undefined ? undefined : { cause });
    const kind: ErrorKind = ERROR_KINDS[code];
    const { wireCode = kind.wireCode ?? code } = options;
    this.status = options.status ?? kind.status;
    this.type = options.type ?? kind.type;
    this.param = param ?? null;
    this.wireCode = wireCode;
    this.retryAfterMs = retryAfterMs ?? null;
    this.retryable = kind.retryable;
    this.headers = headers ?? {};
    this.reason = reason ?? null;
  }

  /** The JSON body, also used as the data of an SSE error event. */
  toBody(): ErrorBody {
    if (this.code === "unauthorized" || this.code === "key_disabled") {
      return UNAUTHORIZED_BODY;
    }
    const { message, type, param, wireCode: code } = this;
    return {
      error: this.code === "forbidden"
        ? { message, type, code }
        : { message, type, param, code },
    };
  }
}

/** The 400 for one field of a request: `param` is its path. */
export function fieldError(
  code: ErrorCode,
  param: string,
  message: string,
): ApiError {
  return new ApiError(code, message, { param });
}

/** The answer to an unexpected error, which reveals nothing about it. */
export function internalError(cause: unknown): ApiError {
  return new ApiError(
    "internal_error",
    "The server had an error while processing your request. Please try again.",
    { cause },
  );
}
