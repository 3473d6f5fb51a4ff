/**
 * Estimates the tokens of a text without a tokenizer: none fits all models of a
 * gateway, and a real one costs five to ten times as much. Each character counts by
 * its kind: lower-case letters little; digits, marks and capitals, which make up
 * base64, much. A third of the bytes would be less than half of the tokens of base64.
 */

/** The most tokens of one character. A space is part of the following word. */
const LOWER = 0.32;
const SPACE = 0.3;
const LINE = 0.6;
const CAPITAL = 1.05;
const DIGIT = 0.9;
const MARK = 0.8;
const CONTROL = 1.25;
/** A repeated character, as in an indent or a ruled line. */
const REPEATED = 1 / 8;

const COSTS = costsOfCharacters();

/** A text up to this length is scanned completely; of a longer one, only evenly spread slices. */
const SCANNED_CHARS_MAX = 32_768;
const SLICE_CHARS = 1_024;
const SLICES = SCANNED_CHARS_MAX / SLICE_CHARS;

/**
 * The ratio of the likely tokens of a text to the most it may have: right for English,
 * French, code and Chinese. For Russian, Hindi or Thai, older tokenizers need twice
 * as many tokens as newer ones; the estimate lies between the two.
 */
const LIKELY_SHARE = 5 / 8;

/**
 * The most tokens that a text may have, rounded up: 1.6 times the count of OpenAI's
 * tokenizers for English, 1 to 2.5 times for most other texts, but 0.6 times for
 * random lower-case letters. For reservations, which should not be too small.
 */
export function textTokensMost(text: string): number {
  return Math.ceil(tokensOf(text));
}

/**
 * The likely tokens of a text, rounded up: 0.7 to 1.3 times the count of OpenAI's
 * tokenizers, up to 2 times for a few scripts. For answers without usage.
 */
export function textTokensLikely(text: string): number {
  return Math.ceil(tokensOf(text) * LIKELY_SHARE);
}

/** Beyond 32 Ki characters, the result is extrapolated from the scanned slices. */
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

/** By UTF-16 unit: ASCII by its kind, the others by their block. */
function costsOfCharacters(): Float32Array {
  /** Symbols, Indic scripts, and surrogates, as in emoji. */
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
