/** Everything about the shape of an HTTP answer that is not the answer itself. */
import { publicRequestId } from "@gateway/shared/process/ids";
import { ApiError, type ErrorBody } from "@gateway/shared/openai/error";

/** Header that names a request in every answer, log line and trace. */
export const REQUEST_ID_HEADER = "x-request-id";

const encoder = new TextEncoder();
const JSON_TYPE = "application/json; charset=utf-8";
const MS_PER_SECOND = 1000;
/** SDKs that see 0 retry without a pause. */
const RETRY_AFTER_SECONDS_MIN = 1;

/** Headers of a JSON answer. Keys and answers are nobody else's business, so nothing may store them. */
export function jsonHeaders(requestId: string): Headers {
  return new Headers({
    "content-type": JSON_TYPE,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    [REQUEST_ID_HEADER]: publicRequestId(requestId),
  });
}

/** Headers of an event stream. No proxy may hold back, compress or store it. */
export function eventStreamHeaders(requestId: string): Headers {
  return new Headers({
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
    "x-content-type-options": "nosniff",
    [REQUEST_ID_HEADER]: publicRequestId(requestId),
  });
}

/** A JSON answer, 200. */
export function jsonResponse(body: unknown, requestId: string): Response {
  return measuredResponse(body, jsonHeaders(requestId), 200);
}

/** The answer for an error, with every header a client needs to do the right thing next. */
export function errorResponse(error: ApiError, requestId: string): Response {
  const headers = jsonHeaders(requestId);
  setErrorHeaders(headers, error);
  return measuredResponse(error.toBody(), headers, error.status);
}

/**
 * Says how long its body is: the server does so for a body it sends, but for the
 * one that the answer to HEAD leaves out it would say 0 (RFC 9110 section 8.6).
 */
function measuredResponse(
  body: unknown,
  headers: Headers,
  status: number,
): Response {
  const bytes = encoder.encode(JSON.stringify(body));
  headers.set("content-length", String(bytes.length));
  return new Response(bytes, { status, headers });
}

function setErrorHeaders(headers: Headers, error: ApiError): void {
  // Without `error="invalid_token"` (RFC 6750 section 3.1): the body is the same for
  // every failed authentication, and so is this.
  if (error.status === 401) headers.set("www-authenticate", "Bearer");
  if (error.retryAfterMs !== null) setRetryAfter(headers, error.retryAfterMs);
  // SDKs repeat 408, 409, 429 and 5xx on their own account unless told not to.
  if (!error.retryable && (error.status === 429 || error.status >= 500)) {
    headers.set("x-should-retry", "false");
  }
  for (const [name, value] of Object.entries(error.headers)) {
    headers.set(name, value);
  }
}

/** `Retry-After` in whole seconds for everybody, in milliseconds for the SDKs that read them. */
function setRetryAfter(headers: Headers, waitMs: number): void {
  const seconds = Math.max(
    RETRY_AFTER_SECONDS_MIN,
    Math.ceil(waitMs / MS_PER_SECOND),
  );
  headers.set("retry-after", String(seconds));
  headers.set("retry-after-ms", String(Math.max(1, Math.ceil(waitMs))));
}

/** What a caller is told about a fault of ours: that it happened, and nothing else. */
export function internalError(cause: unknown): ApiError {
  return new ApiError(
    "internal_error",
    "The server had an error while processing your request. Please try again.",
    { cause },
  );
}

/** One SSE event with an error. It ends a stream in place of `[DONE]`. */
export function errorEvent(body: ErrorBody): string {
  return `data: ${JSON.stringify(body)}\n\n`;
}
