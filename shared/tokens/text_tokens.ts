/**
 * Estimates the tokens of a text without a tokenizer: none fits all the models of a
 * gateway, and a real one costs five to ten times as much. Each character counts by
 * its kind: lower-case letters little; digits, marks and capitals, which make up
 * base64 and the like, much. A third of the bytes would be less than half of what
 * base64 has.
 */

/** Tokens of a character at most. A space goes with the word behind it. */
const LOWER = 0.32;
const SPACE = 0.3;
const LINE = 0.6;
const CAPITAL = 1.05;
const DIGIT = 0.9;
const MARK = 0.8;
const CONTROL = 1.25;
/** The same character again, as in an indent or a ruled line. */
const REPEATED = 1 / 8;

const COSTS = costsOfCharacters();

/** A text up to this length is scanned as a whole; of a longer one, evenly spread slices are. */
const SCANNED_CHARS_MAX = 32_768;
const SLICE_CHARS = 1_024;
const SLICES = SCANNED_CHARS_MAX / SLICE_CHARS;

/**
 * What a text likely has, as a share of the most that it may have: right for English,
 * French, code and Chinese. For Russian, Hindi or Thai, older tokenizers need twice
 * as many tokens as newer ones; the estimate lies between the two.
 */
const LIKELY_SHARE = 5 / 8;

/**
 * The most tokens that a text may have, rounded up: 1.6 times as many as OpenAI's
 * tokenizers find in English, 1 to 2.5 times in most else, but 0.6 times in random
 * lower-case letters. For reservations, which should not be too small.
 */
export function textTokensMost(text: string): number {
  return Math.ceil(tokensOf(text));
}

/**
 * The tokens that a text likely has, rounded up: 0.7 to 1.3 times as many as OpenAI's
 * tokenizers find, up to 2 in a few scripts. For usage that nobody counted.
 */
export function textTokensLikely(text: string): number {
  return Math.ceil(tokensOf(text) * LIKELY_SHARE);
}

/** Beyond 32 Ki characters, the scanned slices stand for the whole. */
function tokensOf(text: string): number {
  if (text.length <= SCANNED_CHARS_MAX) return scan(text, 0, text.length);
  let tokens = 0;
  for (let slice = 0; slice < SLICES; slice += 1) {
    const from = Math.floor(text.length * slice / SLICES);
    tokens += scan(text, from, from + SLICE_CHARS);
  }
  return tokens * text.length / SCANNED_CHARS_MAX;
}

function scan(text: string, from: number, to: number): number {
  let tokens = 0;
  let last = -1;
  for (let at = from; at < to; at += 1) {
    const unit = text.charCodeAt(at);
    const cost = COSTS[unit] ?? 0;
    tokens += unit === last && cost < CONTROL ? REPEATED : cost;
    last = unit;
  }
  return tokens;
}

/** By UTF-16 unit: ASCII by its kind, the others by their page. */
function costsOfCharacters(): Float32Array {
  /** Symbols, Indic scripts, and halves of what lies beyond, such as emoji. */
  const costs = new Float32Array(0x1_0000).fill(2);
  /** Latin with marks, Greek, Hebrew, Arabic. */
  costs.fill(1.25, 0x0080, 0x0800);
  /** Cyrillic. */
  costs.fill(1, 0x0400, 0x0500);
  /** Tibetan to Ethiopic and Khmer: a token for each byte. */
  costs.fill(3, 0x0f00, 0x1e00);
  /** Kana, Chinese characters. */
  costs.fill(1.5, 0x3000, 0xa000);
  /** Korean. */
  costs.fill(1.5, 0xac00, 0xd800);
  /** Private use. */
  costs.fill(3, 0xe000, 0xf900);
  for (let unit = 0; unit < 0x80; unit += 1) {
    costs[unit] = costOfAscii(String.fromCharCode(unit));
  }
  return costs;
}

function costOfAscii(char: string): number {
  if (/[a-z]/.test(char)) return LOWER;
  if (/[A-Z]/.test(char)) return CAPITAL;
  if (/[0-9]/.test(char)) return DIGIT;
  if (char === " ") return SPACE;
  if (/\s/.test(char)) return LINE;
  return /[!-~]/.test(char) ? MARK : CONTROL;
}
