/**
 * What servers say of a request that they can never serve, and say with status
 * 500 as if it were their fault: repeating such a request is of no use.
 */
import { isJsonObject, textOf } from "./json.ts";

/** What FastAPI, pydantic, chat templates and Ollama write; the table of `error_response_test.ts` has their sentences. */
const PERMANENT = new RegExp(
  [
    "validation errors?\\b",
    "'type': '[a-z_]+', 'loc': \\(",
    "\\b(unexpected|unknown|invalid|unsupported)( message)? role",
    "\\broles? .{0,60}(must alternate|not (supported|allowed)|unsupported)",
    "\\btools?([_ ](calls?|choice|use|messages?))?\\b.{0,80}(not support|unsupported|requires?\\b|must )",
    "does not support",
    "(image|audio|video)s? (input )?(is|are) not supported",
    "(jinja|chat[ _]template|template error)",
  ].join("|"),
  "i",
);
/** Members of the Python lists that pydantic's errors are printed as. */
const PRINTED_ERROR =
  /'loc': \(([^()]{0,200})\), 'msg': (?:'([^']{0,300})'|"([^"]{0,300})")/g;
/** How many faults of one request are told. */
const TOLD_MAX = 3;

/** What is wrong with a request, as far as it can be told. */
export interface ValidationFault {
  message: string;
  /** As in `messages[0]`, or null. */
  param: string | null;
}

/** Whether a message says that the request will be refused each time. */
export function isPermanent(message: string): boolean {
  return PERMANENT.test(message);
}

/** The faults in a `detail` as FastAPI sends it, a text or a list, or null. */
export function faultInDetail(detail: unknown): ValidationFault | null {
  if (typeof detail === "string") return { message: detail, param: null };
  if (!Array.isArray(detail)) return null;
  const faults = detail.filter(isJsonObject).map(({ loc, msg }) => ({
    path: Array.isArray(loc) ? loc.map(String) : [],
    words: textOf(msg),
  })).filter(({ words }) => words !== "");
  return faults.length === 0 ? null : joined(faults);
}

/** The faults in pydantic's printed form, without the request that they quote, or null. */
export function faultInText(message: string): ValidationFault | null {
  const faults = [...message.matchAll(PRINTED_ERROR)].map((found) => ({
    path: (found[1] ?? "").split(",").map((part) => part.replace(/['" ]/g, "")),
    words: found[2] ?? found[3] ?? "",
  }));
  return faults.length === 0 ? null : joined(faults);
}

function joined(
  faults: readonly { path: readonly string[]; words: string }[],
): ValidationFault {
  const told = faults.slice(0, TOLD_MAX).map(({ path, words }) => {
    const where = pathText(path);
    return where === "" ? words : `${where}: ${words}`;
  });
  return {
    message: [...new Set(told)].join("; "),
    param: pathText(faults[0]?.path ?? []) || null,
  };
}

/** `["body", "messages", "0", "UserMessage", "role"]` is `messages[0].role`: names of classes are left out. */
function pathText(path: readonly string[]): string {
  let text = "";
  for (const part of path) {
    if (part === "body" && text === "") continue;
    if (/^\d+$/.test(part)) text += `[${part}]`;
    else if (/^[a-z_]+$/.test(part)) text += text === "" ? part : `.${part}`;
  }
  return text;
}
