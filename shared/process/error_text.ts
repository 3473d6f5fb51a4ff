/** Formats what error messages quote. A caller's text must not disturb a terminal or a log. */

/** Longer text from the caller is clipped in a message. */
const QUOTED_CHARS_MAX = 64;

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

/** `["tools", 0, "name"]` becomes `tools[0].name`. Ends before the first name that is no plain identifier. */
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

/** `, did you mean 'vision'?` for `visoin`: the nearest known word; nothing when none is near. */
export function didYouMean(given: string, known: Iterable<string>): string {
  const word = given.slice(0, MISSPELLED_CHARS_MAX).toLowerCase();
  const ranked = Array.from(known, (name) => {
    const other = name.toLowerCase();
    const isBeginning = word !== "" && other.startsWith(word);
    return { name, changes: isBeginning ? 1 : changesBetween(word, other) };
  }).sort((a, b) => a.changes - b.changes);
  const [nearest] = ranked;
  const most = 1 + Math.floor(word.length / 4);
  return nearest === undefined || nearest.changes > most
    ? ""
    : `, did you mean '${nearest.name}'?`;
}

const MISSPELLED_CHARS_MAX = 200;

/** How many letters have to be added, removed or replaced (Levenshtein's distance). */
function changesBetween(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, at) => at);
  for (const [above, letter] of Array.from(from).entries()) {
    const next = [above + 1];
    for (const [at, other] of Array.from(to).entries()) {
      const [replaced = 0, removed = 0] = row.slice(at, at + 2);
      const isSame = letter === other;
      const added = next[at] ?? 0;
      next.push(
        Math.min(replaced + (isSame ? 0 : 1), removed + 1, added + 1),
      );
    }
    row = next;
  }
  return row[to.length] ?? 0;
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
