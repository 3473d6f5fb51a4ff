/**
 * Words for error messages: how a value, a list and a field path are written in
 * a sentence that goes back to the caller. Whatever came from the caller is cut
 * short and stripped of everything that could disturb a terminal or a log.
 */

/** Caller text longer than this is cut in a message. */
const QUOTED_CHARS_MAX = 64;

/** A `param` longer than this helps nobody. */
const PATH_CHARS_MAX = 200;

/** Controls, separators of lines, and marks that reorder or hide text on a screen. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A member name that may be repeated in `param`. Others are the caller's own. */
const PLAIN_NAME = /^[A-Za-z_$][A-Za-z0-9_$-]{0,63}$/;

/** One step of a path into a request: a member name or an array index. */
export type PathStep = PropertyKey;

/** Caller text made fit for a message: one line, at most `charsMax` characters, valid Unicode. */
export function clip(
  text: string,
  charsMax: number = QUOTED_CHARS_MAX,
): string {
  const clean = text.slice(0, charsMax * 2).replace(UNPRINTABLE, "");
  const short = clean.length <= charsMax
    ? clean
    : `${clean.slice(0, charsMax)}…`;
  return short.toWellFormed();
}

/**
 * A path as OpenAI writes it: `["tools", 0, "function", "name"]` becomes
 * `tools[0].function.name`. It ends before the first name that only the caller
 * knows (a property in a JSON schema, say), so it is never caller text.
 */
export function formatPath(path: readonly PathStep[]): string {
  let text = "";
  for (const step of path) {
    const next = typeof step === "number"
      ? `${text}[${step}]`
      : typeof step === "string" && PLAIN_NAME.test(step)
      ? (text === "" ? step : `${text}.${step}`)
      : null;
    if (next === null || next.length > PATH_CHARS_MAX) break;
    text = next;
  }
  return text;
}

/** The kind of a JSON value with its article, as in "but got an integer instead". */
export function nameOfType(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  switch (typeof value) {
    case "string":
      return "a string";
    case "boolean":
      return "a boolean";
    case "number":
      return Number.isInteger(value) ? "an integer" : "a decimal number";
    case "object":
      return "an object";
    default:
      return "nothing";
  }
}

/** `'a'`, `'a' and 'b'`, `'a', 'b', and 'c'`. */
export function listOfValues(
  values: readonly unknown[],
  conjunction: "and" | "or",
): string {
  const quoted = values.map((value) => `'${String(value)}'`);
  const last = quoted.pop() ?? "";
  if (quoted.length === 0) return last;
  if (quoted.length === 1) return `${quoted[0]} ${conjunction} ${last}`;
  return `${quoted.join(", ")}, ${conjunction} ${last}`;
}

/** The value that `path` leads to, or undefined where it leads nowhere. Reads own members only. */
export function valueAt(root: unknown, path: readonly PathStep[]): unknown {
  let value = root;
  for (const step of path) {
    if (typeof value !== "object" || value === null) return undefined;
    value = Object.getOwnPropertyDescriptor(value, step)?.value;
  }
  return value;
}

/** Whether `value` is a JSON object: not null, not an array. */
export function isJsonObject(
  value: unknown,
): value is { [key: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
