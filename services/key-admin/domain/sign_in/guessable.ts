import { dictionary } from "@zxcvbn-ts/language-common";

/**
 * How soon a password is found by somebody who tries the likely ones first
 * (ASVS 6.2.4).
 *
 * Lists of common passwords are short ones: of the 49,000 best known only 300
 * have twelve characters. What people choose when they must choose twelve is one
 * of the short ones with decoration, two of them, a walk over the keyboard or a
 * repetition. So a password is taken apart into such pieces, in the cheapest way,
 * and judged by the tries that this takes: each list word counts with its rank.
 */

/** Passwords that are found in fewer tries than 10 to this power are refused. */
const TRIES_LOG10_MIN = 8;
/** In units of UTF-16, of which an emoji has two: it is no worse to guess for that. */
const PIECE_CHARS_MAX = 24;
const WORD_CHARS_MIN = 3;
const WALK_CHARS_MIN = 3;
/** A guesser has to choose a row, a place in it and a direction. */
const WALK_TRIES_LOG10 = 1.5;
/** Two digits; one character, and how often. */
const YEAR_TRIES_LOG10 = 2;
const RUN_TRIES_LOG10 = 1.5;
/** Which look-alike stands where; that something is repeated, and how often. */
const TWIST_TRIES_LOG10 = 0.5;
/** A character that belongs to no piece, as much as a digit. */
const CHAR_TRIES_LOG10 = 1;

/**
 * What anybody tries first here (ASVS 6.1.2): the product, what it does, and who
 * uses it. Words of the owner's address are added to these.
 */
export const CONTEXT_WORDS: readonly string[] = [
  ...["gateway", "console", "keyadmin", "edge", "worker", "apikey", "api"],
  ...["openai", "chat", "completion", "model", "neutral", "token", "server"],
  ...["admin", "administrator", "root", "owner", "login", "user", "key"],
];

const ROWS = [
  "qwertyuiopasdfghjklzxcvbnm",
  "qwertzuiopasdfghjklyxcvbnm",
  "azertyuiopqsdfghjklmwxcvbn",
  "abcdefghijklmnopqrstuvwxyz",
  "01234567890123456789",
  "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p",
  "1q2w3e4r5t6y7u8i9o0p",
  "q1w2e3r4t5y6u7i8o9p0",
  "!@#$%^&*()_+",
];
/** Every piece of a row, in both directions. */
const WALKS: ReadonlySet<string> = new Set(
  [...ROWS, ...ROWS.map((row) => [...row].reverse().join(""))].flatMap(pieces),
);

const LOOK_ALIKES: Readonly<Record<string, string>> = {
  ...{ "0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t" },
  ...{ "@": "a", "$": "s", "!": "i", "|": "l", "8": "b", "9": "g" },
};

const fold = (text: string): string =>
  text.replace(/./gs, (char) => LOOK_ALIKES[char] ?? char);

type Ranks = ReadonlyMap<string, number>;

const RANKS: Ranks = ranked(dictionary["passwords-common"]);
const FOLDED_RANKS: Ranks = ranked(dictionary["passwords-common"].map(fold));

/** The place of each word in a list, from 1; of one that is there twice, the first. */
function ranked(words: readonly string[]): Ranks {
  return new Map(
    words.map((word, at) => [word, at + 1] as const).toReversed(),
  );
}

/** Whether a password is among those that are tried first. `words` are known to belong to its owner. */
export function isGuessable(
  password: string,
  words: readonly string[],
): boolean {
  return triesLog10(password, words) < TRIES_LOG10_MIN;
}

/** About how many tries a password takes, as a power of ten. */
export function triesLog10(
  password: string,
  words: readonly string[],
): number {
  const known = new Set([...CONTEXT_WORDS, ...words]);
  const text = password.toLowerCase();
  const once = withoutRepeats(text);
  const whole = cheapest(text, known);
  return once === text
    ? whole
    : Math.min(whole, cheapest(once, known) + TWIST_TRIES_LOG10);
}

/** `abcabcabc` -> `abc`, `aaaa` -> `a`. Doubles inside of words stay as they are. */
function withoutRepeats(text: string): string {
  return text.replace(/(.{3,}?)\1+|(.{2})\2{2,}|(.)\3{2,}/gsu, "$1$2$3");
}

/** The least tries over all ways to cut the text into pieces. */
function cheapest(text: string, known: ReadonlySet<string>): number {
  const folded = fold(text);
  const best: number[] = [0];
  for (let end = 1; end <= text.length; end++) {
    let least = (best[end - 1] ?? 0) + CHAR_TRIES_LOG10;
    for (let at = Math.max(0, end - PIECE_CHARS_MAX); at < end - 1; at++) {
      const piece = text.slice(at, end);
      const cost = Math.min(
        patternCost(piece),
        wordCost(piece, known, RANKS),
        wordCost(folded.slice(at, end), known, FOLDED_RANKS) +
          TWIST_TRIES_LOG10,
      );
      least = Math.min(least, (best[at] ?? 0) + cost);
    }
    best.push(least);
  }
  return best[text.length] ?? 0;
}

/** Tries for a word of the lists; without end when it is in none. */
function wordCost(
  word: string,
  known: ReadonlySet<string>,
  ranks: Ranks,
): number {
  if (word.length < WORD_CHARS_MIN) return Infinity;
  if (known.has(word)) return 0;
  const rank = ranks.get(word);
  return rank === undefined ? Infinity : Math.log10(rank);
}

/** Tries for a year, `!!!` or a walk over the keyboard; without end when it is none. */
function patternCost(piece: string): number {
  if (WALKS.has(piece)) return WALK_TRIES_LOG10;
  if (/^(.)\1*$/s.test(piece)) return RUN_TRIES_LOG10;
  const isYear = piece.length === 4 && /^(19|20)\d\d$/.test(piece);
  return isYear ? YEAR_TRIES_LOG10 : Infinity;
}

function pieces(row: string): string[] {
  return [...row].flatMap((_, at) =>
    [...row.slice(at)].map((_, length) => row.slice(at, at + length + 1))
  ).filter((piece) => piece.length >= WALK_CHARS_MIN);
}
