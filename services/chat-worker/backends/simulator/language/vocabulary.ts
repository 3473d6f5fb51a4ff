import type { CharacterTable } from "./characters.ts";
import { pretokenEnd } from "./pretokens.ts";

/** The token before every answer. Never visible. */
export const START_TOKEN = 0;
/** The token that ends an answer. Never visible, never counted. */
export const END_TOKEN = 1;
/** The 256 tokens of single bytes begin here. The first 128 of them are the ASCII characters. */
export const BYTE_TOKENS_FROM = 2;
const TEXT_TOKENS_FROM = BYTE_TOKENS_FROM + 256;

/** Pieces of words, for words the corpus does not have. 1,500 bring English prose to about 0.75 words a token. */
const PIECES_MAX = 1500;
const PIECE_UNITS_MIN = 2;
const PIECE_UNITS_MAX = 5;
/** Shorter words are tokens already or are spelt in two. */
const PIECE_WORD_UNITS_MIN = 4;
const ONLY_LETTERS = /^ ?\p{L}+$/u;
const ASCII_MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
const INDENTS = ["  ", "    ", "        ", "\n\n", "\t\t"];

/** The tokens a model knows, by number. */
export interface Vocabulary {
  /** One more than the highest token. Below 65,536. */
  readonly size: number;
  /** What a token says. Empty for START, END and the bytes from 0x80, which say nothing alone. */
  readonly texts: readonly string[];
  /** The token of exactly this text. */
  tokenOf(text: string): number | undefined;
}

/**
 * Collects the vocabulary of a corpus: all 256 bytes, so that nothing is out of
 * vocabulary; every pretoken of the corpus; its most useful pieces of words;
 * two-digit numbers, indents, and punctuation after a space.
 */
export function buildVocabulary(
  passages: readonly string[],
  characters: CharacterTable,
): Vocabulary {
  const counts = countPretokens(passages, characters);
  const texts = ["", ""];
  for (let byte = 0; byte < 256; byte++) {
    texts.push(byte < 0x80 ? String.fromCharCode(byte) : "");
  }
  const extras = [...counts.keys(), ...bestPieces(counts), ...fixedTexts()];
  const known = new Set(texts);
  for (const text of extras) {
    if (known.has(text)) continue;
    known.add(text);
    texts.push(text);
  }
  const tokens = new Map<string, number>();
  texts.forEach((text, token) => {
    if (text !== "") tokens.set(text, token);
  });
  return {
    size: texts.length,
    texts,
    tokenOf: (text) => tokens.get(text),
  };
}

/** Whether this token is one byte of 0x80 or more: part of a character. */
export function isPartialToken(token: number): boolean {
  return token >= BYTE_TOKENS_FROM + 0x80 && token < TEXT_TOKENS_FROM;
}

function countPretokens(
  passages: readonly string[],
  characters: CharacterTable,
): Map<string, number> {
  const counts = new Map<string, number>();
  for (const passage of passages) {
    let start = 0;
    while (start < passage.length) {
      const end = pretokenEnd(passage, start, characters);
      const pretoken = passage.slice(start, end);
      counts.set(pretoken, (counts.get(pretoken) ?? 0) + 1);
      start = end;
    }
  }
  return counts;
}

/** The pieces that save most tokens: how often they occur times the characters they join. */
function bestPieces(counts: ReadonlyMap<string, number>): string[] {
  const savings = new Map<string, number>();
  for (const [word, count] of counts) {
    if (word.length < PIECE_WORD_UNITS_MIN || !ONLY_LETTERS.test(word)) {
      continue;
    }
    // A common word is a token itself: its pieces help others, so count it little.
    addPieces(savings, word, Math.min(count, 2));
  }
  return [...savings.entries()]
    .sort((one, other) => other[1] - one[1])
    .slice(0, PIECES_MAX)
    .map(([piece]) => piece);
}

function addPieces(
  savings: Map<string, number>,
  word: string,
  count: number,
): void {
  for (let from = 0; from < word.length; from++) {
    const lengthMax = Math.min(PIECE_UNITS_MAX, word.length - from);
    for (let length = PIECE_UNITS_MIN; length <= lengthMax; length++) {
      const piece = word.slice(from, from + length);
      savings.set(piece, (savings.get(piece) ?? 0) + count * (length - 1));
    }
  }
}

function fixedTexts(): string[] {
  const numbers = Array.from(
    { length: 100 },
    (_, value) => String(value).padStart(2, "0"),
  );
  const marks = [...ASCII_MARKS].map((mark) => ` ${mark}`);
  return [...numbers, ...marks, ...INDENTS];
}
