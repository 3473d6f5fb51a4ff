import { integerBetween } from "../sampling/random.ts";
import { type GeneratorContext, labelOf, type Place } from "./context.ts";
import { formatOf } from "./formats.ts";
import { codePointLength } from "./json.ts";
import { parsePattern } from "./pattern.ts";
import { writePattern } from "./pattern_text.ts";

/** Text of a property whose name says nothing. */
const PROSE_TOKENS = 14;
/** Properties that hold a text of some length, by the words of their names. */
const LONG_WORDS =
  /\b(text|content|body|summary|description|answer|reply|reason(ing)?|explanation|message|steps?|notes?|comment|paragraph|story)\b/;
const LONG_PROSE_TOKENS = 40;
/** Longer than this, a text is made of repeats, and beyond the second it is given up. */
const PROSE_TOKENS_MAX = 400;
const CHARS_MAX = 65_536;
const PATTERN_TRIES = 6;
/** What a token of the language model costs, in steps of the budget. */
const TOKEN_STEPS = 15;

/** What a property with one of these words in its name holds when the request does not say. */
const EXAMPLES: readonly (readonly [RegExp, string])[] = [
  [/\b(city|town|location|place|destination|capital)\b/, "Lisbon"],
  [/\borigin\b/, "Berlin"],
  [/\bcountry\b/, "Portugal"],
  [/\b(first name|given name)\b/, "Ada"],
  [/\b(last name|family name|surname)\b/, "Moreau"],
  [/\b(name|person|author|customer|user)\b/, "Ada Moreau"],
  [/\be ?mail\b/, "ada@example.com"],
  [/\b(url|uri|link|website)\b/, "https://example.com/"],
  [/\b(date|day)\b/, "2026-03-14"],
  [/\btime\b/, "09:30"],
  [/\bphone\b/, "+351 21 000 0000"],
  [/\b(language|lang|locale)\b/, "en"],
  [/\b(currency)\b/, "EUR"],
  [/\b(timezone|time zone)\b/, "Europe/Lisbon"],
  [/\b(colou?r)\b/, "blue"],
  [/\b(id|identifier|key|code)\b/, "a1b2c3"],
  [/\b(unit|units)\b/, "celsius"],
];

/** Texts to try for a schema, best first: those of the request, then new ones. */
export function* stringCandidates(
  keywords: { [keyword: string]: unknown },
  place: Place,
  context: GeneratorContext,
): Generator<string> {
  const label = labelOf(place.name);
  const { description, format, pattern } = keywords;
  const about = typeof description === "string" ? description : "";
  yield* context.hints.texts(label, about);
  const min = lengthOf(keywords.minLength) ?? 0;
  const max = lengthOf(keywords.maxLength) ?? Infinity;
  if (min > CHARS_MAX) return;
  if (typeof pattern === "string") {
    yield* patternTexts(pattern, min, max, context);
  }
  const known = formatOf(format);
  if (known) yield known.write(context.random);
  else if (pattern === undefined) yield* plainTexts(label, min, max, context);
  // Nothing above fitted, so the schema asks for something odd: the plainest text there is.
  yield fitLength("a", min, max);
  yield "";
}

function* patternTexts(
  pattern: string,
  min: number,
  max: number,
  context: GeneratorContext,
): Generator<string> {
  const node = parsePattern(pattern);
  if (node === undefined) return;
  const extraMost = Math.min(Math.max(min, 3), max);
  for (let attempt = 0; attempt < PATTERN_TRIES; attempt++) {
    const extraMax = attempt % 2 === 0
      ? 3
      : integerBetween(context.random, 0, 2 * extraMost);
    const text = writePattern(node, { ...context, extraMax });
    if (text === undefined) continue;
    yield text;
    // An open end, as in `^[a-z]`, may be as long as it must be.
    if (codePointLength(text) < min) yield fitLength(text, min, max);
  }
  const long = { ...context, extraMax: min };
  for (let attempt = 0; attempt < PATTERN_TRIES; attempt++) {
    const text = writePattern(node, long);
    if (text !== undefined) yield text;
  }
}

function* plainTexts(
  label: string,
  min: number,
  max: number,
  context: GeneratorContext,
): Generator<string> {
  const example = EXAMPLES.find(([words]) => words.test(label));
  if (example) yield example[1];
  const usual = LONG_WORDS.test(label) ? LONG_PROSE_TOKENS : PROSE_TOKENS;
  // A token is about four characters.
  const tokens = Math.min(
    Math.max(usual, Math.ceil(min / 3)),
    PROSE_TOKENS_MAX,
  );
  if (!context.budget.spend(tokens * TOKEN_STEPS)) return;
  yield fitLength(context.writeProse(tokens), min, max);
}

/** The text cut or repeated to a length in code points between `min` and `max`. */
function fitLength(text: string, min: number, max: number): string {
  let characters = [...text];
  if (characters.length > max) {
    characters = [...characters.slice(0, max).join("").trimEnd()];
  }
  const source = characters.length === 0 ? ["a"] : characters;
  for (let at = 0; characters.length < min; at++) {
    characters.push(source[at % source.length] ?? "a");
  }
  return characters.join("");
}

function lengthOf(value: unknown): number | undefined {
  return typeof value === "number" && value >= 0 ? value : undefined;
}
