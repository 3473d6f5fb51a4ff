/**
 * A minimal language model: just enough for sampling parameters to act on real
 * alternatives. Pure.
 */
import PASSAGES from "./passages.json" with { type: "json" };
import type { ChatRequest } from "./request.ts";

/** Numbers from 0 to 1, the same for the same seed. */
export type Random = () => number;

/** Mulberry32: a small generator, good enough to choose words. */
export function seededRandom(seed: number): Random {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** FNV-1a of at most the first 4,096 characters. */
export function hashText(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < Math.min(text.length, 4_096); at++) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  }
  return hash >>> 0;
}

const TOKEN = /\s?(?:\p{L}{1,16}|\p{N}{1,3}|[^\s\p{L}\p{N}])|\s/gu;

/**
 * Cuts a text into tokens: words, short numbers and signs, each with at most one space
 * before it.
 */
export function tokenize(text: string): string[] {
  return text.match(TOKEN) ?? [];
}

/** A possible next token, and where in the corpus the text may then continue. */
interface Candidate {
  readonly token: string;
  readonly logit: number;
  readonly places: readonly number[];
}

/** A token that was written. */
export interface Sampled {
  token: string;
  /** OpenAI's entry for it, if requested. */
  logprobs: object[];
}

const encoder = new TextEncoder();
const END_OF_PASSAGE = "\n";
/** Bonus of the token that comes next in the passage. */
const WRITTEN_BONUS = 4;
/** The common words that may follow any token, so that there is always a choice. */
const COMMON_WORDS = 20;
const COMMON_LOGIT = -4;
/** A token that is prescribed instead of sampled is practically certain. */
const PRESCRIBED_LOGIT = 12;

const CORPUS: readonly string[] = PASSAGES.flatMap((passage) => [
  ...tokenize(passage),
  END_OF_PASSAGE,
]);
const tokenAt = (place: number) =>
  CORPUS[place % CORPUS.length] ?? END_OF_PASSAGE;
const PLACES = Map.groupBy(CORPUS.keys(), tokenAt);
const ENDS: readonly number[] = PLACES.get(END_OF_PASSAGE) ?? [];
const COMMON: readonly Candidate[] = [...PLACES]
  .filter(([token]) => /^ \p{L}/u.test(token))
  .sort(([, a], [, b]) => b.length - a.length)
  .slice(0, COMMON_WORDS)
  .map(([token, places]) => ({ token, places, logit: COMMON_LOGIT }));
/**
 * What may follow each token: what follows it anywhere in the corpus, and the common
 * words.
 */
const FOLLOWERS: ReadonlyMap<string, readonly Candidate[]> = new Map(
  [...PLACES].map(([token, places]) => [token, followersOf(places)]),
);

function followersOf(places: readonly number[]): Candidate[] {
  const after = places.map((place) => (place + 1) % CORPUS.length);
  const next = Map.groupBy(after, tokenAt);
  const real = [...next].map(([token, places]) => {
    return { token, places, logit: Math.log(places.length) + 1 };
  });
  return [...real, ...COMMON.filter(({ token }) => !next.has(token))];
}

/** Writes one text: keeps its position in the corpus and the tokens written so far. */
export class Writer {
  /** How often each token was written. */
  readonly #counts = new Map<string, number>();
  #place: number;

  constructor(
    readonly request: ChatRequest,
    readonly random: Random,
    subject: number,
  ) {
    this.#place = ENDS[subject % ENDS.length] ?? 0;
  }

  /** Writes a token that was not sampled, as if it had been. */
  prescribed(token: string): Sampled {
    const others = COMMON.filter((common) => common.token !== token);
    const candidates = [
      { token, logit: PRESCRIBED_LOGIT, places: [] },
      ...others,
    ];
    return this.#write(candidates, candidates.map(({ logit }) => logit), 0);
  }

  /** Samples the next token and writes it. */
  next(): Sampled {
    const candidates = FOLLOWERS.get(tokenAt(this.#place)) ?? COMMON;
    const corpusToken = tokenAt(this.#place + 1);
    const logits = candidates.map(({ token, logit }) =>
      this.#penalised(
        token,
        token === corpusToken ? logit + WRITTEN_BONUS : logit,
      )
    );
    const pick = this.#choose(logits);
    const { token = "", places = [] } = candidates[pick] ?? {};
    this.#place = token === corpusToken
      ? (this.#place + 1) % CORPUS.length
      : places[Math.floor(this.random() * places.length)] ?? 0;
    return this.#write(candidates, logits, pick);
  }

  #penalised(token: string, logit: number): number {
    const count = this.#counts.get(token);
    if (count === undefined) return logit;
    const { presence_penalty, frequency_penalty, repetition_penalty } =
      this.request;
    const repeated = logit > 0
      ? logit / repetition_penalty
      : logit * repetition_penalty;
    return repeated - presence_penalty - frequency_penalty * count;
  }

  /** The index of a token sampled by temperature and `top_p`. */
  #choose(logits: readonly number[]): number {
    const { temperature, top_p } = this.request;
    if (temperature === 0) return logits.indexOf(Math.max(...logits));
    const ranked = softmax(logits.map((logit) => logit / temperature))
      .map((share, index) => ({ share, index }));
    if (top_p < 1) ranked.sort((a, b) => b.share - a.share);
    let rest = this.random() * top_p;
    for (const { share, index } of ranked) {
      rest -= share;
      if (rest < 0) return index;
    }
    return ranked[0]?.index ?? 0;
  }

  #write(
    candidates: readonly Candidate[],
    logits: readonly number[],
    pick: number,
  ): Sampled {
    const token = candidates[pick]?.token ?? "";
    this.#counts.set(token, (this.#counts.get(token) ?? 0) + 1);
    const { logprobs: isWanted, top_logprobs: topCount } = this.request;
    if (isWanted !== true) return { token, logprobs: [] };
    const all = softmax(logits).map((share, index) => {
      const { token = "" } = candidates[index] ?? {};
      const bytes = [...encoder.encode(token)];
      return { token, logprob: Math.log(share), bytes };
    });
    const top_logprobs = all.toSorted((a, b) => b.logprob - a.logprob)
      .slice(0, topCount);
    const logprobs = all.slice(pick, pick + 1)
      .map((own) => ({ ...own, top_logprobs }));
    return { token, logprobs };
  }
}

function softmax(logits: readonly number[]): number[] {
  const max = Math.max(...logits);
  const weights = logits.map((logit) => Math.exp(logit - max));
  const sum = weights.reduce((all, weight) => all + weight, 0);
  return weights.map((weight) => weight / sum);
}

/** Up to four words in a row of the corpus. */
export function someWords(random: Random): string {
  const at = Math.floor(random() * (CORPUS.length - 3));
  const words = CORPUS.slice(at, at + 4).filter((token) =>
    /^ ?\p{L}+$/u.test(token)
  );
  return words.join("").trim() || "river";
}
