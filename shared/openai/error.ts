/**
 * Errors for callers, by the table of `error_kinds.ts`. Bodies have OpenAI's shape,
 * except for authentication failures, whose body is fixed by the service specification.
 */
import type { BudgetState } from "../keys/budget_state.ts";
import type { FailureReason } from "../keys/limiter_state.ts";
import type { ErrorBody } from "./completion.ts";
import { ERROR_KINDS, type ErrorCode, type ErrorKind } from "./error_kinds.ts";

export {
  ERROR_KINDS,
  type ErrorCode,
  type ErrorKind,
  isErrorCode,
} from "./error_kinds.ts";

/** The body of every authentication failure, exactly as in the specification. */
export const UNAUTHORIZED_BODY: ErrorBody = {
  error: { code: "unauthorized", message: "unauthorized", type: "error" },
};

/**
 * The answer by which a model server has refused a request. A client of a forwarded
 * endpoint gets it as it is, since such clients match its wording.
 */
export interface OwnAnswer {
  /** The HTTP status, 400 to 599. */
  readonly status: number;
  readonly contentType: string;
  /** The body, without keys or addresses. */
  readonly body: string;
  /** Headers of the server that pass, by name in lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

/** What an {@link ApiError} says beside its code and message. */
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
  /** The budget that refuses the request, for the log of the account. */
  budget?: BudgetState | undefined;
  /** The answer of a model server whose words forwarded endpoints repeat. */
  answer?: OwnAnswer | undefined;
  cause?: unknown;
}

/**
 * An error for the caller: its message is sent unchanged, so it names fields and limits
 * but no internals.
 */
export class ApiError extends Error {
  override readonly name = "ApiError";
  /** The HTTP status. */
  readonly status: number;
  /** OpenAI's class of the error. */
  readonly type: string;
  /** Path of the offending request field; null if no field is to blame. */
  readonly param: string | null;
  /** The code in the body; null if a model server sent none. */
  readonly wireCode: string | null;
  /** How long the caller should wait; null if that is not known. */
  readonly retryAfterMs: number | null;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  /** Further headers of the HTTP response. */
  readonly headers: Readonly<Record<string, string>>;
  /** Why, for the owner of the key only; null if the code says it. */
  readonly reason: FailureReason | null;
  /** The budget that refuses the request; null: none does. */
  readonly budget: BudgetState | null;
  /** The model server's own answer, where it is kept for the client. */
  readonly answer: OwnAnswer | null;

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
    this.budget = options.budget ?? null;
    this.answer = options.answer ?? null;
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
