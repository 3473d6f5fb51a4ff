/**
 * The error table: every error code of the gateway, what it means and when it is sent.
 * `docs/errors.md` and the description of the API are generated from it.
 */
import { KEPT_ERROR_KINDS } from "./kept_error_kinds.ts";

/** One code of the table. */
export interface ErrorKind {
  /** The HTTP status, unless a model server's own replaces it. */
  status: number;
  /** OpenAI's class of the error, in the body. */
  type: string;
  /** Whether the same request may succeed later, which the headers tell SDKs. */
  retryable: boolean;
  /** The code sent to clients, if it differs from the internal one. */
  wireCode?: string;
  /**
   * What it means, when it is sent, and what the caller can do: sentences in Markdown.
   */
  meaning: string;
  /** What the operator can do, if it is in the operator's hands: a sentence. */
  forOperators?: string;
}

const AUTHENTICATION = { type: "error", retryable: false };
const INVALID = { type: "invalid_request_error", retryable: false };
const LIMITED = {
  status: 429,
  retryable: true,
  wireCode: "rate_limit_exceeded",
};
const FAULT = { type: "server_error", retryable: true };

/**
 * Every error code of the gateway itself, as logs have it. A model server's own code,
 * type and status replace those of the table where it refuses a request itself.
 */
export const ERROR_KINDS = {
  // Authentication. The bodies are fixed by the service specification.
  unauthorized: {
    ...AUTHENTICATION,
    status: 401,
    meaning:
      "No key, an unknown key, or one that has expired. Check that it is " +
      "complete and belongs to this gateway.",
  },
  key_disabled: {
    ...AUTHENTICATION,
    status: 403,
    meaning:
      "The key or its owner was disabled. An owner can enable a key, an " +
      "operator can enable an owner.",
  },
  forbidden: {
    ...AUTHENTICATION,
    status: 403,
    meaning:
      "The key may not use this endpoint or this model, or not from this " +
      "address. Its owner can change that.",
  },

  // The request is invalid.
  invalid_json: {
    ...INVALID,
    status: 400,
    meaning: "The body is not JSON; the message says where.",
  },
  invalid_type: {
    ...INVALID,
    status: 400,
    meaning:
      "`param` has a type that the API does not accept. The message says " +
      "which it accepts.",
  },
  invalid_value: {
    ...INVALID,
    status: 400,
    meaning:
      "`param` has a value that the API does not accept. The message says " +
      "which it accepts.",
  },
  missing_required_parameter: {
    ...INVALID,
    status: 400,
    meaning: "`param` is missing. Add it.",
  },
  integer_below_min_value: {
    ...INVALID,
    status: 400,
    meaning: "`param` is too small.",
  },
  integer_above_max_value: {
    ...INVALID,
    status: 400,
    meaning: "`param` is too large, for the API or for this model.",
  },
  decimal_below_min_value: {
    ...INVALID,
    status: 400,
    meaning: "`param` is too small.",
  },
  decimal_above_max_value: {
    ...INVALID,
    status: 400,
    meaning: "`param` is too large.",
  },
  empty_array: {
    ...INVALID,
    status: 400,
    meaning: "`param` needs at least one element.",
  },
  array_above_max_length: {
    ...INVALID,
    status: 400,
    meaning: "`param` has too many elements.",
  },
  empty_string: {
    ...INVALID,
    status: 400,
    meaning: "`param` must not be empty.",
  },
  string_above_max_length: {
    ...INVALID,
    status: 400,
    meaning: "`param` is too long.",
  },
  unsupported_parameter: {
    ...INVALID,
    status: 400,
    meaning:
      "This gateway does not have `param`. Leave it out, or use what the " +
      "message names.",
  },
  unsupported_value: {
    ...INVALID,
    status: 400,
    meaning:
      "This model cannot do what `param` asks for, such as images. Use " +
      "another model.",
  },
  context_length_exceeded: {
    ...INVALID,
    status: 400,
    meaning:
      "Prompt and answer are longer than the model's context. Shorten the " +
      "prompt or lower `max_tokens`.",
  },
  invalid_request: {
    ...INVALID,
    status: 400,
    meaning:
      "The request is malformed, or the model server refused it in the words " +
      "of the message.",
  },
  model_not_found: {
    ...INVALID,
    status: 404,
    meaning:
      "No such model, or the key may not use it. `GET /v1/models` lists what " +
      "it may use.",
  },
  not_found: {
    ...INVALID,
    status: 404,
    meaning:
      "No such URL or video, or a video that is not ready. The message says " +
      "more.",
  },
  method_not_allowed: {
    ...INVALID,
    status: 405,
    meaning: "The header `allow` lists the methods of this URL.",
  },
  upgrade_required: {
    ...INVALID,
    status: 426,
    meaning: "WebSockets are not available. Send the request by POST.",
  },
  request_timeout: {
    ...INVALID,
    status: 408,
    retryable: true,
    meaning: "The body did not arrive in time. Send it again.",
  },
  request_too_large: {
    ...INVALID,
    status: 413,
    meaning:
      "The body is too large. A JSON body may have 20 MiB unless the operator " +
      "changed that, a recording 25 MiB.",
    forOperators: "`BODY_BYTES_MAX`.",
  },
  unsupported_media_type: {
    ...INVALID,
    status: 415,
    meaning:
      "Send what the message names, uncompressed: JSON with `content-type: " +
      "application/json`, or a form with files as `multipart/form-data`.",
  },

  // The caller must wait.
  rate_limit_exceeded: {
    ...LIMITED,
    type: "requests",
    meaning:
      "The limit of requests per minute of the key or its owner is reached, " +
      "or this address sent too many unknown keys. Wait as the headers say.",
  },
  token_limit_exceeded: {
    ...LIMITED,
    type: "tokens",
    meaning:
      "The limit of tokens per minute is reached. Wait as the headers say, or " +
      "lower `max_tokens`.",
  },
  daily_limit_exceeded: {
    ...LIMITED,
    type: "tokens",
    retryable: false,
    meaning: "The tokens of this day are used up. Retry after midnight UTC.",
  },
  media_limit_exceeded: {
    ...LIMITED,
    type: "requests",
    retryable: false,
    meaning:
      "The images, characters, audio seconds or video seconds of this day are " +
      "used up. Retry after midnight UTC.",
  },
  insufficient_quota: {
    status: 429,
    type: "insufficient_quota",
    retryable: false,
    meaning:
      "A budget of money of the key or its owner is spent; the message names " +
      "it, and when it is reset. Trying again before that does not help.",
    forOperators: "a higher budget: `keys edit`, `owners limits`.",
  },
  budget_held: {
    ...LIMITED,
    type: "requests",
    meaning:
      "The running requests of the key or its owner hold what is left of a " +
      "budget of money. What they do not use comes back when they end: retry.",
    forOperators: "a higher budget: `keys edit`, `owners limits`.",
  },
  concurrency_limit_exceeded: {
    ...LIMITED,
    type: "requests",
    meaning:
      "Too many requests or videos of this key or its owner are running, or " +
      "their bodies are too large together. Retry when one has ended.",
  },
  upstream_rate_limited: {
    ...LIMITED,
    type: "requests",
    meaning: "The model server limits the gateway. Wait as the headers say.",
    forOperators: "a higher limit there, or another backend.",
  },

  // The service or a model server failed, or is unavailable.
  internal_error: {
    ...FAULT,
    status: 500,
    meaning:
      "A fault of the gateway. Retry; if it persists, report the request id.",
    forOperators: "`request_fault` or `job_fault` in the log.",
  },
  upstream_error: {
    ...FAULT,
    status: 502,
    meaning: "The model server failed. Retry.",
    forOperators:
      "`backend_attempt_failed` in the log says why, such as a wrong key or " +
      "model.",
  },
  upstream_unreachable: {
    ...FAULT,
    status: 502,
    meaning: "The model server cannot be reached. Retry.",
    forOperators: "check its address and that it runs.",
  },
  upstream_invalid: {
    ...FAULT,
    status: 502,
    meaning: "The model server sent an invalid answer. Retry.",
    forOperators: "check its `dialect`.",
  },
  upstream_truncated: {
    ...FAULT,
    status: 502,
    meaning: "The model server ended its answer too early. Retry.",
  },
  service_unavailable: {
    ...FAULT,
    status: 503,
    meaning:
      "The key could not be checked, or no model server can be tried now. " +
      "This says nothing about the key. Retry.",
    forOperators: "Redis, or `backend_attempt_failed` in the log.",
  },
  queue_full: {
    status: 429,
    type: "requests",
    retryable: true,
    meaning:
      "As many requests wait for the model as may, most of them of your " +
      "account. `Retry-After` says when they will have been served.",
    forOperators: "more workers or slots, or a larger `queue` of the model.",
  },
  overloaded: {
    ...FAULT,
    status: 503,
    meaning:
      "No worker was free for two seconds, or for as long as a request may " +
      "wait for the model, or the model server is full. Retry.",
    forOperators: "more workers or slots.",
  },
  no_worker: {
    ...FAULT,
    status: 503,
    wireCode: "overloaded",
    meaning: "No worker runs the model at the moment. Retry.",
    forOperators:
      "start one, or see why workers do not have the model: `models_refused` in the log.",
  },
  bus_unavailable: {
    ...FAULT,
    status: 503,
    meaning: "The connection between edge and workers is lost. Retry.",
    forOperators: "NATS.",
  },
  server_shutdown: {
    ...FAULT,
    status: 503,
    meaning: "The process was stopped before the answer was complete. Retry.",
    forOperators: "the answer took longer than `DRAIN_SECONDS`.",
  },
  worker_lost: {
    ...FAULT,
    status: 502,
    meaning: "The worker died or stopped responding. Retry.",
  },
  upstream_timeout: {
    ...FAULT,
    status: 504,
    meaning: "The model server sent nothing for too long, or took too long " +
      "altogether. Retry.",
    forOperators: "the `deadlines` of the backend.",
  },
  deadline_exceeded: {
    ...FAULT,
    status: 504,
    retryable: false,
    meaning: "The request took too long, and would do so again: longer than " +
      "the gateway allows, or than its header `X-Gateway-Timeout` says. Ask " +
      "for less.",
    forOperators: "`REQUEST_TIMEOUT_SECONDS`.",
  },
  key_revoked: {
    ...AUTHENTICATION,
    status: 403,
    meaning: "The key was disabled or deleted while the request ran, and its " +
      "requests were stopped.",
  },
  request_stopped: {
    ...AUTHENTICATION,
    status: 403,
    meaning: "The owner of the key or an operator has stopped this request. " +
      "The key still works.",
  },
  ...KEPT_ERROR_KINDS,
} as const satisfies Record<string, ErrorKind>;

/** The name of an error in code, logs and on the bus. */
export type ErrorCode = keyof typeof ERROR_KINDS;

/** Whether a text, such as one from another process, is a code of the table. */
export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERROR_KINDS, code);
}
