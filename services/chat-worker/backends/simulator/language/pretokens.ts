import { CharacterClass, type CharacterTable } from "./characters.ts";

const SPACE = 0x20;
const APOSTROPHE = 0x27;
const CURLY_APOSTROPHE = 0x2019;

/** Longer words are cut here, so that one "word" of megabytes is still work in small portions. */
const WORD_UNITS_MAX = 256;
const DIGITS_MAX = 3;

/**
 * Where the pretoken that begins at `start` ends. Pretokens are what no token
 * ever reaches across: a word or a punctuation mark with the one space before
 * it, up to three digits, one ideograph, a run of one kind of white space. Joined
 * again they are the text: `"It's 1024 km."` is `It's`, ` `, `102`, `4`, ` km`, `.`
 */
export function pretokenEnd(
  text: string,
  start: number,
  characters: CharacterTable,
): number {
  const first = text.codePointAt(start) ?? SPACE;
  const firstClass = characters.classOf(first);
  if (firstClass === CharacterClass.SPACE) {
    return spaceEnd(text, start, first, characters);
  }
  return visibleEnd(text, start, first, firstClass, characters);
}

function visibleEnd(
  text: string,
  start: number,
  first: number,
  firstClass: number,
  characters: CharacterTable,
): number {
  if (firstClass === CharacterClass.LETTER) {
    return wordEnd(text, start, characters);
  }
  if (firstClass === CharacterClass.DIGIT) {
    return digitsEnd(text, start, characters);
  }
  return start + unitsOf(first);
}

function wordEnd(
  text: string,
  start: number,
  characters: CharacterTable,
): number {
  const limit = Math.min(text.length, start + WORD_UNITS_MAX);
  let end = start;
  while (end < limit) {
    const code = text.codePointAt(end) ?? SPACE;
    if (characters.classOf(code) === CharacterClass.LETTER) {
      end += unitsOf(code);
    } else if (isInnerApostrophe(text, end, start, characters)) end += 1;
    else break;
  }
  return end;
}

function isInnerApostrophe(
  text: string,
  at: number,
  start: number,
  characters: CharacterTable,
): boolean {
  const code = text.charCodeAt(at);
  if (code !== APOSTROPHE && code !== CURLY_APOSTROPHE) return false;
  return at > start && isLetterAt(text, at + 1, characters);
}

function isLetterAt(
  text: string,
  at: number,
  characters: CharacterTable,
): boolean {
  const code = text.codePointAt(at);
  return code !== undefined &&
    characters.classOf(code) === CharacterClass.LETTER;
}

function digitsEnd(
  text: string,
  start: number,
  characters: CharacterTable,
): number {
  let end = start;
  for (let digits = 0; digits < DIGITS_MAX && end < text.length; digits++) {
    const code = text.codePointAt(end) ?? SPACE;
    if (characters.classOf(code) !== CharacterClass.DIGIT) break;
    end += unitsOf(code);
  }
  return end;
}

function spaceEnd(
  text: string,
  start: number,
  first: number,
  characters: CharacterTable,
): number {
  const limit = Math.min(text.length, start + WORD_UNITS_MAX);
  let end = start;
  while (end < limit && text.charCodeAt(end) === first) end += 1;
  if (first !== SPACE || end >= text.length) return end;
  const next = text.codePointAt(end) ?? SPACE;
  const nextClass = characters.classOf(next);
  const joins = nextClass === CharacterClass.LETTER ||
    nextClass === CharacterClass.OTHER;
  if (!joins) return end;
  if (end - start > 1) return end - 1;
  return visibleEnd(text, end, next, nextClass, characters);
}

function unitsOf(codePoint: number): number {
  return codePoint > 0xffff ? 2 : 1;
}
