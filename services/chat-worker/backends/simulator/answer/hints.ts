import type { ValueHints } from "../schema/context.ts";
import { wordsOf } from "../language/words.ts";

/** What a message says that could be an argument. */
export interface MessageFacts {
  /** The message without white space around it. */
  text: string;
  /** Names such as `New York`, in order. */
  names: readonly string[];
  /** What stands after a word such as `from`. */
  after: ReadonlyMap<string, string>;
  quoted: readonly string[];
  numbers: readonly number[];
  emails: readonly string[];
  urls: readonly string[];
  dates: readonly string[];
  times: readonly string[];
  expressions: readonly string[];
}

/** Only the beginning of a long message is read for values. */
const CHARS_MAX = 4000;
const FACTS_MAX = 20;
const NAME_CHARS_MAX = 80;

const NAME = /\p{Lu}[\p{L}\p{M}’'-]*(?: \p{Lu}[\p{L}\p{M}’'-]*){0,3}/gu;
const QUOTED =
  /"([^"\n]{1,200})"|“([^”\n]{1,200})”|(?<![\p{L}\p{N}])'([^'\n]{1,200})'(?![\p{L}\p{N}])/gu;
const NUMBER = /(?<![\p{L}\p{N}.,:/-])-?\d{1,15}(?:\.\d{1,9})?(?![\p{N}:/-])/gu;
const EMAIL = /[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}/g;
const URL_TEXT = /https?:\/\/[^\s<>"')]{1,500}/g;
const DATE = /\b\d{4}-\d{2}-\d{2}\b/g;
const DAY =
  /\b(?:today|tomorrow|tonight|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b/gi;
const TIME = /\b(?:[01]?\d|2[0-3]):[0-5]\d\b/g;
const EXPRESSION = /[\d(][\d\s.()]{0,60}(?:[-+*/^%×÷][\d\s.()]{1,60}){1,20}/g;
const AFTER =
  /\b(in|at|near|for|from|to|about|of)\s+(?=((?:the\s+)?[\p{L}’'-]+(?:\s+[\p{L}’'-]+){0,2}))/giu;

/** Words that end what stands after a preposition, or begin a sentence without being a name. */
const PLAIN_WORDS = new Set(
  ("a an and are as at be by can celsius could day did do does fahrenheit find for from get give " +
    "hello hey hi how i if in is it list make me my near next now of on or our please show tell that the " +
    "there these this time to today tomorrow tonight use using was we week what what's when where which " +
    "who why will with would you your")
    .split(" "),
);

/** Reads the values in a message, such as the name, number and date of `Book Ada 2 seats on 2026-03-14`. */
export function readFacts(message: string): MessageFacts {
  const text = message.slice(0, CHARS_MAX).trim();
  return {
    text,
    names: namesIn(text),
    after: wordsAfter(text),
    quoted: all(QUOTED, text).map((found) =>
      found[1] ?? found[2] ?? found[3] ?? ""
    ),
    numbers: matches(NUMBER, text).map(Number),
    emails: matches(EMAIL, text),
    urls: matches(URL_TEXT, text),
    dates: [...matches(DATE, text), ...matches(DAY, text)],
    times: matches(TIME, text),
    expressions: matches(EXPRESSION, text.replace(DATE, ""))
      .map((found) => found.trim()),
  };
}

/** Makes the hints of one value. `names`, where given, are the only names it may use. */
export function createHints(
  facts: MessageFacts,
  names: readonly string[] = facts.names,
): ValueHints {
  const taken = new Set<string | number>();
  const words = new Set(wordsOf(facts.text));
  const unused = <T extends string | number>(values: readonly T[]) =>
    values.filter((value) => !taken.has(value));
  return {
    texts: (label, description) =>
      unused(textsFor(label, description, { ...facts, names })),
    numbers: () => unused(facts.numbers),
    mentions: (text) => {
      const parts = wordsOf(text);
      return parts.length > 0 && parts.every((part) => words.has(part));
    },
    take: (value) => {
      taken.add(value);
    },
  };
}

/** Whether a property of this name is about a place or a person, so that it wants a name. */
export function wantsName(label: string): boolean {
  return NAME_LABEL.test(label);
}

const NAME_LABEL =
  /\b(city|cities|town|location|place|country|region|state|destination|origin|from|to|departure|arrival|name|person|user|customer|author|company|title|recipient|capital|participants?|attendees?|people|names|guests?|members?|players?)\b/;
const START_LABEL = /\b(origin|from|source|start|departure)\b/;
const GOAL_LABEL = /\b(destination|to|target|end|arrival|recipient)\b/;

const TEXT_LABEL =
  /\b(query|question|q|search|prompt|input|request|term|keywords?|message|text|content|body|topic|subject)\b/;

type Fact = readonly [RegExp, (facts: MessageFacts) => readonly string[]];

/** Whose label matches first says what fits. */
const BY_LABEL: readonly Fact[] = [
  [/\be ?mail\b/, (facts) => facts.emails],
  [/\b(url|uri|link|website|page)\b/, (facts) => facts.urls],
  [/\b(date|day)\b/, (facts) => facts.dates],
  [/\btime\b/, (facts) => facts.times],
  [/\b(expression|formula|equation|calculation)\b/, (
    facts,
  ) => [...facts.expressions, facts.text]],
  [START_LABEL, (facts) => [...prepositions(facts, "from"), ...facts.names]],
  [GOAL_LABEL, (facts) => [...prepositions(facts, "to"), ...facts.names]],
  [NAME_LABEL, (facts) => [
    ...facts.names,
    ...facts.quoted,
    ...prepositions(facts, "in", "at", "for", "near", "of"),
  ]],
  [TEXT_LABEL, (facts) => [
    ...facts.quoted,
    ...prepositions(facts, "about", "for"),
    facts.text,
  ]],
];

function textsFor(
  label: string,
  description: string,
  facts: MessageFacts,
): readonly string[] {
  const byName = BY_LABEL.find(([pattern]) => pattern.test(label));
  if (byName) return nonEmpty(byName[1](facts));
  const about = description.toLowerCase();
  const byDescription = BY_LABEL.find(([pattern]) => pattern.test(about));
  return nonEmpty([...facts.quoted, ...byDescription?.[1](facts) ?? []]);
}

function prepositions(
  facts: MessageFacts,
  ...words: readonly string[]
): string[] {
  return words.flatMap((word) => facts.after.get(word) ?? []);
}

function nonEmpty(texts: readonly string[]): string[] {
  return [...new Set(texts)].filter((text) => text !== "");
}

function namesIn(text: string): string[] {
  const names = all(NAME, text).map((found) => {
    const words = found[0].split(" ");
    // A sentence begins with a capital too: "Show Berlin", "What".
    while (words[0] && PLAIN_WORDS.has(words[0].toLowerCase())) words.shift();
    const name = words.join(" ");
    const isAlone = words.length === 1 &&
      words.length === found[0].split(" ").length;
    return isAlone && beginsSentence(text, found.index) ? "" : name;
  });
  return nonEmpty(names);
}

/** The first word of a sentence is a name only where it is all there is to say, or where another name follows. */
function beginsSentence(text: string, at: number): boolean {
  if (!/(^|[.!?\n]\s*)$/.test(text.slice(Math.max(0, at - 3), at))) {
    return false;
  }
  const rest = text.slice(at, at + NAME_CHARS_MAX);
  return /^\S+\s+\S/.test(rest) && !/^\S+(,| and) \p{Lu}/u.test(rest);
}

function wordsAfter(text: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const match of all(AFTER, text)) {
    const words = (match[2] ?? "").split(/\s+/);
    if (words[0]?.toLowerCase() === "the") words.shift();
    const end = words.findIndex((word) => PLAIN_WORDS.has(word.toLowerCase()));
    const phrase = (end < 0 ? words : words.slice(0, end)).join(" ");
    const key = (match[1] ?? "").toLowerCase();
    if (phrase !== "" && !found.has(key)) found.set(key, phrase);
  }
  return found;
}

function all(pattern: RegExp, text: string): RegExpExecArray[] {
  return [...text.matchAll(pattern)].slice(0, FACTS_MAX);
}

function matches(pattern: RegExp, text: string): string[] {
  return [...new Set(all(pattern, text).map((found) => found[0]))];
}
