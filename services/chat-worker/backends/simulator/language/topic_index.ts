import { LANGUAGES, type Topic } from "../corpus/topic.ts";
import { type Bias, OPENING_TOKENS } from "./ngram_model.ts";
import { stemOf, wordsOf } from "./words.ts";

/** A keyword weighs as much as a word that a topic uses this often. */
const KEYWORD_COUNT = 12;
/** Below this a message is about nothing in particular. */
const TOPIC_SCORE_MIN = 2.5;
/** A second topic joins when it is this near to the first. */
const SECOND_SHARE = 0.75;
/** Below this no passage is the one that the message asks for. */
const PASSAGE_SCORE_MIN = 3;
/** A word of the message that more passages than this share use says nothing about it. */
const COMMON_SHARE = 0.1;
/** A word used by more than half of the topics says nothing about any: log(topics / users) is below this. */
const TOPIC_RARITY_MIN = 0.7;
/** Words looked at of one message: the rest changes nothing but the time it takes. */
const WORDS_MAX = 400;

/** A passage as the index sees it. */
export interface IndexedPassage {
  /** Its topic's place in the list of topics. */
  topic: number;
  text: string;
  tokens: readonly number[];
}

/** Finds what a request is about. */
export interface TopicIndex {
  bitOf(topicId: string): number;
  /** Topic bits per language, in the order of `LANGUAGES`. */
  readonly languageTopics: readonly number[];
  /**
   * What the latest user messages make more probable, `texts[0]` the last one.
   * Older ones count less, so that "tell me more" keeps to the subject.
   */
  choose(texts: readonly string[]): Bias;
}

/** What {@link createTopicIndex} is made of. */
export interface TopicIndexOptions {
  topics: readonly Topic[];
  passages: readonly IndexedPassage[];
  /** The topic of a message that is about none. */
  fallbackId: string;
  tokenOf: (text: string) => number | undefined;
}

/** Makes the index of a corpus: words weigh more the fewer topics or passages use them (tf-idf). */
export function createTopicIndex(options: TopicIndexOptions): TopicIndex {
  const { topics, passages } = options;
  const topicWeights = weighTopics(options);
  const passageWeights = weighPassages(passages);
  const ids = topics.map((topic) => topic.id);
  const fallback = ids.indexOf(options.fallbackId);
  const languageTopics = LANGUAGES.map((language) =>
    topics.reduce(
      (bits, topic, at) => topic.language === language ? bits | 1 << at : bits,
      0,
    )
  );
  return {
    bitOf: (topicId) => 1 << ids.indexOf(topicId),
    languageTopics,
    choose(texts) {
      const stems = texts.map(stemsOf);
      const activeTopics = chooseTopics(
        scoresOf(stems, topicWeights, topics.length),
        fallback,
      );
      const passage = fittingPassage(
        scoresOf(stems, passageWeights, passages.length),
        passages.map(({ topic }) => (activeTopics & 1 << topic) !== 0),
        passages,
      );
      return {
        allowedTopics:
          languageTopics.find((bits) => (bits & activeTopics) !== 0) ?? 0,
        activeTopics,
        boostedTokens: [
          ...new Set([
            ...rareTokens(texts[0] ?? "", passageWeights, options),
            ...passage,
          ]),
        ],
        openingTokens: passage.slice(0, OPENING_TOKENS),
      };
    },
  };
}

/** Per stem, its weight for each topic or passage. */
type Weights = ReadonlyMap<string, Float32Array>;

function weighTopics(options: TopicIndexOptions): Weights {
  const { topics, passages } = options;
  const counts = new Map<string, Float32Array>();
  const add = (text: string, topic: number, count: number) => {
    for (const word of wordsOf(text)) {
      addCount(counts, stemOf(word), topic, topics.length, count);
    }
  };
  // The model's inner voice is no topic to talk about.
  const isSpoken = (at: number) => topics[at]?.language !== "inner";
  for (const passage of passages) {
    if (isSpoken(passage.topic)) add(passage.text, passage.topic, 1);
  }
  topics.forEach((topic, at) => add(topic.keywords, at, KEYWORD_COUNT));
  return toWeights(counts, topics.length, TOPIC_RARITY_MIN);
}

function weighPassages(passages: readonly IndexedPassage[]): Weights {
  const counts = new Map<string, Float32Array>();
  passages.forEach((passage, at) => {
    for (const stem of stemsOf(passage.text)) {
      addCount(counts, stem, at, passages.length, 1);
    }
  });
  return toWeights(counts, passages.length, 0);
}

function addCount(
  counts: Map<string, Float32Array>,
  stem: string,
  at: number,
  length: number,
  count: number,
): void {
  let row = counts.get(stem);
  if (row === undefined) {
    row = new Float32Array(length);
    counts.set(stem, row);
  }
  row[at] = (row[at] ?? 0) + count;
}

function toWeights(
  counts: Map<string, Float32Array>,
  length: number,
  rarityMin: number,
): Weights {
  for (const row of counts.values()) {
    const logarithm = Math.log(length / countUsers(row));
    const rarity = logarithm < rarityMin ? 0 : logarithm;
    row.forEach((count, at) => {
      row[at] = rarity * Math.log2(1 + count);
    });
  }
  return counts;
}

function countUsers(row: Float32Array): number {
  let users = 0;
  for (const value of row) if (value > 0) users += 1;
  return users;
}

function stemsOf(text: string): Set<string> {
  return new Set(wordsOf(text).slice(0, WORDS_MAX).map(stemOf));
}

function scoresOf(
  texts: readonly ReadonlySet<string>[],
  weights: Weights,
  length: number,
): Float32Array {
  const scores = new Float32Array(length);
  texts.forEach((stems, age) => {
    for (const stem of stems) {
      weights.get(stem)?.forEach((weight, at) => {
        scores[at] = (scores[at] ?? 0) + weight / (1 + 3 * age);
      });
    }
  });
  return scores;
}

function chooseTopics(scores: Float32Array, fallback: number): number {
  const best = Math.max(...scores);
  if (best < TOPIC_SCORE_MIN) return 1 << fallback;
  let active = 0;
  scores.forEach((score, at) => {
    if (score >= best * SECOND_SHARE) active |= 1 << at;
  });
  return active;
}

/** The tokens of a message's rare words. */
function rareTokens(
  text: string,
  weights: Weights,
  options: TopicIndexOptions,
): number[] {
  const { passages, tokenOf } = options;
  const usersMax = passages.length * COMMON_SHARE;
  const rare = wordsOf(text).slice(0, WORDS_MAX).filter((word) => {
    const row = weights.get(stemOf(word));
    return row !== undefined && countUsers(row) <= usersMax;
  });
  const tokens = rare.flatMap((word) => [tokenOf(word), tokenOf(` ${word}`)]);
  return [...new Set(tokens)].filter((token) => token !== undefined);
}

/** The distinct tokens, in order, of the passage that fits the messages best. */
function fittingPassage(
  scores: Float32Array,
  isActive: readonly boolean[],
  passages: readonly IndexedPassage[],
): number[] {
  const fitting = scores.map((score, at) => isActive[at] ? score : 0);
  const best = Math.max(...fitting);
  if (best < PASSAGE_SCORE_MIN) return [];
  return [...new Set(passages[fitting.indexOf(best)]?.tokens)];
}
