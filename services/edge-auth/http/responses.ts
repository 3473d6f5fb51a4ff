/** Everything about the shape of an HTTP answer that is not the answer itself. */
import type { ServerResponse } from "node:http";
import { ApiError, type ErrorBody } from "@gateway/shared/openai/error";

/** Header that names a request in every answer, log line and trace. */
export const REQUEST_ID_HEADER = "x-request-id";

/** Names and values of headers. */
export type HeaderFields = Readonly<Record<string, string>>;

/** Headers of a JSON answer. Keys and answers are nobody else's business, so nothing may store them. */
export const JSON_HEADERS: HeaderFields = {
  "content-type": "application/json; charset=utf-8",
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
};

/** Headers of an event stream. No proxy may hold back, compress or store it. */
export const EVENT_STREAM_HEADERS: HeaderFields = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
  "x-content-type-options": "nosniff",
};

const MS_PER_SECOND = 1000;
/** SDKs that see 0 retry without a pause. */
const RETRY_AFTER_SECONDS_MIN = 1;

/**
 * Sends a whole answer. It says how long its body is: the server does so for a body
 * it sends, but for the one that the answer to HEAD leaves out it would say 0
 * (RFC 9110 section 8.6).
 */
export function sendBytes(
  response: ServerResponse,
  bytes: Uint8Array,
  { status = 200, headers }: { status?: number; headers: HeaderFields },
): void {
  if (response.destroyed) return;
  const length = { "content-length": String(bytes.length) };
  response.writeHead(status, { ...headers, ...length }).end(bytes);
}

/** Sends a JSON answer, 200. */
export function sendJson(response: ServerResponse, body: unknown): void {
  const bytes = new TextEncoder().encode(JSON.stringify(body));
  sendBytes(response, bytes, { headers: JSON_HEADERS });
}

/** Sends an error, with every header a client needs to do the right thing next. */
export function sendError(response: ServerResponse, error: ApiError): void {
  const bytes = new TextEncoder().encode(JSON.stringify(error.toBody()));
  const headers = { ...JSON_HEADERS, ...errorHeaders(error), ...error.headers };
  sendBytes(response, bytes, { status: error.status, headers });
}

/** What goes with an error beside its own headers. */
export function errorHeaders(
  { status, retryable, retryAfterMs }: ApiError,
): HeaderFields {
  const headers: Record<string, string> = {};
  // Without `error="invalid_token"` (RFC 6750 section 3.1): the body is the same for
  // every failed authentication, and so is this.
  if (status === 401) headers["www-authenticate"] = "Bearer";
  if (retryAfterMs !== null) {
    // In whole seconds for everybody, in milliseconds for the SDKs that read them.
    const seconds = Math.ceil(retryAfterMs / MS_PER_SECOND);
    headers["retry-after"] = `${Math.max(RETRY_AFTER_SECONDS_MIN, seconds)}`;
    headers["retry-after-ms"] = `${Math.max(1, Math.ceil(retryAfterMs))}`;
  }
  // SDKs repeat 408, 409, 429 and 5xx on their own account unless told not to.
  if (!retryable && (status === 429 || status >= 500)) {
    headers["x-should-retry"] = "false";
  }
  return headers;
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
