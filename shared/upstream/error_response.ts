/**
 * Maps error responses to errors for callers, who see the server's message only if
 * their request is at fault, and only from a known format: other bodies may reveal
 * internal machines. The status alone is not enough; the test has examples.
 */
import type { OwnAnswer } from "../openai/error.ts";
import { UpstreamError, type UpstreamFault } from "./http/errors.ts";
import type { HttpConnection } from "./http/client.ts";
import type { ResponseHead } from "./http/framing.ts";
import { isJsonObject, type JsonObject, parseJson, textOf } from "./json.ts";
import { ownAnswer, plainRefusal, type Redact } from "./own_answer.ts";

const UNKNOWN_MODEL_CODE = /^(model_?not_?found|invalid_model)$/i;
const UNKNOWN_MODEL =
  /^(the )?(requested )?model\b.* (not found|not exist|not available)|^(no such|unknown) model\b/i;

/**
 * Answers of servers without the requested path: LocalAI's, and others in OpenAI's
 * form.
 */
const UNKNOWN_PATH = /^(code=404, message=)?not found\.?$/i;

const CONTEXT_LENGTH = anyOf(
  "context_length_exceeded",
  "exceed_context_size",
  "maximum (context|model) length",
  "context window",
  "(longer than|exceeds?) the (model's |available )?context (length|size)",
  "context length of only",
  "inputs` (tokens \\+ `max_new_tokens` )?must (be <=|have less than)",
  "prompt is too long",
  "input token count .{0,40} exceeds the maximum",
  "range of input length should be",
);

/** Messages that mean the request would be refused every time, even with status 500. */
const PERMANENT = anyOf(
  "validation errors?\\b",
  "'type': '[a-z_]+', 'loc': \\(",
  "\\b(unexpected|unknown|invalid|unsupported)( message)? role",
  "\\broles? .{0,60}(must alternate|not (supported|allowed)|unsupported)",
  "\\btools?([_ ](calls?|choice|use|messages?))?\\b.{0,80}(not support|unsupported|requires?\\b|must )",
  "does not support",
  "(image|audio|video)s? (input )?(is|are) not supported",
  "(jinja|chat[ _]template|template error)",
  "response_?format|json[ _]?schema|\\bgrammar\\b",
);

/** RFC 9110, section 15.5.21. */
const UNPROCESSABLE = 422;
/** How many faults of a list the message for the caller names. */
const FAULTS_NAMED_MAX = 3;
/**
 * The largest body of an error response: a longer one is not quoted. Only this much of
 * a message is examined; what lies at the cut may be a part of a secret and is dropped.
 */
const BYTES_MAX = 64 * 1024;

/** `param` paths such as `messages[0].content`. */
const PARAM = /^[A-Za-z0-9_.[\]-]{1,128}$/;
const ADDRESS = /^[\x21-\x7e]{1,300}$/;
const CODE = /^[A-Za-z0-9_.-]{1,64}$/;

function anyOf(...patterns: string[]): RegExp {
  return new RegExp(patterns.join("|"), "i");
}

/**
 * The fault for each status; any other is a `server_error`. For `request` the message
 * is examined, too, and passed on to the caller. An error within an answer has no
 * status: its type or code in words stands for the first one of the row.
 */
const FAULTS: readonly [UpstreamFault, statuses: number[], words: RegExp][] = [
  ["rate_limited", [429, 408, 409, 425], /rate_?limit|throttl|too_many/i],
  ["overloaded", [503, 529], /overloaded/i],
  ["credentials", [401, 402, 403, 407], /auth|permission|api_key/i],
  // Servers that have the path for other methods, or plan to have it.
  ["no_endpoint", [405, 501], /^$/],
  [
    "request",
    [400, 404, 413, 422],
    /invalid_(request|param|prompt|image)|badrequest|context_(length|size)|validation|user_error|content_policy|image_(too|parse|content|file)/i,
  ],
];

