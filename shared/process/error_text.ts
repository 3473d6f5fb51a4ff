/**
 * Formats what error messages quote. A caller's text must not disturb a terminal or a
 * log.
 */

const QUOTED_CHARS_MAX = 64;
const PATH_CHARS_MAX = 200;

/**
 * Control characters, line separators, and marks that reorder or hide text on a screen.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A member name that may be part of `param`. */
const PLAIN_NAME = /^[A-Za-z_$][A-Za-z0-9_$-]{0,63}$/;

/**
 * Makes text from the caller safe for a message: one line, at most `charsMax`
 * characters, valid Unicode.
 */
export function clip(text: string, charsMax = QUOTED_CHARS_MAX): string {
  const clean = text.slice(0, charsMax * 2).replace(UNPRINTABLE, "");
  const more = clean.length > charsMax ? "…" : "";
  return `${clean.slice(0, charsMax)}${more}`.toWellFormed();
}

/**
 * `["tools", 0, "name"]` becomes `tools[0].name`. Ends before the first name that is no
 * plain identifier.
 */
export function formatPath(path: readonly PropertyKey[]): string {
  let text = "";
  for (const step of path) {
    const name = String(step);
    const isIndex = typeof step === "number";
    if (!isIndex && !PLAIN_NAME.test(name)) break;
    const next = isIndex ? `[${name}]` : text === "" ? name : `.${name}`;
    if (text.length + next.length > PATH_CHARS_MAX) break;
    text += next;
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

/**
 * `, did you mean 'vision'?` for `visoin`: the first known word that begins like this,
 * or differs by one typing mistake.
 */
export function didYouMean(name: string, names: Iterable<string>): string {
  const word = name.toLowerCase();
  const match = [...names].find((name) => {
    const other = name.toLowerCase();
    return other.startsWith(word) || isMistyped(word, other);
  });
  const isNear = word !== "" && match !== undefined;
  return isNear ? `, did you mean '${match}'?` : "";
}

/** Whether one letter was added, omitted, replaced, or exchanged with the next. */
function isMistyped(word: string, other: string): boolean {
  let same = 0;
  while (same < word.length && word[same] === other[same]) same++;
  const [rest, otherRest] = [word.slice(same), other.slice(same)];
  const swap = rest.slice(1, 2) + rest.slice(0, 1) + rest.slice(2);
  return [rest.slice(1), swap].includes(otherRest) ||
    [rest, rest.slice(1)].includes(otherRest.slice(1));
}

/** The value at `path`, or undefined if there is none. Reads own members only. */
export function valueAt(root: unknown, path: readonly PropertyKey[]): unknown {
  let value = root;
  for (const step of path) {
    if (typeof value !== "object" || value === null) return undefined;
    value = Object.getOwnPropertyDescriptor(value, step)?.value;
  }
  return value;
}

/** Whether `value` is a JSON object: not null, not an array. */
export const isJsonObject = (
  value: unknown,
): value is { [key: string]: unknown } =>
  typeof value === "object" && value !== null && !Array.isArray(value);
