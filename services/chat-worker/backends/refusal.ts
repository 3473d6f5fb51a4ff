/**
 * What a model server's refusal becomes. Callers get the server's words only for a
 * fault of their request, and only from a known error format: other bodies are
 * pages of machines that callers must not know about.
 */
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { WallNow } from "@gateway/shared/process/clock";
import { UpstreamError, type UpstreamErrorOptions } from "./errors.ts";
import { isJsonObject, type JsonObject, textOf } from "./json_value.ts";
import {
  faultInDetail,
  faultInText,
  isContextLength,
  isFormatFault,
  isPermanent,
  isUnknownModel,
} from "./refusal_words.ts";

/** `param` paths such as `messages[0].content`. */
const PARAM = /^[A-Za-z0-9_.[\]-]{1,128}$/;
const CODE = /^[A-Za-z0-9_.-]{1,64}$/;

const NUMBER = /^\d+(\.\d+)?$/;
/** `Date.parse` would make a date of almost anything. */
const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} .* GMT$/;
const RETRY_AFTER_MS_MIN = 1_000;
const RETRY_AFTER_MS_MAX = 60_000;

/** What a server answered instead of a completion. */
export interface Refusal {
  status: number;
  /** Parsed body or event data, or undefined when it was not JSON. */
  body: unknown;
  retryAfterMs?: number;
}

/** What else decides how a refusal is read. */
export interface RefusalContext {
  redact: Redact;
  /** The request says what form its answer must have: only then can that be at fault. */
  asksForFormat: boolean;
}

/** Whether the request says what form its answer must have. */
export function asksForFormat({ response_format }: ChatRequest): boolean {
  return response_format !== undefined && response_format.type !== "text";
}

/**
 * Maps a refusal to the error for the caller:
 *
 * | status | fault | to the client |
 * | --- | --- | --- |
 * | 400, 404, 422 | request | 400 with the sanitised message |
 * | the same about the model, whose name is ours there | unknown_model | 502 |
 * | 413 | request | 413 with the sanitised message |
 * | 413 for a rate of tokens | rate_limited | 429 with `Retry-After` |
 * | 401, 402, 403, 407 | credentials | 502 |
 * | 408, 409, 425, 429 | rate_limited | 429 with `Retry-After` |
 * | 404 not in OpenAI's shape, other 4xx, 3xx | server_error | 502 |
 * | 500 about what the request asks for | request | 400 with the sanitised message |
 * | 503, 529 | overloaded | 503 with `Retry-After` |
 * | other 5xx | server_error | 502 |
 */
export function refusalError(
  refusal: Refusal,
  context: RefusalContext,
): UpstreamError {
  const { status, body, retryAfterMs } = refusal;
  const { redact } = context;
  const error = errorMemberOf(body);
  const cause = new Error(`Model server answered with status ${status}`);
  const wait = retryAfterMs === undefined ? { cause } : { cause, retryAfterMs };
  switch (status) {
    case 404:
      // FastAPI's {"detail":"Not Found"} and pages speak of our path, not of the model.
      if (error === null || (isJsonObject(body) && body.detail !== undefined)) {
        return new UpstreamError("server_error", { cause });
      }
      return unknownModel(error, status, redact) ??
        requestError(error, status, redact);
    case 400:
    case 422:
      return (error && unknownModel(error, status, redact)) ??
        requestError(error, status, redact);
    case 413:
      // A rate of tokens that is smaller than the request is a limit of ours there.
      return error?.code === "rate_limit_exceeded"
        ? new UpstreamError("rate_limited", wait)
        : requestError(error, status, redact);
    case 401:
    case 402:
    case 403:
    case 407:
      return new UpstreamError("credentials", { cause });
    case 408:
    case 409:
    case 425:
    case 429:
      return new UpstreamError("rate_limited", wait);
    case 503:
    case 529:
      return new UpstreamError("overloaded", wait);
    case 500:
      return (error && permanentError(error, context)) ??
        new UpstreamError("server_error", { cause });
    default:
      return new UpstreamError("server_error", { cause });
  }
}

/**
 * The client's model is one of ours, so the operator named it wrong for this
 * server; the log is told how, and the client nothing of that name.
 */
function unknownModel(
  error: JsonObject,
  status: number,
  redact: Redact,
): UpstreamError | null {
  const message = redact(textOf(error.message));
  if (!isUnknownModel(textOf(error.code), message, status)) return null;
  return new UpstreamError("unknown_model", {
    cause: new Error(`Model server answered with status ${status}: ${message}`),
  });
}

