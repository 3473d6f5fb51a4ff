/**
 * Formats values, lists and field paths for error messages to callers. Text from the
 * caller is clipped and stripped of everything that could disturb a terminal or a log.
 */

/** Longer text from the caller is clipped in a message. */
const QUOTED_CHARS_MAX = 64;

/** A longer `param` would not be useful. */
const PATH_CHARS_MAX = 200;

/** Control characters, line separators, and marks that reorder or hide text on a screen. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A member name that may be part of `param`. */
const PLAIN_NAME = /^[A-Za-z_$][A-Za-z0-9_$-]{0,63}$/;

/** One step of a path into a request: a member name or an array index. */
export type PathStep = PropertyKey;

/** Makes text from the caller safe for a message: one line, at most `charsMax` characters, valid Unicode. */
export function clip(
  text: string,
  charsMax: number = QUOTED_CHARS_MAX,
): string {
  const clean = text.slice(0, charsMax * 2).replace(UNPRINTABLE, "");
  const more = clean.length > charsMax ? "…" : "";
  return `${clean.slice(0, charsMax)}${more}`.toWellFormed();
}

/**
 * A path in OpenAI's notation: `["tools", 0, "function", "name"]` becomes
 * `tools[0].function.name`. It ends before the first name that is not a plain
 * identifier.
 */
export function formatPath(path: readonly PathStep[]): string {
  let text = "";
  for (const step of path) {
    const isIndex = typeof step === "number";
    if (!isIndex && !PLAIN_NAME.test(String(step))) break;
    const name = text === "" ? String(step) : `${text}.${String(step)}`;
    const next = isIndex ? `${text}[${step}]` : name;
    if (next.length > PATH_CHARS_MAX) break;
    text = next;
  }
  return text;
}

/** The type of a JSON value with its article, as in "but got an integer". */
export function nameOfType(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (Number.isInteger(value)) return "an integer";
  return TYPE_NAMES[typeof value] ?? "nothing";
}

const TYPE_NAMES: { readonly [type: string]: string } = {
  string: "a string",
  boolean: "a boolean",
  number: "a decimal number",
  object: "an object",
};

const LIST_FORMAT = new Intl.ListFormat("en", { type: "disjunction" });

/** `'a'`, `'a' or 'b'`, `'a', 'b', or 'c'`. */
export function listOfValues(values: readonly unknown[]): string {
  return LIST_FORMAT.format(values.map((value) => `'${String(value)}'`));
}

/** The value at `path`, or undefined if there is none. Reads own members only. */
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
