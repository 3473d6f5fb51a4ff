/** Headers and bodies of HTTP responses. */
import type { Writable } from "node:stream";
import type { Envelope } from "@gateway/shared/forward/endpoints";
import {
  anthropicError,
  bodyOfErrorEvent,
} from "@gateway/shared/forward/envelope";
import type { ApiError, OwnAnswer } from "@gateway/shared/openai/error";
import {
  CLIENT_CLOSED_REQUEST,
  type Exchange,
  type HeaderFields,
} from "./exchange.ts";

/** Where a response goes: an `ApiResponse`, or a stand-in of a test. */
export interface ResponseOutput extends Writable {
  statusCode: number;
  /** The form of errors; absent: OpenAI's. */
  readonly envelope?: Envelope;
  /** Headers that it has, whatever is sent, with the id of the request. */
  readonly fixedHeaders?: HeaderFields;
  readonly headersSent: boolean;
  /** Sends the status and all headers, once. */
  sendHead(status: number, headers: HeaderFields): unknown;
}

/** Headers of every answer: no cache may store keys or answers. */
export const BYTES_HEADERS: HeaderFields = {
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
};
const JSON_TYPE = "application/json; charset=utf-8";
/** What workers say of an event of a server. */
const EVENT_STREAM = "text/event-stream";

/** Headers of an answer in JSON. */
export const JSON_HEADERS: HeaderFields = {
  "content-type": JSON_TYPE,
  ...BYTES_HEADERS,
};

/** Headers of an event stream. No proxy may buffer, compress or store it. */
export const EVENT_STREAM_HEADERS: HeaderFields = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
  "x-content-type-options": "nosniff",
};

/** How long a browser may remember the answer to a preflight request. */
const MAX_AGE_SECONDS = 600;
const MS_PER_SECOND = 1000;
/** SDKs that read 0 retry without a pause. */
const RETRY_AFTER_SECONDS_MIN = 1;
/** SDKs wait for as long as the header says, or ignore it and retry at once. */
const RETRIED_AFTER_MS_MAX = 60_000;

/**
 * Sends a whole answer, unless the client has left. `status`: default 200.
 *
 * Sets `Content-Length` itself because the server would send 0 for HEAD (RFC 9110
 * section 8.6).
 */
export function sendBytes(
  response: ResponseOutput,
  bytes: Uint8Array,
  { status = 200, headers }: { status?: number; headers: HeaderFields },
): void {
  if (response.destroyed) return;
  const length = String(bytes.length);
  response.sendHead(status, { ...headers, "content-length": length });
  response.end(bytes);
}

/** Sends a whole answer with status 200, as JSON. */
export function sendJson(
  response: ResponseOutput,
  body: unknown,
  headers: HeaderFields = {},
): void {
  const bytes = new TextEncoder().encode(JSON.stringify(body));
  sendBytes(response, bytes, { headers: { ...JSON_HEADERS, ...headers } });
}

/**
 * Sends the answer of an error: its status, headers and body by OpenAI's shape, or the
 * model server's own answer where that is kept.
 */
export function sendError(response: ResponseOutput, error: ApiError): void {
  const own = ownAnswerOf(error);
  if (own !== null) return sendOwnAnswer(response, error, own);
  const { envelope, fixedHeaders } = response;
  const body = envelope === "anthropic"
    ? anthropicError(error, fixedHeaders?.["x-request-id"] ?? "")
    : error.toBody();
  const bytes = new TextEncoder().encode(JSON.stringify(body));
  const headers = { ...JSON_HEADERS, ...errorHeaders(error), ...error.headers };
  sendBytes(response, bytes, { status: error.status, headers });
}

/**
 * The server's own answer. An event with which its stream began becomes a body, if it
 * is about the request or about when to send it again.
 */
function ownAnswerOf({ answer, code, status }: ApiError): OwnAnswer | null {
  if (answer?.contentType !== EVENT_STREAM) return answer;
  if (status >= 500 && code !== "overloaded") return null;
  const body = bodyOfErrorEvent(answer.body);
  return body === null
    ? null
    : { ...answer, status, contentType: JSON_TYPE, body };
}

function sendOwnAnswer(
  response: ResponseOutput,
  error: ApiError,
  { status, contentType, body, headers: own }: OwnAnswer,
): void {
  const bytes = new TextEncoder().encode(body);
  const headers: Record<string, string> = {
    ...BYTES_HEADERS,
    ...errorHeaders(error),
    ...error.headers,
    ...own,
    "content-type": contentType,
  };
  const waitMs = Number(own["retry-after-ms"]) ||
    Number(own["retry-after"]) * MS_PER_SECOND;
  if (waitMs > RETRIED_AFTER_MS_MAX) headers["x-should-retry"] = "false";
  sendBytes(response, bytes, { status, headers });
}

/**
 * Drops an answer whose client has disconnected. The status is for metrics and the log.
 */
export function abandon(response: ResponseOutput): void {
  if (!response.headersSent) response.statusCode = CLIENT_CLOSED_REQUEST;
  response.destroy();
}

/** Says when, and whether, to try again, and how to authenticate. */
export function errorHeaders(
  { status, retryable, retryAfterMs }: ApiError,
): HeaderFields {
  const headers: Record<string, string> = {};
  // Without `error="invalid_token"` (RFC 6750 section 3.1): like the body, this must
  // be the same for every failed authentication.
  if (status === 401) headers["www-authenticate"] = "Bearer";
  if (retryAfterMs !== null) {
    // Whole seconds by the standard, milliseconds for the SDKs that read them.
    const seconds = Math.ceil(retryAfterMs / MS_PER_SECOND);
    headers["retry-after"] = `${Math.max(RETRY_AFTER_SECONDS_MIN, seconds)}`;
    headers["retry-after-ms"] = `${Math.max(1, Math.ceil(retryAfterMs))}`;
  }
  // SDKs retry 408, 409, 429 and 5xx unless a header forbids it, and some agents 401
  // and 403.
  const isRetried = status === 429 || status >= 500;
  const isVain = isRetried && !retryable;
  const isLate = isRetried && (retryAfterMs ?? 0) > RETRIED_AFTER_MS_MAX;
  if (isVain || isLate || status === 401 || status === 403) {
    headers["x-should-retry"] = "false";
  }
  return headers;
}

/** Among the origins that may call: all of them. */
export const ANY_ORIGIN = "*";

/**
 * Lets web pages of these origins call the API and read its answers, errors included.
 * By default none: keys are secrets of servers.
 */
export function allowOrigins(
  origins: readonly string[],
  { headers, response: { fixedHeaders } }: Exchange,
): void {
  if (origins.length === 0) return;
  const isForAll = origins.includes(ANY_ORIGIN);
  if (!isForAll) fixedHeaders["vary"] = "origin";
  const origin = headers.origin;
  if (origin === undefined) return;
  if (!isForAll && !origins.includes(origin)) return;
  fixedHeaders["access-control-allow-origin"] = isForAll ? ANY_ORIGIN : origin;
  fixedHeaders["access-control-expose-headers"] = "*";
  // A preflight request: the key's header always needs permission.
  const requested = headers["access-control-request-headers"];
  if (requested === undefined) return;
  // A wildcard would not cover `Authorization`.
  fixedHeaders["access-control-allow-headers"] = requested;
  fixedHeaders["access-control-allow-methods"] = "GET, HEAD, POST, DELETE";
  fixedHeaders["access-control-max-age"] = `${MAX_AGE_SECONDS}`;
}