/** The error of a request that no attempt can serve, although the status says otherwise, or null. */
function permanentError(
  error: JsonObject,
  { redact, asksForFormat }: RefusalContext,
): UpstreamError | null {
  const message = textOf(error.message);
  if (asksForFormat && isFormatFault(message)) {
    return requestError(
      { message, param: "response_format" },
      500,
      redact,
    );
  }
  const isRefused = isPermanent(message) ||
    isContextLength(textOf(error.code), textOf(error.type), message);
  return isRefused ? requestError(error, 500, redact) : null;
}

function requestError(
  error: JsonObject | null,
  status: number,
  redact: Redact,
): UpstreamError {
  const cause = new Error(`Model server answered with status ${status}`);
  if (error === null) return new UpstreamError("request", { cause });
  const fault = faultInText(textOf(error.message));
  const message = redact(fault?.message ?? textOf(error.message));
  const param = clean(error.param ?? fault?.param, PARAM, redact);
  const code = clean(error.code, CODE, redact);
  const options: UpstreamErrorOptions = {
    cause,
    ...(message === "" ? {} : { message }),
    ...(param === null ? {} : { param }),
  };
  if (isContextLength(textOf(error.code), textOf(error.type), message)) {
    options.code = "context_length_exceeded";
  } else {
    if (status === 413) options.code = "request_too_large";
    if (code !== null) options.wireCode = code;
  }
  return new UpstreamError("request", options);
}

function clean(value: unknown, form: RegExp, redact: Redact): string | null {
  if (typeof value !== "string" || !form.test(value)) return null;
  return redact(value) === value ? value : null;
}

/**
 * The error of an `error` member, or of an `error` event, inside a stream or a
 * body that began with status 200. Its message is passed on, sanitised: there is
 * no status to go by.
 */
export function frameError(
  data: unknown,
  context: RefusalContext,
): UpstreamError {
  const error = errorMemberOf(data) ?? (isJsonObject(data) ? data : {});
  const refusal = { status: statusOf(error), body: data };
  const known = refusalError(refusal, context);
  if (known.fault !== "server_error" || refusal.status < 500) return known;
  const message = context.redact(textOf(error.message));
  return new UpstreamError("server_error", {
    cause: new Error("Error within the answer"),
    ...(message === "" ? {} : { message }),
  });
}

/** The wait in milliseconds that the headers ask for, clamped to 1..60 s; undefined when they do not. */
export function readRetryAfter(
  retryAfter: string | null,
  retryAfterMs: string | null,
  now: WallNow,
): number | undefined {
  const ms = waitOf(retryAfter, retryAfterMs, now);
  if (ms === undefined || Number.isNaN(ms)) return undefined;
  return Math.min(Math.max(ms, RETRY_AFTER_MS_MIN), RETRY_AFTER_MS_MAX);
}

function waitOf(
  retryAfter: string | null,
  retryAfterMs: string | null,
  now: WallNow,
): number | undefined {
  if (retryAfterMs !== null && NUMBER.test(retryAfterMs)) {
    return Math.ceil(Number(retryAfterMs));
  }
  if (retryAfter === null) return undefined;
  if (NUMBER.test(retryAfter)) return Math.ceil(Number(retryAfter) * 1_000);
  return HTTP_DATE.test(retryAfter)
    ? Date.parse(retryAfter) - now()
    : undefined;
}

/** The object that holds `message`, in any of the shapes in use, or null. */
function errorMemberOf(body: unknown): JsonObject | null {
  if (Array.isArray(body)) {
    return body.length === 1 ? errorMemberOf(body[0]) : null;
  }
  if (!isJsonObject(body)) return null;
  const { error, error_type: type } = body;
  if (isJsonObject(error)) return hasMessage(error) ? error : null;
  if (typeof error === "string") return { message: error, type };
  const fault = faultInDetail(body.detail);
  if (fault !== null) return { ...fault };
  const isFlat = body.object === "error" || typeof body.code === "string" ||
    typeof body.code === "number";
  return isFlat && hasMessage(body) ? body : null;
}

function hasMessage(error: JsonObject): boolean {
  return typeof error.message === "string";
}

