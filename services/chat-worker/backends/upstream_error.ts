import type { Usage } from "@gateway/shared/openai/chat";
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

/** What is asked of a caller where the server names no wait of its own: SDKs repeat such calls by themselves. */
const RETRY_AFTER_MS = 1_000;

interface Answer {
  code: ErrorCode;
  message: string;
  retryAfterMs?: number;
}

/** What a caller is told unless there is something better to say. Names nothing of the inside. */
const ANSWERS: Record<UpstreamFault, Answer> = {
  request: {
    code: "invalid_request",
    message: "The model server refused the request",
  },
  credentials: {
    code: "upstream_error",
    message: "The model server refused the gateway's credentials",
  },
  unknown_model: {
    code: "upstream_error",
    message: "The model server does not have this model",
  },
  rate_limited: {
    code: "upstream_rate_limited",
    message: "The model server is at its limit, try again later",
    retryAfterMs: RETRY_AFTER_MS,
  },
  overloaded: {
    code: "overloaded",
    message: "The model server is busy, try again later",
    retryAfterMs: RETRY_AFTER_MS,
  },
  unreachable: {
    code: "upstream_unreachable",
    message: "The model server cannot be reached",
    retryAfterMs: RETRY_AFTER_MS,
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
  /** What the attempt has cost, where the server counted it. */
  usage?: Usage;
}

/** A failed attempt at a model server. `cause` is for the log and holds no credential. */
export class UpstreamError extends ApiError {
  readonly fault: UpstreamFault;
  readonly usage: Usage | null;

  constructor(fault: UpstreamFault, options: UpstreamErrorOptions = {}) {
    const answer = { ...ANSWERS[fault], ...options };
    super(answer.code, answer.message, answer);
    this.fault = fault;
    this.usage = options.usage ?? null;
  }
}

/** The error of an answer that breaks the protocol; `detail` says how, for the log. */
export function invalidAnswer(detail: string): UpstreamError {
  return new UpstreamError("invalid", { cause: new Error(detail) });
}

/** The error of an answer that is complete and has `given` choices where the request asks for more. */
export function tooFewChoices(
  given: number,
  asked: number,
  usage: Usage,
): UpstreamError {
  const choices = given === 1 ? "one choice" : `${given} choices`;
  return new UpstreamError("request", {
    code: "unsupported_value",
    message:
      `The server of this model gives ${choices} per request, but 'n' asks for ${asked}.`,
    param: "n",
    usage,
  });
}

/** The error of an answer cut short; `detail` says where, for the log. */
export function truncatedAnswer(detail: string): UpstreamError {
  return new UpstreamError("truncated", { cause: new Error(detail) });
}
