/**
 * The index behind the list of keys: a sorted set of text, so that Redis finds
 * a page among 100,000 keys without looking at the others. A member is
 * `<term>/<time>/<key id>`; the time runs backwards, so that newer keys come
 * first within a term. Terms are the words of the description, the last four
 * characters of the key, and tags such as `:enabled`.
 */

import type { KeyRecord } from "@gateway/shared/keys/record";

/** Tags that keys are listed under. Words have no colons, so tags cannot be mistaken for words. */
export type Tag = ":all" | ":enabled" | ":disabled" | ":expires";

const WORD_CHARS_MAX = 24;
/** Beyond any time in milliseconds this century. */
const TIME_END = 10 ** 13;
/** Sorts after every text in UTF-8. */
const LAST_TEXT = "\u{10FFFF}";

const SEGMENTER = new Intl.Segmenter("en", { granularity: "word" });

/**
 * Splits text of any script into lower-case words:
 * `"Prod API_v2 用户"` gives `["api", "prod", "v2", "用户"]`. Sorted, each once.
 */
export function wordsOf(text: string): string[] {
  const words = new Set<string>();
  for (const part of SEGMENTER.segment(text.normalize("NFKC").toLowerCase())) {
    for (const word of part.segment.match(/[\p{L}\p{N}\p{M}]+/gu) ?? []) {
      words.add([...word].slice(0, WORD_CHARS_MAX).join(""));
    }
  }
  return [...words].sort();
}

/** The words a key is found by: those of its description and the end of its value. */
export function searchWordsOf(
  key: Pick<KeyRecord, "description" | "hint">,
): string[] {
  const words = new Set(wordsOf(key.description));
  words.add(key.hint.slice(-4).toLowerCase());
  return [...words].sort();
}

/** All members of the index that stand for a key. */
export function indexMembersOf(key: KeyRecord): string[] {
  const tags: Tag[] = [
    ":all",
    key.state === "enabled" ? ":enabled" : ":disabled",
  ];
  if (key.expiresAtMs !== null) tags.push(":expires");
  const backwards = String(TIME_END - key.createdAtMs).padStart(14, "0");
  return [...tags, ...searchWordsOf(key)].map((term) =>
    `${term}/${backwards}/${key.id}`
  );
}

/** Every key under a tag, as ZRANGEBYLEX wants it. "0" is the character after "/". */
export const tagRange = (tag: Tag) => ({ from: `[${tag}/`, to: `(${tag}0` });

/** Every key with a word that begins with `prefix`. */
export const wordRange = (prefix: string) => ({
  from: `[${prefix}`,
  to: `(${prefix}${LAST_TEXT}`,
});