/** The HTTP status an error object names by number or by kind; 500 when it does not. */
function statusOf(error: JsonObject): number {
  const { code, status: named, status_code: spelt, http_status_code: http } =
    error;
  for (const value of [code, named, spelt, http]) {
    const status = Number(value);
    if (status >= 400 && status <= 599) return status;
  }
  const kind = `${textOf(error.type)} ${textOf(error.code)}`.toLowerCase();
  if (/rate_limit|ratelimit|throttl|too_many/.test(kind)) return 429;
  if (/overloaded/.test(kind)) return 503;
  if (/auth|permission|api_key/.test(kind)) return 401;
  if (
    /invalid_request|badrequest|context_length|context_size|invalid_param|validation/
      .test(kind)
  ) {
    return 400;
  }
  return 500;
}

/** Makes the text of a model server safe to show to callers. */
export type Redact = (text: string) => string;

/** Characters of a message that are passed on. */
const MESSAGE_CHARS_MAX = 500;
/** Shorter values would be found in ordinary words. */
const SECRET_CHARS_MIN = 4;
const REDACTED = "[redacted]";

const PATTERNS: readonly RegExp[] = [
  /\b[a-z][a-z0-9+.-]*:\/\/[^\s"'<>]+/gi,
  /\bbearer\s+[^\s"',]+/gi,
  // Keys by the looks of the usual prefixes, masked ones such as `sk-ab***yz` included.
  /\b(?:sk|pk|rk|gsk|xai|hf|nvapi)[-_][A-Za-z0-9_*.-]{4,}/g,
  /\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b/g,
  // Paths of files, and places in source code.
  /(?<![\w\])}.<])~?\/(?!v\d+\/)(?:[\w.@+-]+\/)+[\w.@+-]+/g,
  /(?<![\w\])}.<])\/[\w@+-]+(?:\.\w+)+/g,
  /\b[A-Za-z]:\\[^\s"'<>]+/g,
  /\b[\w./-]+\.(?:py|cpp|cc|cu|hpp|h|go|rs|js|mjs|ts|java)(?::\d+)+\b/g,
];
/** Lines of stack traces of Python, JavaScript and Go, and the code that Python shows below. */
const STACK =
  /Traceback \(most recent call last\):|^[ \t]*File "[^"\n]*", line \d+.*(\n[ \t]{4,}.*)?|^[ \t]+at .*$|^goroutine \d+.*$|^\t.*\.go:\d+.*$/gm;
/** C0 and C1 controls: line ends would break logs and header-like contexts. */
const CONTROLS = /\p{Cc}+/gu;

/** What a server must not be able to send back to a caller. */
export interface RedactOptions {
  /** Credentials and header values. */
  secrets: readonly string[];
  baseUrl: URL;
  /** The model's name at the server, and the one that callers know. */
  model?: { theirs: string; ours: string };
}

/**
 * Makes a function that cleans a text: secrets, the server's address, URLs, network
 * addresses, file paths and bearer credentials become `[redacted]`, the model's
 * name at the server becomes ours, stack traces go, control characters become
 * blanks. Last of all it is cut to 500 characters, so that no part of a secret is
 * left over.
 */
export function createRedact(options: RedactOptions): Redact {
  const { secrets, baseUrl, model } = options;
  const name = model !== undefined && model.theirs.length >= SECRET_CHARS_MIN &&
      model.theirs !== model.ours
    ? new RegExp(
      `[\\w.:/@-]*${model.theirs.replace(/[^\w]/g, "\\$&")}(?:[\\w:.-]*\\w)?`,
      "g",
    )
    : null;
  const needles = [...secrets, baseUrl.href, baseUrl.host, baseUrl.hostname]
    .filter((needle) => needle.length >= SECRET_CHARS_MIN)
    .sort((a, b) => b.length - a.length);
  return (text) => {
    let clean = text.toWellFormed().replaceAll("\r\n", "\n")
      .replace(STACK, "").replace(CONTROLS, " ");
    if (name !== null) clean = clean.replace(name, () => model?.ours ?? "");
    for (const needle of needles) clean = clean.replaceAll(needle, REDACTED);
    for (const pattern of PATTERNS) clean = clean.replace(pattern, REDACTED);
    return cut(clean.trim());
  };
}

function cut(text: string): string {
  if (text.length <= MESSAGE_CHARS_MAX) return text;
  return `${text.slice(0, MESSAGE_CHARS_MAX - 1).toWellFormed()}…`;
}
