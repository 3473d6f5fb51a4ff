/**
 * Finds the members of the object that a JSON text is, and replaces their values where
 * they stand: everything else of the text stays as it is, to the byte. Numbers such as
 * `1.0` or `12345678901234567890`, escapes and the order of members would not survive
 * that they are parsed and written again.
 */
import { endOfString } from "../openai/json_body.ts";

/** Where something stands in a text: from `from` on, and before `to`. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** A member of an object: its name as JSON means it, and where its value stands. */
export interface Member extends Span {
  readonly name: string;
}

/** A value that is to stand in place of another. */
export interface Edit extends Span {
  /** JSON. */
  readonly text: string;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const OPENING_BRACKET = 0x5b;
const CLOSING_BRACKET = 0x5d;
const OPENING_BRACE = 0x7b;
const CLOSING_BRACE = 0x7d;

/**
 * The members of the object that a text is, in their order, also those with the same
 * name; null if it is no object, or breaks off. Of valid JSON it finds exactly the
 * members; it does not check the values.
 */
export function membersOf(text: string): Member[] | null {
  let at = afterSpace(text, 0);
  if (text.charCodeAt(at) !== OPENING_BRACE) return null;
  const members: Member[] = [];
  at = afterSpace(text, at + 1);
  if (text.charCodeAt(at) === CLOSING_BRACE) return members;
  for (;;) {
    if (text.charCodeAt(at) !== QUOTE) return null;
    const end = endOfString(text, at + 1);
    const name = nameIn(text.slice(at, end + 1));
    at = afterSpace(text, end + 1);
    if (name === null || text.charCodeAt(at) !== COLON) return null;
    const from = afterSpace(text, at + 1);
    const to = endOfValue(text, from);
    if (to < 0) return null;
    members.push({ name, from, to });
    at = afterSpace(text, to);
    const next = text.charCodeAt(at);
    if (next === CLOSING_BRACE) return members;
    if (next !== COMMA) return null;
    at = afterSpace(text, at + 1);
  }
}

/** Where the elements of the array at `from` stand; null if it is none. */
export function elementsOf(text: string, from: number): Span[] | null {
  if (text.charCodeAt(from) !== OPENING_BRACKET) return null;
  const elements: Span[] = [];
  let at = afterSpace(text, from + 1);
  if (text.charCodeAt(at) === CLOSING_BRACKET) return elements;
  for (;;) {
    const to = endOfValue(text, at);
    if (to < 0) return null;
    elements.push({ from: at, to });
    at = afterSpace(text, to);
    const next = text.charCodeAt(at);
    if (next === CLOSING_BRACKET) return elements;
    if (next !== COMMA) return null;
    at = afterSpace(text, at + 1);
  }
}

/** The text with these values in place of those that stood there. */
export function replaced(text: string, edits: readonly Edit[]): string {
  const inOrder = [...edits].sort((a, b) => a.from - b.from);
  let result = "";
  let at = 0;
  for (const { from, to, text: value } of inOrder) {
    result += text.slice(at, from) + value;
    at = to;
  }
  return result + text.slice(at);
}

/** The text of an object without its members of these names, and no other change. */
export function withoutMembers(text: string, names: readonly string[]): string {
  let rest = text;
  for (;;) {
    const members = membersOf(rest) ?? [];
    const index = members.findIndex(({ name }) => names.includes(name));
    const member = members[index];
    if (member === undefined) return rest;
    const before = members[index - 1];
    const from = before?.to ?? rest.indexOf("{") + 1;
    // The comma before it goes or, of the first one, the comma after it.
    const after = afterSpace(rest, member.to);
    const isFirst = before === undefined && rest.charCodeAt(after) === COMMA;
    rest = rest.slice(0, from) + rest.slice(isFirst ? after + 1 : member.to);
  }
}

/** The name that a string in JSON means; null if it is malformed. */
function nameIn(json: string): string | null {
  if (!json.includes("\\")) return json.slice(1, -1);
  try {
    return String(JSON.parse(json));
  } catch {
    return null;
  }
}

/** The index of the first character from `at` on that is no space of JSON. */
export function afterSpace(text: string, at: number): number {
  for (;; at++) {
    const code = text.charCodeAt(at);
    const isSpace = code === 0x20 || code === 0x0a || code === 0x0d ||
      code === 0x09;
    if (!isSpace) return at;
  }
}

/** The index after the value at `from`, or -1 if there is none or it breaks off. */
function endOfValue(text: string, from: number): number {
  const first = text.charCodeAt(from);
  if (first === QUOTE) return closed(text, endOfString(text, from + 1));
  if (first === OPENING_BRACE || first === OPENING_BRACKET) {
    return endOfContainer(text, from);
  }
  let at = from;
  for (; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === COMMA || code === CLOSING_BRACE || code === CLOSING_BRACKET) {
      break;
    }
  }
  while (at > from && text.charCodeAt(at - 1) <= 0x20) at--;
  return at === from ? -1 : at;
}

/** The index after this one of a closing character, or -1 if the text has ended. */
const closed = (text: string, at: number) => at < text.length ? at + 1 : -1;

/** The index after the object or array at `from`, or -1 if it breaks off. */
function endOfContainer(text: string, from: number): number {
  const numbers = new Numbers(text);
  let depth = 0;
  for (let at = from; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case QUOTE:
        at = endOfString(text, at + 1);
        break;
      case OPENING_BRACE:
        depth++;
        break;
      case OPENING_BRACKET:
        depth++;
        // A vector: nothing in it needs a look, and it may have 20,000 characters.
        if (isDigit(text.charCodeAt(afterSpace(text, at + 1)))) {
          at = numbers.endFrom(at + 1) - 1;
        }
        break;
      case CLOSING_BRACE:
      case CLOSING_BRACKET:
        depth--;
        if (depth === 0) return at + 1;
    }
  }
  return -1;
}

const isDigit = (code: number) =>
  code === MINUS || (code >= ZERO && code <= NINE);

/** Ends of lists of numbers in a text, from its beginning on. */
class Numbers {
  readonly #close: NextOf;
  readonly #others: readonly NextOf[];

  constructor(text: string) {
    this.#close = new NextOf(text, "]");
    this.#others = ['"', "[", "{"].map((what) => new NextOf(text, what));
  }

  /**
   * The index of what ends the list that begins before `from`: its bracket or, if it
   * has other values, the first of them. The length of the text if it breaks off.
   */
  endFrom(from: number): number {
    const others = this.#others.map((other) => other.from(from));
    return Math.min(this.#close.from(from), ...others);
  }
}

/** Where a character stands: each place is searched once, natively. */
class NextOf {
  readonly #text: string;
  readonly #what: string;
  #at = -1;

  constructor(text: string, what: string) {
    this.#text = text;
    this.#what = what;
  }

  /** The first index from `from` on, which only grows; else the length of the text. */
  from(from: number): number {
    if (this.#at < from) {
      const at = this.#text.indexOf(this.#what, from);
      this.#at = at < 0 ? this.#text.length : at;
    }
    return this.#at;
  }
}
