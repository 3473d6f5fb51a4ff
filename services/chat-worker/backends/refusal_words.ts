/**
 * What servers write when they refuse a request, since their statuses do not tell
 * enough. The tables of `refusal_test.ts` have their sentences.
 */
import { isJsonObject, textOf } from "./json_value.ts";

const UNKNOWN_MODEL_CODE = /^model_?not_?found$/i;
const UNKNOWN_MODEL =
  /^(the )?(requested )?model\b.* (not found|not exist|not available)|^(no such|unknown) model\b/i;

const CONTEXT_LENGTH = anyOf(
  "context_length_exceeded",
  "exceed_context_size",
  "maximum (context|model) length",
  "context window",
  "(longer than|exceeds?) the (model's |available )?context (length|size)",
  "context length of only",
  "inputs` (tokens \\+ `max_new_tokens` )?must (be <=|have less than)",
  "prompt is too long",
  "input token count .* exceeds the maximum",
  "range of input length should be",
);

const FORMAT = /response_?format|json[ _]?schema|\bgrammar\b/i;

/** What a request is refused for each time it is sent, even with status 500. */
const PERMANENT = anyOf(
  "validation errors?\\b",
  "'type': '[a-z_]+', 'loc': \\(",
  "\\b(unexpected|unknown|invalid|unsupported)( message)? role",
  "\\broles? .{0,60}(must alternate|not (supported|allowed)|unsupported)",
  "\\btools?([_ ](calls?|choice|use|messages?))?\\b.{0,80}(not support|unsupported|requires?\\b|must )",
  "does not support",
  "(image|audio|video)s? (input )?(is|are) not supported",
  "(jinja|chat[ _]template|template error)",
);

/** Members of the Python lists that pydantic's errors are printed as. */
const PRINTED_ERROR =
  /'loc': \(([^()]{0,200})\), 'msg': (?:'([^']{0,300})'|"([^"]{0,300})")/g;
/** How many faults of one request are told. */
const TOLD_MAX = 3;

function anyOf(...patterns: string[]): RegExp {
  return new RegExp(patterns.join("|"), "i");
}

/** Whether the server does not have the model it was asked for. */
export function isUnknownModel(
  code: string,
  message: string,
  status: number,
): boolean {
  // Statuses other than 404 speak of many things that were not found.
  return UNKNOWN_MODEL_CODE.test(code) ||
    (status === 404 && UNKNOWN_MODEL.test(message));
}

/** Whether a code, a type or a message says that a prompt does not fit into the model's context. */
export function isContextLength(...texts: string[]): boolean {
  return texts.some((text) => CONTEXT_LENGTH.test(text));
}

/** Whether a message says that the form asked for cannot be made. */
export function isFormatFault(message: string): boolean {
  return FORMAT.test(message);
}

/** Whether a message says that the request will be refused each time. */
export function isPermanent(message: string): boolean {
  return PERMANENT.test(message);
}

/** What is wrong with a request, as far as it can be told. */
export interface ValidationFault {
  message: string;
  /** As in `messages[0]`, or null. */
  param: string | null;
}

/** The faults in a `detail` as FastAPI sends it, a text or a list, or null. */
export function faultInDetail(detail: unknown): ValidationFault | null {
  if (typeof detail === "string") return { message: detail, param: null };
  if (!Array.isArray(detail)) return null;
  return joined(
    detail.filter(isJsonObject).map(({ loc, msg }) => ({
      path: Array.isArray(loc) ? loc.map(String) : [],
      words: textOf(msg),
    })),
  );
}

/** The faults in pydantic's printed form, without the request that they quote, or null. */
export function faultInText(message: string): ValidationFault | null {
  return joined(
    [...message.matchAll(PRINTED_ERROR)].map((
      [, loc = "", single, double],
    ) => ({
      path: loc.split(",").map((part) => part.replace(/['" ]/g, "")),
      words: single ?? double ?? "",
    })),
  );
}

function joined(
  faults: { path: string[]; words: string }[],
): ValidationFault | null {
  const told = faults.filter(({ words }) => words !== "").slice(0, TOLD_MAX);
  const [first] = told;
  if (first === undefined) return null;
  const sentences = told.map(({ path, words }) => {
    const where = pathText(path);
    return where === "" ? words : `${where}: ${words}`;
  });
  return {
    message: [...new Set(sentences)].join("; "),
    param: pathText(first.path) || null,
  };
}

/** `["body", "messages", "0", "UserMessage", "role"]` is `messages[0].role`: names of classes are left out. */
function pathText(path: string[]): string {
  let text = "";
  for (const part of path) {
    if (part === "body" && text === "") continue;
    if (/^\d+$/.test(part)) text += `[${part}]`;
    else if (/^[a-z_]+$/.test(part)) text += text === "" ? part : `.${part}`;
  }
  return text;
}
