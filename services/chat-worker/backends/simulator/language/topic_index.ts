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
/** A word of the message that no more passages than this share use is worth repeating. */
const RARE_SHARE = 0.1;
/** A word that more than this share of the topics or passages use says nothing about any. */
const COMMON_SHARE = 0.5;
/** Words looked at of one message: the rest changes nothing but the time it takes. */
const WORDS_MAX = 400;

/** A passage as the index sees it. */
export interface IndexedPassage {
  /** Its topic's place in the list of topics. */
  topic: number;
  text: string;
  tokens: readonly number[];
  /** Each of the tokens once, in order. */
  distinctTokens: readonly number[];
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
  const topicUses = weighTopics(options);
  const passageUses = weighPassages(passages);
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
        scoresOf(stems, topicUses, topics.length),
        fallback,
      );
      const passage = fittingPassage(
        scoresOf(stems, passageUses, passages.length),
        activeTopics,
        passages,
      );
      return {
        allowedTopics:
          languageTopics.find((bits) => (bits & activeTopics) !== 0) ?? 0,
        activeTopics,
        boostedTokens: [
          ...new Set([
            ...rareTokens(texts[0] ?? "", passageUses, options),
            ...passage,
          ]),
        ],
        openingTokens: passage.slice(0, OPENING_TOKENS),
      };
    },
  };
}

/** Where a word is used, and how much it says about that place. */
interface Use {
  /** A topic or a passage, by its place in the list. */
  at: number;
  weight: number;
}

/** Per stem, its uses. Words that are everywhere are left out. */
type Uses = ReadonlyMap<string, readonly Use[]>;

function weighTopics(options: TopicIndexOptions): Uses {
  const { topics, passages } = options;
  const counts = new Map<string, Map<number, number>>();
  const add = (text: string, topic: number, count: number) => {
    for (const word of wordsOf(text)) {
      addCount(counts, stemOf(word), topic, count);
    }
  };
  // The model's inner voice is no topic to talk about.
  const isSpoken = (at: number) => topics[at]?.language !== "inner";
  for (const passage of passages) {
    if (isSpoken(passage.topic)) add(passage.text, passage.topic, 1);
  }
  topics.forEach((topic, at) => add(topic.keywords, at, KEYWORD_COUNT));
  return toUses(counts, topics.length);
}

function weighPassages(passages: readonly IndexedPassage[]): Uses {
  const counts = new Map<string, Map<number, number>>();
  passages.forEach((passage, at) => {
    for (const stem of stemsOf(passage.text)) addCount(counts, stem, at, 1);
  });
  return toUses(counts, passages.length);
}

function addCount(
  counts: Map<string, Map<number, number>>,
  stem: string,
  at: number,
  count: number,
): void {
  let places = counts.get(stem);
  if (places === undefined) {
    places = new Map();
    counts.set(stem, places);
  }
  places.set(at, (places.get(at) ?? 0) + count);
}

function toUses(
  counts: ReadonlyMap<string, ReadonlyMap<number, number>>,
  length: number,
): Uses {
  const uses = new Map<string, readonly Use[]>();
  for (const [stem, places] of counts) {
    if (places.size > length * COMMON_SHARE) continue;
    const rarity = Math.log(length / places.size);
    const weighed = [...places].map(([at, count]) => ({
      at,
      weight: rarity * Math.log2(1 + count),
    }));
    uses.set(stem, weighed);
  }
  return uses;
}

function stemsOf(text: string): Set<string> {
  return new Set(wordsOf(text).slice(0, WORDS_MAX).map(stemOf));
}

function scoresOf(
  texts: readonly ReadonlySet<string>[],
  uses: Uses,
  length: number,
): Float64Array {
  const scores = new Float64Array(length);
  texts.forEach((stems, age) => {
    for (const stem of stems) {
      for (const { at, weight } of uses.get(stem) ?? []) {
        scores[at] = (scores[at] ?? 0) + weight / (1 + 3 * age);
      }
    }
  });
  return scores;
}

function chooseTopics(scores: Float64Array, fallback: number): number {
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
  uses: Uses,
  options: TopicIndexOptions,
): number[] {
  const { passages, tokenOf } = options;
  const usersMax = passages.length * RARE_SHARE;
  const rare = wordsOf(text).slice(0, WORDS_MAX).filter((word) => {
    const places = uses.get(stemOf(word));
    return places !== undefined && places.length <= usersMax;
  });
  const tokens = rare.flatMap((word) => [tokenOf(word), tokenOf(` ${word}`)]);
  return [...new Set(tokens)].filter((token) => token !== undefined);
}

/** The distinct tokens, in order, of the passage on an active topic that fits the messages best. */
function fittingPassage(
  scores: Float64Array,
  activeTopics: number,
  passages: readonly IndexedPassage[],
): readonly number[] {
  let best = PASSAGE_SCORE_MIN;
  let fitting: IndexedPassage | undefined;
  passages.forEach((passage, at) => {
    const score = scores[at] ?? 0;
    if (score < best || (activeTopics & 1 << passage.topic) === 0) return;
    if (fitting !== undefined && score === best) return;
    best = score;
    fitting = passage;
  });
  return fitting?.distinctTokens ?? [];
}