/** How a refusal is read. */
export interface RefusalReading {
  redact: Redact;
  /**
   * Takes secrets out of the server's answer, which is then kept for the client if it
   * is about the request. Default: none is kept.
   */
  scrub?: Redact | undefined;
}

/** Statuses whose bodies are about the request, or about when to send it again. */
const KEPT_STATUSES = [400, 404, 413, 422, 429, 529];
const KEPT_FAULTS: readonly UpstreamFault[] = [
  "request",
  "rate_limited",
  "overloaded",
];

/**
 * Reads the body of a refusal and returns the error for it. Rejects only with the
 * reason why the attempt was aborted.
 */
export async function readErrorResponse(
  head: ResponseHead,
  response: Pick<HttpConnection, "bytesLeft" | "readText">,
  { redact, scrub }: RefusalReading,
): Promise<UpstreamError> {
  const { status, retryAfterMs } = head;
  if (status >= 300 && status < 400) return redirected(head);
  response.bytesLeft = BYTES_MAX;
  let text = "";
  try {
    text = await response.readText();
  } catch (error) {
    // The body was cut or is too long. The status is enough, so only an abort is passed
    // on.
    if (!(error instanceof UpstreamError)) throw error;
  }
  const json = parseJson(text);
  const plain = plainRefusal(head, text);
  const body = json === undefined && plain !== "" ? { error: plain } : json;
  const own = scrub === undefined || !isJsonObject(body)
    ? undefined
    : ownAnswer(head, { text, json, scrub });
  return errorOfResponse({ status, body, retryAfterMs, own }, redact);
}

/**
 * Where a redirect leads, for operators, without what may be secret of it: the user,
 * the password and the query. `location` is the header.
 */
