/**
 * How many tokens a text may have, without a tokenizer: a gateway for many models
 * has none that fits all, and a real one costs five to ten times as much. What tokenizers
 * have in common decides: words of natural language are one or two tokens, and the
 * less a text looks like that (digits, marks, random letters, rare scripts), the
 * shorter its tokens are. Length alone says little: by bytes over three, base64 is
 * taken for less than half of what it is.
 */

/** Costs are in quarters of a token. */
const QUARTERS = 4;

const WIDE = 0;
const LOWER = 1;
const UPPER = 2;
const DIGIT = 3;
const SPACE = 4;
const LINE = 5;
const MARK = 6;
const CONTROL = 7;

/** What begins a run of its kind. A space goes with the word behind it. */
const START_COST = costs({ [LOWER]: 3, [SPACE]: 1, [CONTROL]: 5 }, 4);
/** What goes on in a run. */
const RUN_COST = costs({
  [LOWER]: 1,
  [UPPER]: 2,
  [DIGIT]: 2,
  [SPACE]: 3,
  [LINE]: 2,
  [MARK]: 3,
}, 5);
/** A letter behind a digit, the third consonant in a row: no word looks like that. */
const NO_WORD_COST = 4;
/** `Th`, as in a name, in camel case or in base64. */
const LOWER_BEHIND_UPPER_COST = 2;
/** `----` and the like: tokenizers know runs of 4 at least. */
const REPEATED_COST = 1;
const CONSONANTS_OF_WORDS_MAX = 2;
/** Runs of blanks are one token up to some length. */
const SPACES_PER_QUARTER = 16;

const ASCII_END = 128;
const KIND_OF_ASCII = kindsOfAscii();
const IS_VOWEL = flagsOf("aeiouyAEIOUY");
const COST_OF_PAGE = costsOfPages();

/** A text is scanned as a whole up to this length; of a longer one, slices are, evenly spread. */
const SCANNED_CHARS_MAX = 32_768;
const SLICE_CHARS = 1_024;
const SLICES = SCANNED_CHARS_MAX / SLICE_CHARS;

/**
 * What a text most likely has, as a share of the most that it may have: what
 * English, French, code and Chinese have. Of Russian, Hindi or Thai an older
 * tokenizer makes twice as many tokens as a newer one: it lies between the two.
 */
const LIKELY_SHARE = 5 / 8;

/**
 * The most tokens that a text may have, rounded up: 1.6 times as many as the
 * tokenizers of OpenAI find in English, 1.1 to 2.5 times in most else. For what
 * must not be too little, such as what is reserved.
 */
export function textTokensMost(text: string): number {
  return Math.ceil(textQuarters(text) / QUARTERS);
}

/**
 * The tokens that a text likely has, rounded up: 0.7 to 1.3 times as many as the
 * tokenizers of OpenAI find, up to 2 in few scripts. For what must be near, such
 * as usage that nobody counted.
 */
export function textTokensLikely(text: string): number {
  return likelyTokens(textQuarters(text));
}

/** The same of quarters that were added up, rounded up. */
export function likelyTokens(quarters: number): number {
  return Math.ceil(quarters * LIKELY_SHARE / QUARTERS);
}

/**
 * Quarters of a token that a text has at most. Takes 3 to 7 ns a character, and no
 * more for a text beyond 32 Ki characters, where a part stands for the whole.
 */
export function textQuarters(text: string): number {
  if (text.length <= SCANNED_CHARS_MAX) return scan(text, 0, text.length);
  let quarters = 0;
  for (let slice = 0; slice < SLICES; slice += 1) {
    const from = Math.floor(text.length * slice / SLICES);
    quarters += scan(text, from, from + SLICE_CHARS);
  }
  return quarters * text.length / SCANNED_CHARS_MAX;
}

/** Quarters of a token in a part of a text. */
function scan(text: string, from: number, to: number): number {
  let quarters = 0;
  let before = WIDE;
  let last = 0;
  let run = 0;
  let consonants = 0;
  for (let at = from; at < to; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit >= ASCII_END) {
      quarters += COST_OF_PAGE[unit >> 8] ?? 0;
      before = WIDE;
      consonants = 0;
      last = unit;
      continue;
    }
    const kind = KIND_OF_ASCII[unit] ?? MARK;
    const isLetter = kind === LOWER || kind === UPPER;
    consonants = isLetter && IS_VOWEL[unit] === 0 ? consonants + 1 : 0;
    const goesOn = kind === before || (kind === LOWER && before === UPPER);
    run = goesOn ? run + 1 : 0;
    if (!goesOn) {
      quarters += kind === LOWER && before === DIGIT
        ? NO_WORD_COST
        : START_COST[kind] ?? 0;
    } else if (unit === last && run > 1) {
      quarters += kind === SPACE && run % SPACES_PER_QUARTER > 0
        ? 0
        : REPEATED_COST;
    } else if (consonants > CONSONANTS_OF_WORDS_MAX) quarters += NO_WORD_COST;
    else if (kind === LOWER && run === 1) {
      quarters += before === UPPER ? LOWER_BEHIND_UPPER_COST : 0;
    } else quarters += RUN_COST[kind] ?? 0;
    before = kind;
    last = unit;
  }
  return quarters;
}

/** A table by kind. */
function costs(
  byKind: Readonly<Record<number, number>>,
  otherwise: number,
): Uint8Array {
  return Uint8Array.from(
    { length: CONTROL + 1 },
    (_, kind) => byKind[kind] ?? otherwise,
  );
}

function kindsOfAscii(): Uint8Array {
  return Uint8Array.from({ length: ASCII_END }, (_, unit) => {
    const char = String.fromCharCode(unit);
    if (/[a-z]/.test(char)) return LOWER;
    if (/[A-Z]/.test(char)) return UPPER;
    if (/[0-9]/.test(char)) return DIGIT;
    if (char === " ") return SPACE;
    if (/\s/.test(char)) return LINE;
    return unit < 0x20 || unit === 0x7f ? CONTROL : MARK;
  });
}

function flagsOf(chars: string): Uint8Array {
  return Uint8Array.from(
    { length: ASCII_END },
    (_, unit) => chars.includes(String.fromCharCode(unit)) ? 1 : 0,
  );
}

/** Costs of UTF-16 units beyond ASCII, by their upper byte. */
function costsOfPages(): Uint8Array {
  /** Symbols, Indic scripts, and halves of what lies beyond, such as emoji. */
  const pages = new Uint8Array(256).fill(8);
  /** Latin with marks, Greek, Hebrew, Arabic. */
  pages.fill(5, 0x00, 0x08);
  /** Cyrillic. */
  pages.fill(4, 0x04, 0x05);
  /** Tibetan to Ethiopic and Khmer: a token for each byte. */
  pages.fill(12, 0x0f, 0x1e);
  /** Kana, Chinese characters. */
  pages.fill(6, 0x30, 0xa0);
  /** Korean. */
  pages.fill(6, 0xac, 0xd8);
  /** Private use. */
  pages.fill(12, 0xe0, 0xf9);
  return pages;
}
