/**
 * Says why a text is not JSON, without repeating any of it. `JSON.parse` cannot:
 * its messages quote the text, and half of them name no position.
 */

/** What the next character may begin. */
type Expected =
  | "value"
  | "value or ]"
  | "name"
  | "name or }"
  | "colon"
  | "comma or close"
  | "end";

/** Where a text stops being JSON, and why. */
interface Fault {
  at: number;
  why: string;
}

const UNEXPECTED = "unexpected character";
const ENDS_EARLY = "it ends too early";
const ESCAPES = '"\\/bfnrtu';
const HEX = /^[0-9a-fA-F]{4}$/;
const HEX_DIGITS = 4;
const FIRST_PRINTABLE = 0x20;

/**
 * Explains why `JSON.parse` refused `text`, as the end of a sentence, for example
 * `unexpected character at position 7 (line 1, column 8)`. Positions count UTF-16
 * units from 0, lines and columns from 1. Reads the text once, without recursion.
 */
export function explainBadJson(text: string): string {
  const fault = findFault(text);
  if (fault === null) return "it is not valid JSON";
  if (text.trim() === "") return "it is empty";
  const { line, column } = placeOf(text, fault.at);
  return `${fault.why} at position ${fault.at} ` +
    `(line ${line}, column ${column})`;
}

/** Counts instead of splitting: a text may be all line ends. */
function placeOf(text: string, at: number): { line: number; column: number } {
  let line = 1;
  let lineStart = 0;
  for (;;) {
    const next = text.indexOf("\n", lineStart);
    if (next < 0 || next >= at) return { line, column: at - lineStart + 1 };
    line++;
    lineStart = next + 1;
  }
}

/** The first fault of `text`, or null when it is JSON. */
function findFault(text: string): Fault | null {
  const closers: string[] = [];
  let expected: Expected = "value";
  let at = skipSpace(text, 0);
  while (at < text.length) {
    const char = text.charAt(at);
    const isClosing = char === closers.at(-1) &&
      (expected === "comma or close" || expected.endsWith(char));
    if (isClosing) {
      closers.pop();
      expected = afterValue(closers);
      at++;
    } else if (expected.startsWith("value") && (char === "[" || char === "{")) {
      closers.push(char === "[" ? "]" : "}");
      expected = char === "[" ? "value or ]" : "name or }";
      at++;
    } else if (expected.startsWith("value")) {
      const end = endOfScalar(text, at);
      if (typeof end !== "number") return end;
      expected = afterValue(closers);
      at = end;
    } else if (expected.startsWith("name") && char === '"') {
      const end = endOfString(text, at + 1);
      if (typeof end !== "number") return end;
      expected = "colon";
      at = end;
    } else if (expected === "colon" && char === ":") {
      expected = "value";
      at++;
    } else if (expected === "comma or close" && char === ",") {
      expected = closers.at(-1) === "}" ? "name" : "value";
      at++;
    } else {
      return { at, why: UNEXPECTED };
    }
    at = skipSpace(text, at);
  }
  return expected === "end" ? null : { at, why: ENDS_EARLY };
}

function afterValue(closers: readonly string[]): Expected {
  return closers.length === 0 ? "end" : "comma or close";
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (at < text.length && " \t\n\r".includes(text.charAt(at))) at++;
  return at;
}

/** The index after the string, number or word at `at`. */
function endOfScalar(text: string, at: number): number | Fault {
  const char = text.charAt(at);
  if (char === '"') return endOfString(text, at + 1);
  if (char === "t") return endOfWord(text, at, "true");
  if (char === "f") return endOfWord(text, at, "false");
  if (char === "n") return endOfWord(text, at, "null");
  return endOfNumber(text, at);
}

/** The index after the quote that ends the string whose inside begins at `from`. */
function endOfString(text: string, from: number): number | Fault {
  for (let at = from; at < text.length; at++) {
    const char = text.charAt(at);
    if (char === '"') return at + 1;
    if (text.charCodeAt(at) < FIRST_PRINTABLE) {
      return { at, why: "control character in a string" };
    }
    if (char !== "\\") continue;
    at++;
    const escape = text.charAt(at);
    if (escape === "") break;
    const isHex = escape !== "u" ||
      HEX.test(text.slice(at + 1, at + 1 + HEX_DIGITS));
    if (!ESCAPES.includes(escape) || !isHex) {
      return { at, why: "bad escape in a string" };
    }
    if (escape === "u") at += HEX_DIGITS;
  }
  return { at: text.length, why: ENDS_EARLY };
}

function endOfWord(text: string, from: number, word: string): number | Fault {
  for (let index = 0; index < word.length; index++) {
    const at = from + index;
    if (at >= text.length) return { at, why: ENDS_EARLY };
    if (text[at] !== word[index]) return { at, why: UNEXPECTED };
  }
  return from + word.length;
}

/** The grammar of RFC 8259, section 6: sign, whole part, fraction, exponent. */
function endOfNumber(text: string, from: number): number | Fault {
  const wholeAt = text[from] === "-" ? from + 1 : from;
  const whole = text[wholeAt] === "0"
    ? wholeAt + 1
    : endOfDigits(text, wholeAt);
  if (typeof whole !== "number") return whole;
  const fraction = text[whole] === "." ? endOfDigits(text, whole + 1) : whole;
  if (typeof fraction !== "number") return fraction;
  if (text[fraction] !== "e" && text[fraction] !== "E") return fraction;
  const sign = text[fraction + 1];
  const digitsAt = sign === "+" || sign === "-" ? fraction + 2 : fraction + 1;
  return endOfDigits(text, digitsAt);
}

/** The index after one or more digits. */
function endOfDigits(text: string, from: number): number | Fault {
  let at = from;
  while (at < text.length && text.charAt(at) >= "0" && text.charAt(at) <= "9") {
    at++;
  }
  if (at > from) return at;
  return { at, why: at < text.length ? UNEXPECTED : ENDS_EARLY };
}
