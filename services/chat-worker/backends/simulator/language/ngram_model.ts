import type { Candidates } from "./candidates.ts";
import {
  CONTEXT_TOKENS_MAX,
  type NgramCounts,
  ROOT,
  type SuccessorCount,
} from "./ngram_counts.ts";

/**
 * Taken from every count and given to the shorter context, by the context's
 * length. The long ones give much, which keeps the model from reciting; one word
 * of context gives little, because after it any common word would do.
 */
const DISCOUNTS = [0.5, 0.02, 0.35, 0.4];
/** What the start of a text leaves to anything else: nobody begins with a comma. */
const START_LEFTOVER = 1e-4;
/** Successors kept of one context. The rest are rare, and each costs time at every token. The start keeps all: each topic has its own. */
const SUCCESSORS_MAX = 64;
/** Successors kept of no context at all, per language: there must be something to say, and 20 `top_logprobs`. */
const ROOT_SUCCESSORS_MAX = 40;
/** How much more a topic counts that the request is about. */
const TOPIC_BOOST = 30;
/** The same for the first few tokens, where every passage of the corpus competes. */
const OPENING_TOPIC_BOOST = 1000;
/** How much more a token counts that the request calls to mind. */
const WORD_BOOST = 3;
/** The same for the first few tokens, because the opening decides where the rest goes. */
const OPENING_WORD_BOOST = 12;
/** How many those are. */
export const OPENING_TOKENS = 4;

/** What a request makes more or less probable. */
export interface Bias {
  /** Bits of the topics the model may speak from. */
  allowedTopics: number;
  /** Bits of the topics the request is about. */
  activeTopics: number;
  /** Tokens that the request calls to mind. */
  boostedTokens: readonly number[];
  /** Tokens that the answer should begin with. */
  openingTokens: readonly number[];
}

/** A language model: what may come next, and how probable each is. */
export interface NgramModel {
  /** Fills `into` with what may follow `history`, whose first token is START. Not normalised. */
  predict(history: readonly number[], bias: Bias, into: Candidates): void;
}

/** Options of {@link createNgramModel}. */
export interface NgramModelOptions {
  counts: NgramCounts;
  /** Topic bits per language. */
  languageTopics: readonly number[];
  /** Whether a token reads well after any other: no START or END, no word that lacks its space. */
  isSafeAnywhere: (token: number) => boolean;
}

/** All contexts' successors one after another, so that a prediction is a walk over flat arrays. */
interface Tables {
  vocabularySize: number;
  children: ReadonlyMap<number, number>;
  /** Successors of node n are at `firsts[n]` to `firsts[n + 1]`. */
  firsts: Int32Array;
  tokens: Int32Array;
  topics: Int32Array;
  shares: Float64Array;
  /** What remains for the shorter context. */
  leftovers: Float64Array;
  parents: Int32Array;
}

/**
 * Makes an interpolated Kneser-Ney model: absolute discounting, and shorter
 * contexts counted by how many different tokens stand before them. With discount
 * D, count c, sum C over N successors:
 * `p(w | abc) = (c(abc w) - D) / C + D N / C * p(w | bc)`.
 * With D = 0.5 and one token seen 3 times of 4 and another once: 0.625 and 0.125
 * from this context, 0.25 from the shorter one.
 */
export function createNgramModel(options: NgramModelOptions): NgramModel {
  const tables = buildTables(options);
  return {
    predict(history, bias, into) {
      into.clear();
      const isOpening = history.length <= OPENING_TOKENS;
      const topicBoost = isOpening ? OPENING_TOPIC_BOOST : TOPIC_BOOST;
      let weight = 1;
      let node = longestContext(tables, history);
      while (node !== ROOT) {
        addSuccessors(tables, node, weight, topicBoost, bias, into);
        weight *= tables.leftovers[node] ?? 0;
        node = tables.parents[node] ?? ROOT;
      }
      addSuccessors(tables, ROOT, weight, topicBoost, bias, into);
      for (const token of bias.boostedTokens) into.scale(token, WORD_BOOST);
      if (!isOpening) return;
      for (const token of bias.openingTokens) {
        into.scale(token, OPENING_WORD_BOOST);
      }
    },
  };
}

