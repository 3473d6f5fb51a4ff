const WORD =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[\p{L}\p{M}\p{N}]+(?:['’]\p{L}+)?/gu;

/** The words of a text in lower case; each ideograph is one. `"What's 春?"` is `what's`, `春`. */
export function wordsOf(text: string): string[] {
  return text.toLowerCase().match(WORD) ?? [];
}

const SIBILANT_PLURAL = /(s|x|z|ch|sh)es$/;
const PLURAL = /[^sui]s$/;
const OTHER_ENDING = /(ing|ed|e)$/;
/** What remains must still be a word. */
const STEM_UNITS_MIN = 3;

/** A word without its most common English endings, so that `boxes` meets `box`, and `cooking` and `cooks` meet `cook`. */
export function stemOf(word: string): string {
  const singular = SIBILANT_PLURAL.test(word)
    ? word.slice(0, -2)
    : PLURAL.test(word)
    ? word.slice(0, -1)
    : word;
  if (singular.length < STEM_UNITS_MIN) return word;
  const stem = singular.replace(OTHER_ENDING, "");
  return stem.length < STEM_UNITS_MIN ? singular : stem;
}