export function redirectTarget(location: string | null): string {
  const target = (location ?? "").replace(/[?#].*$/s, "")
    .replace(/\/\/[^/]*@/, "//");
  return ADDRESS.test(target) ? target : "an address that cannot be read";
}

/**
 * The error for a redirect. Only the log has the target: callers learn no addresses.
 */
function redirected({ status, location }: ResponseHead): UpstreamError {
  const cause = new Error(
    `Model server answered with status ${status} and redirects to ${
      redirectTarget(location)
    }; if that is right, set it as base_url`,
  );
  return new UpstreamError("redirect", { cause });
}

/** The error for a refusal, by its status and what its body says. */
export function errorOfResponse(
  { status, body, retryAfterMs, own }: Pick<ResponseHead, "status"> & {
    /** Parsed body or event data, or undefined when it was not JSON. */
    body: unknown;
    retryAfterMs?: number | undefined;
    /** What the client may get in place of our words. */
    own?: OwnAnswer | undefined;
  },
  redact: Redact,
): UpstreamError {
  const error = errorMemberOf(body);
  const message = redact(textOf(error?.message));
  const fault = faultOf({ status, body, error, message });
  let detail = `Model server answered with status ${status}`;
  // The operator configured a wrong name for this server. Only the log shows that name.
  if (fault === "unknown_model") detail += `: ${message}`;
  const cause = new Error(detail);
  const isKept = KEPT_STATUSES.includes(status) && KEPT_FAULTS.includes(fault);
  const answer = isKept ? own : undefined;
  if (fault !== "request") {
    return new UpstreamError(fault, { cause, retryAfterMs, answer });
  }
  const isTooLong = error !== null && isContextLength(error);
  const code = status === 413 ? "request_too_large" : undefined;
  return new UpstreamError(fault, {
    cause,
    message,
    answer,
    // Clients tell a request that cannot be processed from one that is malformed.
    ...status === UNPROCESSABLE && { status },
    param: clean(error?.param, PARAM, redact),
    code: isTooLong ? "context_length_exceeded" : code,
    wireCode: isTooLong ? undefined : clean(error?.code, CODE, redact),
  });
}

/** The fault of the table, except where the body says more than the status. */
function faultOf(
  { status, body, error, message }: {
    status: number;
    body: unknown;
    /** The object in the body that holds the message, if it has one. */
    error: JsonObject | null;
    /** Its message, redacted. */
    message: string;
  },
): UpstreamFault {
  const [fault = "server_error"] =
    FAULTS.find(([, statuses]) => statuses.includes(status)) ?? [];
  // HTML pages and FastAPI's {"detail":"Not Found"} are about the path, not the model.
  const isPath = error === null || UNKNOWN_PATH.test(message) ||
    (isJsonObject(body) && body.detail !== undefined);
  if (status === 404 && isPath) return "no_endpoint";
  if (error === null) return fault;
  const code = textOf(error.code);
  // Some servers answer 413 to a request that exceeds the gateway's token limit there.
  if (status === 413 && code === "rate_limit_exceeded") return "rate_limited";
  if (status === 500) {
    const text = textOf(error.message).slice(0, BYTES_MAX);
    return PERMANENT.test(text) || isContextLength(error) ? "request" : fault;
  }
  // The client requested one of our models. With other statuses "not found" can mean
  // anything.
  const isUnknown = UNKNOWN_MODEL_CODE.test(code) ||
    (status === 404 && UNKNOWN_MODEL.test(message));
  return isUnknown && fault === "request" ? "unknown_model" : fault;
}

function isContextLength({ code, type, message }: JsonObject): boolean {
  return [code, type, message].some((text) =>
    CONTEXT_LENGTH.test(textOf(text))
  );
}

/** The value if it is a text of this form without a secret, else undefined. */
function clean(value: unknown, form: RegExp, redact: Redact) {
  const text = textOf(value);
  return form.test(text) && redact(text) === text ? text : undefined;
}

/**
 * The error within an answer whose status was 200: there is no status to rely on, so
 * its message is passed on.
 */
export function frameError(data: unknown, redact: Redact): UpstreamError {
  const error = errorMemberOf(data) ?? (isJsonObject(data) ? data : {});
  const refusal = { status: statusOf(error), body: data };
  const byStatus = errorOfResponse(refusal, redact);
  if (byStatus.fault !== "server_error" || refusal.status < 500) {
    return byStatus;
  }
  return new UpstreamError("server_error", {
    cause: new Error("Error within the answer"),
    message: redact(textOf(error.message)),
  });
}

/** The object with `message`, in any of the formats in use, or null. */
function errorMemberOf(body: unknown): JsonObject | null {
  if (Array.isArray(body)) {
    return body.length === 1 ? errorMemberOf(body[0]) : null;
  }
  if (!isJsonObject(body)) return null;
  const { error, error_type: type } = body;
  if (isJsonObject(error)) return hasMessage(error) ? error : null;
  // Mistral wraps FastAPI's `detail`.
  if (isJsonObject(body.message)) return errorMemberOf(body.message);
  if (typeof error === "string") return { message: error, type };
  if (isJsonObject(body.detail) && hasMessage(body.detail)) {
    return { ...body.detail, code: body.detail.error };
  }
  const detail = messageOfDetail(body.detail);
  if (detail !== "") return { message: detail };
  const isFlat = body.object === "error" ||
    /^(string|number)$/.test(typeof body.code);
  return isFlat && hasMessage(body) ? body : null;
}

const hasMessage = ({ message }: JsonObject) => typeof message === "string";

/** The faults in FastAPI's `detail`, which is a text or a list, or `""`. */
function messageOfDetail(detail: unknown): string {
  if (!Array.isArray(detail)) return textOf(detail);
  return detail.filter(isJsonObject).slice(0, FAULTS_NAMED_MAX)
    .map(({ loc, msg }) => {
      const path = Array.isArray(loc) ? loc.slice(1).join(".") : "";
      return `${path}: ${textOf(msg)}`;
    })
    .join("; ");
}

/**
 * The HTTP status that an error object states as a number or implies by its kind;
 * otherwise 500.
 */
function statusOf(error: JsonObject): number {
  const { type, code, status, status_code, http_status_code } = error;
  for (const value of [code, status, status_code, http_status_code]) {
    const number = Number(value);
    if (number >= 400 && number <= 599) return number;
  }
  const kind = `${textOf(type)} ${textOf(code)}`;
  return FAULTS.find(([, , words]) => words.test(kind))?.[1][0] ?? 500;
}

const MESSAGE_CHARS_MAX = 500;
/** Shorter values would be found in ordinary words. */
const SECRET_CHARS_MIN = 4;
const REDACTED = "[redacted]";

const PATTERNS: readonly RegExp[] = [
  /\b[a-z][a-z0-9+.-]{0,30}:\/\/[^\s"'<>]+/gi,
  /\bbearer\s+[^\s"',]+/gi,
  // Keys with one of the usual prefixes, including masked ones such as `sk-ab***yz`.
  /\b(?:sk|pk|rk|gsk|xai|hf|nvapi)[-_][A-Za-z0-9_*.-]{4,}/g,
  /\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b/g,
  // File paths, and positions in source code.
  /(?<![\w\])}.<])~?\/(?!v\d+\/)(?:[\w.@+-]+\/)+[\w.@+-]+/g,
  /(?<![\w\])}.<])\/[\w@+-]+(?:\.\w+)+/g,
  /\b[A-Za-z]:\\[^\s"'<>]+/g,
  /(?<![\w./-])[\w./-]+\.(?:py|cpp|cc|cu|hpp|h|go|rs|js|mjs|ts|java)(?::\d+)+\b/g,
];
/** Lines of stack traces of Python (with the code that it shows), JavaScript and Go. */
const STACK =
  /Traceback \(most recent call last\):|^[ \t]*File "[^"\n]*", line \d+.*(\n[ \t]{4,}.*)?|^[ \t]+at .*$|^goroutine \d+.*$|^\t.*\.go:\d+.*$/gm;
