/** Refusals and failures in the shapes that model servers give them. Pure. */
import type { RequestError } from "./request.ts";

interface ErrorKind {
  readonly type: string;
  readonly code: string | null;
  readonly message: string;
}

/** What servers in use say with each status. */
const KINDS: ReadonlyMap<number, ErrorKind> = new Map([
  [401, {
    type: "invalid_request_error",
    code: "invalid_api_key",
    message: "Incorrect API key provided.",
  }],
  [403, {
    type: "permission_error",
    code: "forbidden",
    message: "The key has no access to this model.",
  }],
  [404, {
    type: "invalid_request_error",
    code: "model_not_found",
    message: "The model does not exist.",
  }],
  [429, {
    type: "rate_limit_error",
    code: "rate_limit_exceeded",
    message: "Rate limit reached. Please try again in 1s.",
  }],
  [503, {
    type: "server_error",
    code: "service_unavailable",
    message: "The server is overloaded.",
  }],
  [529, {
    type: "overloaded_error",
    code: "overloaded_error",
    message: "Overloaded",
  }],
]);
const BAD_REQUEST: ErrorKind = {
  type: "invalid_request_error",
  code: null,
  message: "The simulated model server refuses this request.",
};
const SERVER_ERROR: ErrorKind = {
  type: "server_error",
  code: null,
  message: "The simulated model server had an error.",
};
const RETRY_AFTER_SECONDS = "1";
const RETRYABLE = [429, 503, 529];

/** The failure that a phrase asked for; `isDetail` in the shape of FastAPI. */
export function failureResponse(status: number, isDetail: boolean): Response {
  const kind = KINDS.get(status) ?? (status < 500 ? BAD_REQUEST : SERVER_ERROR);
  const body = isDetail
    ? { detail: kind.message }
    : { error: { ...kind, param: null } };
  return Response.json(body, {
    status,
    headers: RETRYABLE.includes(status)
      ? { "retry-after": RETRY_AFTER_SECONDS }
      : {},
  });
}

/** The answer to a request that is wrong. */
export function refusalResponse(error: RequestError): Response {
  const { message, status, param, code } = error;
  const type = "invalid_request_error";
  return Response.json({ error: { message, type, param, code } }, { status });
}

/** The event of a stream that fails. */
export function failureEvent(): string {
  const { type, message } = SERVER_ERROR;
  const error = { message, type, param: null, code: 500 };
  return `data: ${JSON.stringify({ error })}\n\n`;
}