function longestContext(
  tables: Tables,
  history: readonly number[],
): number {
  let node = ROOT;
  const depthMax = Math.min(CONTEXT_TOKENS_MAX, history.length);
  for (let depth = 1; depth <= depthMax; depth++) {
    const older = history[history.length - depth] ?? 0;
    const child = tables.children.get(node * tables.vocabularySize + older);
    if (child === undefined) break;
    node = child;
  }
  return node;
}

function addSuccessors(
  tables: Tables,
  node: number,
  weight: number,
  topicBoost: number,
  bias: Bias,
  into: Candidates,
): void {
  const end = tables.firsts[node + 1] ?? 0;
  for (let at = tables.firsts[node] ?? 0; at < end; at++) {
    const topics = tables.topics[at] ?? 0;
    if ((topics & bias.allowedTopics) === 0) continue;
    const share = weight * (tables.shares[at] ?? 0);
    const isOnTopic = (topics & bias.activeTopics) !== 0;
    into.add(tables.tokens[at] ?? 0, isOnTopic ? share * topicBoost : share);
  }
}

function buildTables(options: NgramModelOptions): Tables {
  const { counts } = options;
  const nodes = counts.parents.length;
  const kept = counts.successors.map((successors, node) =>
    node === ROOT ? rootSuccessors(successors, options) : mostFrequent(
      successors,
      counts,
      node,
      counts.isAtStart[node] ? successors.length : SUCCESSORS_MAX,
    )
  );
  const entries = kept.reduce((sum, list) => sum + list.length, 0);
  const tables: Tables = {
    vocabularySize: counts.vocabularySize,
    children: counts.children,
    firsts: new Int32Array(nodes + 1),
    tokens: new Int32Array(entries),
    topics: new Int32Array(entries),
    shares: new Float64Array(entries),
    leftovers: new Float64Array(nodes),
    parents: Int32Array.from(counts.parents),
  };
  let at = 0;
  kept.forEach((list, node) => {
    tables.firsts[node] = at;
    at = fillNode(tables, counts, node, list, at);
  });
  tables.firsts[nodes] = at;
  return tables;
}

function fillNode(
  tables: Tables,
  counts: NgramCounts,
  node: number,
  kept: readonly SuccessorCount[],
  from: number,
): number {
  const all = counts.successors[node] ?? [];
  const total = all.reduce((sum, one) => sum + countOf(one, counts, node), 0);
  const discount = DISCOUNTS[counts.depths[node] ?? 0] ?? 0;
  tables.leftovers[node] = counts.isAtStart[node] && counts.depths[node] === 1
    ? START_LEFTOVER
    : discount * all.length / total;
  kept.forEach((successor, place) => {
    const at = from + place;
    const count = countOf(successor, counts, node);
    tables.tokens[at] = successor.token;
    tables.topics[at] = successor.topics;
    tables.shares[at] = (count - discount) / total;
  });
  return from + kept.length;
}

/** The longest contexts and those at the start of a text have nothing before them to count by. */
function countOf(
  successor: SuccessorCount,
  counts: NgramCounts,
  node: number,
): number {
  const isLongest = counts.depths[node] === CONTEXT_TOKENS_MAX;
  return isLongest || counts.isAtStart[node] ? successor.raw : successor.spread;
}

function mostFrequent(
  successors: readonly SuccessorCount[],
  counts: NgramCounts,
  node: number,
  howMany: number,
): SuccessorCount[] {
  return [...successors]
    .sort((one, other) =>
      countOf(other, counts, node) - countOf(one, counts, node) ||
      one.token - other.token
    )
    .slice(0, howMany);
}

function rootSuccessors(
  successors: readonly SuccessorCount[],
  options: NgramModelOptions,
): SuccessorCount[] {
  const chosen = new Set<SuccessorCount>();
  for (const topics of options.languageTopics) {
    const ofLanguage = successors.filter((successor) =>
      (successor.topics & topics) !== 0 &&
      options.isSafeAnywhere(successor.token)
    );
    const best = mostFrequent(
      ofLanguage,
      options.counts,
      ROOT,
      ROOT_SUCCESSORS_MAX,
    );
    for (const successor of best) chosen.add(successor);
  }
  return [...chosen];
}
