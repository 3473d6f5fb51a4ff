/** What a character is to the tokenizer. */
export const CharacterClass = {
  LETTER: 1,
  DIGIT: 2,
  SPACE: 3,
  /** A sign that is a word or syllable by itself: Han, Hiragana, Katakana. */
  IDEOGRAPH: 4,
  OTHER: 5,
} as const;

/** A value of {@link CharacterClass}. */
export type CharacterClass = typeof CharacterClass[keyof typeof CharacterClass];

const LETTER = /^[\p{L}\p{M}]$/u;
const DIGIT = /^\p{N}$/u;
const SPACE = /^\s$/u;
const IDEOGRAPH =
  /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}ー々]$/u;

/** The class of a code point. */
function classify(codePoint: number): CharacterClass {
  const character = String.fromCodePoint(codePoint);
  if (IDEOGRAPH.test(character)) return CharacterClass.IDEOGRAPH;
  if (LETTER.test(character)) return CharacterClass.LETTER;
  if (DIGIT.test(character)) return CharacterClass.DIGIT;
  if (SPACE.test(character)) return CharacterClass.SPACE;
  return CharacterClass.OTHER;
}

/**
 * Remembers {@link classify} for the first 65,536 code points, in 64 KiB: four
 * regular expressions per character of a long prompt would take seconds.
 */
export class CharacterTable {
  readonly #classes = new Uint8Array(0x10000);

  /** The class of a code point; whole ones, not halves of a surrogate pair. */
  classOf(codePoint: number): number {
    if (codePoint > 0xffff) return classify(codePoint);
    const known = this.#classes[codePoint];
    if (known !== undefined && known !== 0) return known;
    return this.#classes[codePoint] = classify(codePoint);
  }
}
