/**
 * A minimal language model: the passages, and which word may follow which. Just enough
 * for sampling parameters to act on real alternatives. Pure.
 */
import { PASSAGES } from "./passages.ts";
import type { ChatRequest } from "./request.ts";

/** Numbers from 0 to 1, the same for the same seed. */
export type Random = () => number;

/** The mulberry32 generator. */
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

/** Cuts a text into tokens: words, short numbers and signs, each with at most one space before it. */
export function tokenize(text: string): string[] {
  return text.match(TOKEN) ?? [];
}

/** A possible next token, how likely it is, and where in the corpus the text may then continue. */
interface Candidate {
  readonly token: string;
  readonly logit: number;
  readonly places: readonly number[];
}

/** A token and how likely it was before `temperature` and `top_p`. */
export interface TokenLogprob {
  readonly token: string;
  readonly logprob: number;
}

/** The outcome of one step. */
export interface Sampled extends TokenLogprob {
  /** The most likely tokens, best first. Empty unless requested. */
  readonly top: readonly TokenLogprob[];
}

const END_OF_PASSAGE = "\n";
/** Bonus of the token that comes next in the passage. */
const WRITTEN_BONUS = 4;
/** The common words that may follow any token, so that there is always a choice. */
const COMMON_WORDS = 20;
const COMMON_LOGIT = -4;
/** A token that is given instead of sampled is practically certain. */
const GIVEN_LOGIT = 12;

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
/** What may follow each token: what follows it anywhere in the corpus, and the common words. */
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
  readonly #random: Random;
  readonly #request: ChatRequest;
  readonly #topCount: number;
  readonly #said = new Map<string, number>();
  #place: number;

  /** `subject` chooses the passage to begin with. */
  constructor(request: ChatRequest, random: Random, subject: number) {
    this.#random = random;
    this.#request = request;
    this.#topCount = request.logprobs === true ? request.top_logprobs : -1;
    this.#place = ENDS[subject % ENDS.length] ?? 0;
  }

  /** Writes a given token. */
  given(token: string): Sampled {
    if (this.#topCount < 0) return this.#say(token, 0, []);
    const others = COMMON.filter((common) => common.token !== token);
    const candidates = [{ token, logit: GIVEN_LOGIT, places: [] }, ...others];
    return this.#explain(candidates, candidates.map(({ logit }) => logit), 0);
  }

  /** Writes the next token of the text. */
  next(): Sampled {
    const candidates = FOLLOWERS.get(tokenAt(this.#place)) ?? COMMON;
    const written = tokenAt(this.#place + 1);
    const logits = candidates.map(({ token, logit }) =>
      this.#penalised(token, token === written ? logit + WRITTEN_BONUS : logit)
    );
    const chosen = this.#choose(logits);
    const { token = "", places = [] } = candidates[chosen] ?? {};
    this.#place = token === written
      ? (this.#place + 1) % CORPUS.length
      : places[Math.floor(this.#random() * places.length)] ?? 0;
    return this.#topCount < 0
      ? this.#say(token, 0, [])
      : this.#explain(candidates, logits, chosen);
  }

  #penalised(token: string, logit: number): number {
    const said = this.#said.get(token);
    if (said === undefined) return logit;
    const { presence_penalty, frequency_penalty, repetition_penalty } =
      this.#request;
    const repeated = logit > 0
      ? logit / repetition_penalty
      : logit * repetition_penalty;
    return repeated - presence_penalty - frequency_penalty * said;
  }

  /** The index of a token sampled by temperature, `top_k`, `top_p` and `min_p`. */
  #choose(logits: readonly number[]): number {
    const { temperature, top_p, top_k, min_p } = this.#request;
    if (temperature === 0) return logits.indexOf(Math.max(...logits));
    const shares = softmax(logits.map((logit) => logit / temperature));
    const order = [...shares.keys()];
    if (top_p < 1 || top_k > 0 || min_p > 0) {
      order.sort((a, b) => (shares[b] ?? 0) - (shares[a] ?? 0));
    }
    const floor = min_p * (shares[order[0] ?? 0] ?? 0);
    let sum = 0;
    let kept = 0;
    for (; kept < order.length; kept++) {
      const share = shares[order[kept] ?? 0] ?? 0;
      if (kept > 0 && (sum >= top_p || kept === top_k || share < floor)) break;
      sum += share;
    }
    let rest = this.#random() * sum;
    for (const index of order.slice(0, kept)) {
      rest -= shares[index] ?? 0;
      if (rest < 0) return index;
    }
    return order[0] ?? 0;
  }

  /** Writes a token, with its log probability and those of the most likely ones. */
  #explain(
    candidates: readonly Candidate[],
    logits: readonly number[],
    chosen: number,
  ): Sampled {
    const all = softmax(logits).map((share, index) => ({
      token: candidates[index]?.token ?? "",
      logprob: Math.log(share),
    }));
    const { token = "", logprob = 0 } = all[chosen] ?? {};
    const top = all.toSorted((a, b) => b.logprob - a.logprob);
    return this.#say(token, logprob, top.slice(0, this.#topCount));
  }

  #say(token: string, logprob: number, top: TokenLogprob[]): Sampled {
    this.#said.set(token, (this.#said.get(token) ?? 0) + 1);
    return { token, logprob, top };
  }
}

function softmax(logits: readonly number[]): number[] {
  const max = Math.max(...logits);
  const weights = logits.map((logit) => Math.exp(logit - max));
  const sum = weights.reduce((all, weight) => all + weight, 0);
  return weights.map((weight) => weight / sum);
}

/** One to three words of the passages. */
export function someWords(random: Random): string {
  const at = Math.floor(random() * (CORPUS.length - 3));
  const words = CORPUS.slice(at, at + 4).filter((token) =>
    /^ ?\p{L}+$/u.test(token)
  );
  return words.join("").trim() || "river";
}
