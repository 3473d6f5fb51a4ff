import {
  ApiError,
  type ApiErrorOptions,
  type ErrorCode,
} from "@gateway/shared/openai/error";

/**
 * What went wrong with a model server. It decides what may be tried next, which
 * the code alone does not tell: a 500 and a refused credential are both
 * `upstream_error` to the client.
 */
export type UpstreamFault =
  /** The request itself is refused: every backend would say the same. */
  | "request"
  /** The server refuses our credentials or account. */
  | "credentials"
  | "rate_limited"
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

/** What a caller is told unless there is something better to say. Names nothing of the inside. */
const ANSWERS: Record<UpstreamFault, { code: ErrorCode; message: string }> = {
  request: {
    code: "invalid_request",
    message: "The model server refused the request",
  },
  credentials: {
    code: "upstream_error",
    message: "The model server refused the gateway's credentials",
  },
  rate_limited: {
    code: "upstream_rate_limited",
    message: "The model server is at its limit, try again later",
  },
  unreachable: {
    code: "upstream_unreachable",
    message: "The model server cannot be reached",
  },
  server_error: {
    code: "upstream_error",
    message: "The model server failed",
  },
  timeout: {
    code: "upstream_timeout",
    message: "The model server did not answer in time",
  },
  deadline: {
    code: "upstream_timeout",
    message: "The model server did not finish in time",
  },
  truncated: {
    code: "upstream_truncated",
    message: "The model server ended its answer too early",
  },
  invalid: {
    code: "upstream_invalid",
    message: "The model server sent an answer that cannot be understood",
  },
};

/** How an {@link UpstreamError} differs from its fault's usual answer. */
export interface UpstreamErrorOptions extends ApiErrorOptions {
  code?: ErrorCode;
  /** For the caller: must have been sanitised. */
  message?: string;
}

/** A failed attempt at a model server. `cause` is for the log and holds no credential. */
export class UpstreamError extends ApiError {
  readonly fault: UpstreamFault;

  constructor(fault: UpstreamFault, options: UpstreamErrorOptions = {}) {
    const answer = ANSWERS[fault];
    super(
      options.code ?? answer.code,
      options.message ?? answer.message,
      options,
    );
    this.fault = fault;
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
