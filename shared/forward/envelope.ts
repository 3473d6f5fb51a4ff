/** Our own errors and signs of life, as clients of each dialect read them. */
import type { ApiError } from "../openai/error.ts";
import { isJsonObject } from "../process/error_text.ts";
import type { ForwardName } from "./endpoints.ts";

/**
 * Anthropic's class for each status:
 * https://docs.claude.com/en/api/errors, November 2026.
 */
const ANTHROPIC_TYPES: { readonly [status: number]: string } = {
  400: "invalid_request_error",
  401: "authentication_error",
  402: "billing_error",
  403: "permission_error",
  404: "not_found_error",
  405: "invalid_request_error",
  408: "timeout_error",
  413: "request_too_large",
  415: "invalid_request_error",
  422: "invalid_request_error",
  429: "rate_limit_error",
  503: "overloaded_error",
  504: "timeout_error",
  529: "overloaded_error",
};

/**
 * An error in Anthropic's form. Failed authentications keep the body that the service
 * specification fixes for every endpoint.
 */
export function anthropicError(error: ApiError, requestId: string): object {
  const { status, message } = error;
  if (status === 401 || status === 403) return error.toBody();
  return anthropicBody(error, { message, requestId });
}

/** An error in Anthropic's form, whatever its status. */
export function anthropicBody(
  { code, status }: ApiError,
  { message, requestId }: { message: string; requestId: string },
): object {
  const type = code === "insufficient_quota"
    ? "billing_error"
    : ANTHROPIC_TYPES[status] ?? "api_error";
  return { type: "error", error: { type, message }, request_id: requestId };
}

/** What an event of an error says besides the error. */
export interface EventContext {
  requestId: string;
  model: string;
  /** Unix seconds. */
  created: number;
}

/** The event that ends a stream which has failed: never a normal end. */
export function errorEvent(
  endpoint: ForwardName,
  error: ApiError,
  context: EventContext,
): string {
  const { message } = error;
  if (endpoint === "messages") {
    const body = anthropicBody(error, { message, ...context });
    return `event: error\ndata: ${JSON.stringify(body)}\n\n`;
  }
  if (endpoint !== "responses") {
    return `data: ${JSON.stringify(error.toBody())}\n\n`;
  }
  const { requestId, model, created } = context;
  // Codex ignores events of the type `error`, and reads the code of this one.
  const data = {
    type: "response.failed",
    response: {
      id: `resp_${requestId}`,
      object: "response",
      created_at: created,
      status: "failed",
      error: { code: responsesCode(error), message },
      incomplete_details: null,
      model,
      output: [],
      usage: null,
    },
  };
  return `event: response.failed\ndata: ${JSON.stringify(data)}\n\n`;
}

/**
 * The body that a server would have answered with, if it had reported this event's
 * error before its stream; null if the event is of no known form. Anthropic's data and
 * those of completions are such a body, those of responses have the error inside.
 */
export function bodyOfErrorEvent(event: string): string | null {
  const data = event.split("\n").find((line) => line.startsWith("data:"));
  let value: unknown;
  try {
    value = JSON.parse(data?.slice("data:".length) ?? "");
  } catch {
    return null;
  }
  if (!isJsonObject(value)) return null;
  if (isJsonObject(value.error)) return JSON.stringify(value);
  const { response } = value;
  if (!isJsonObject(response) || !isJsonObject(response.error)) return null;
  return JSON.stringify({ error: response.error });
}

/** The codes on which Codex decides whether to try again. */
function responsesCode({ code, status }: ApiError): string {
  if (code === "context_length_exceeded" || code === "insufficient_quota") {
    return code;
  }
  if (status === 429) return "rate_limit_exceeded";
  return status >= 500 ? "server_error" : "invalid_prompt";
}

/** What keeps a silent stream open: Anthropic's clients know an event for that. */
export const signOfLife = (endpoint: ForwardName): string =>
  endpoint === "messages"
    ? 'event: ping\ndata: {"type": "ping"}\n\n'
    : ": keep-alive\n\n";
