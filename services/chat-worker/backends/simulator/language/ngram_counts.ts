import { START_TOKEN } from "./vocabulary.ts";

/** Tokens before the one to predict that the model looks at. */
export const CONTEXT_TOKENS_MAX = 3;
/** The context of no tokens. */
export const ROOT = 0;

/** A text to learn from. */
export interface TrainingText {
  /** With START before and END after. */
  tokens: readonly number[];
  /** One bit of 31 per topic. */
  topicBit: number;
}

/** How often one token followed one context. */
export interface SuccessorCount {
  token: number;
  /** Occurrences. */
  raw: number;
  /** Different tokens that stood before the context when this token followed: Kneser and Ney's count. */
  spread: number;
  /** The topics in which it did. */
  topics: number;
}

/** Contexts as a trie from the latest token back: a node's parent is its context without the oldest token. */
export interface NgramCounts {
  readonly vocabularySize: number;
  /** `node * vocabularySize + olderToken` to node. */
  readonly children: ReadonlyMap<number, number>;
  readonly parents: readonly number[];
  readonly depths: readonly number[];
  /** Whether the context's oldest token is START, so that nothing can stand before it. */
  readonly isAtStart: readonly boolean[];
  readonly successors: readonly (readonly SuccessorCount[])[];
}

/** Counts every token of the texts after each of its contexts of 0 to {@link CONTEXT_TOKENS_MAX} tokens. */
export function countNgrams(
  texts: readonly TrainingText[],
  vocabularySize: number,
): NgramCounts {
  const counter = new Counter(vocabularySize);
  for (const text of texts) counter.learn(text);
  return counter;
}

class Counter implements NgramCounts {
  readonly vocabularySize: number;
  readonly children = new Map<number, number>();
  readonly parents: number[] = [ROOT];
  readonly depths: number[] = [0];
  readonly isAtStart: boolean[] = [false];
  readonly successors: SuccessorCount[][] = [[]];
  readonly #entries = new Map<number, SuccessorCount>();

  constructor(vocabularySize: number) {
    this.vocabularySize = vocabularySize;
  }

  learn(text: TrainingText): void {
    for (let at = 1; at < text.tokens.length; at++) {
      this.#learnToken(text, at);
    }
  }

  #learnToken(text: TrainingText, at: number): void {
    const token = text.tokens[at] ?? START_TOKEN;
    let node = ROOT;
    let shorter = this.#count(node, token, text.topicBit).entry;
    const depthMax = Math.min(CONTEXT_TOKENS_MAX, at);
    for (let depth = 1; depth <= depthMax; depth++) {
      node = this.#childOf(node, text.tokens[at - depth] ?? START_TOKEN);
      const { entry, isNew } = this.#count(node, token, text.topicBit);
      if (isNew) shorter.spread += 1;
      shorter = entry;
    }
  }

  #childOf(node: number, olderToken: number): number {
    const key = node * this.vocabularySize + olderToken;
    const known = this.children.get(key);
    if (known !== undefined) return known;
    const child = this.parents.length;
    this.children.set(key, child);
    this.parents.push(node);
    this.depths.push((this.depths[node] ?? 0) + 1);
    this.isAtStart.push(olderToken === START_TOKEN);
    this.successors.push([]);
    return child;
  }

  #count(
    node: number,
    token: number,
    topicBit: number,
  ): { entry: SuccessorCount; isNew: boolean } {
    const key = node * this.vocabularySize + token;
    let entry = this.#entries.get(key);
    const isNew = entry === undefined;
    if (entry === undefined) {
      entry = { token, raw: 0, spread: 0, topics: 0 };
      this.#entries.set(key, entry);
      this.successors[node]?.push(entry);
    }
    entry.raw += 1;
    entry.topics |= topicBit;
    return { entry, isNew };
  }
}