/** C0 and C1 controls: line ends would break logs and headers. */
const CONTROLS = /\p{Cc}+/gu;

/** What must not leave, and what it is called by callers. */
export interface Secrets {
  secrets: readonly string[];
  baseUrl: URL;
  /** The model's name at the server, and its name for callers. */
  model?: { theirs: string; ours: string };
}

/**
 * Secrets, addresses, file paths and credentials become `[redacted]`, the model's
 * name at the server becomes ours, stack traces go. Only then is the text clipped to
 * 500 characters, so that no partial secret remains.
 */
export function createRedact(secrets: Secrets): Redact {
  const scrub = createScrub(secrets);
  return (text) => {
    let clean = text.slice(0, BYTES_MAX).toWellFormed()
      .replaceAll("\r\n", "\n").replace(STACK, "").replace(CONTROLS, " ");
    clean = scrub(clean);
    if (text.length > BYTES_MAX) clean = clean.slice(0, -MESSAGE_CHARS_MAX);
    clean = clean.trim();
    if (clean.length <= MESSAGE_CHARS_MAX) return clean;
    return `${clean.slice(0, MESSAGE_CHARS_MAX - 1).toWellFormed()}…`;
  };
}

/**
 * As {@link createRedact}, but changes nothing else: texts keep their length and their
 * lines.
 */
export function createScrub({ secrets, baseUrl, model }: Secrets): Redact {
  const isRenamed = model !== undefined && model.theirs !== model.ours &&
    model.theirs.length >= SECRET_CHARS_MIN;
  const name = isRenamed
    ? new RegExp(
      `(?<![\\w.:/@-])[\\w.:/@-]*${
        RegExp.escape(model.theirs)
      }(?:[\\w:.-]*\\w)?`,
      "g",
    )
    : null;
  const needles = [...secrets, baseUrl.host, baseUrl.hostname]
    .filter((needle) => needle.length >= SECRET_CHARS_MIN)
    .sort((a, b) => b.length - a.length);
  return (text) => {
    let clean = text;
    if (name !== null) clean = clean.replace(name, () => model?.ours ?? "");
    for (const needle of needles) clean = clean.replaceAll(needle, REDACTED);
    for (const pattern of PATTERNS) clean = clean.replace(pattern, REDACTED);
    return clean;
  };
}
