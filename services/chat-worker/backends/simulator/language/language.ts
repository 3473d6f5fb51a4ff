import { CORPUS, CORPUS_FALLBACK_ID } from "../corpus/corpus.ts";
import { passageTexts, type Topic } from "../corpus/topic.ts";
import { hash32 } from "../sampling/random.ts";
import { CharacterTable } from "./characters.ts";
import { countNgrams, type TrainingText } from "./ngram_counts.ts";
import { createNgramModel, type NgramModel } from "./ngram_model.ts";
import { createTokenizer, type Tokenizer } from "./tokenizer.ts";
import {
  createTopicIndex,
  type IndexedPassage,
  type TopicIndex,
} from "./topic_index.ts";
import {
  buildVocabulary,
  END_TOKEN,
  START_TOKEN,
  type Vocabulary,
} from "./vocabulary.ts";

/** Everything that is learned from a corpus. Never changes; any number of answers may use it. */
export interface Language {
  readonly tokenizer: Tokenizer;
  readonly model: NgramModel;
  readonly topics: TopicIndex;
  /** Whether a token is the end of a sentence or a line. */
  endsSentence(token: number): boolean;
}

const SENTENCE_END = /[.!?。！？\n]$/;
const LATIN_WORD = /^[\p{Script=Latin}]/u;

/** Learns a corpus. Takes about 100 ms and 8 MB. */
export function trainLanguage(topics: readonly Topic[] = CORPUS): Language {
  const characters = new CharacterTable();
  const texts = topics.map((topic) => passageTexts(topic));
  const vocabulary = buildVocabulary(texts.flat(), characters);
  const tokenizer = createTokenizer(vocabulary, characters);
  const passages = texts.flatMap((ofTopic, topic) =>
    ofTopic.map((text) => {
      const tokens = tokenizer.encode(text);
      return { topic, text, tokens, distinctTokens: [...new Set(tokens)] };
    })
  );
  const index = createTopicIndex({
    topics,
    passages,
    fallbackId: CORPUS_FALLBACK_ID,
    tokenOf: (text) => vocabulary.tokenOf(text),
  });
  const counts = countNgrams(passages.map(toTrainingText), vocabulary.size);
  const model = createNgramModel({
    counts,
    languageTopics: index.languageTopics,
    isSafeAnywhere: (token) => isSafeAnywhere(vocabulary, token),
  });
  const sentenceEnds = new Set(
    vocabulary.texts.keys().filter((token) =>
      SENTENCE_END.test(vocabulary.texts[token] ?? "")
    ),
  );
  return {
    tokenizer,
    model,
    topics: index,
    endsSentence: (token) => sentenceEnds.has(token),
  };
}

/** Learns the corpus at the first call, and gives the same language at every other. */
export function lazyLanguage(): () => Language {
  let language: Language | undefined;
  return () => language ??= trainLanguage();
}

/** Eight hexadecimal digits that change with any change of the corpus. */
export function corpusHash(topics: readonly Topic[] = CORPUS): string {
  return hash32(JSON.stringify(topics)).toString(16).padStart(8, "0");
}

function toTrainingText(passage: IndexedPassage): TrainingText {
  return {
    tokens: [START_TOKEN, ...passage.tokens, END_TOKEN],
    topicBit: 1 << passage.topic,
  };
}

/** A word of the middle of a sentence brings its own space; one without it stands at a start. */
function isSafeAnywhere(vocabulary: Vocabulary, token: number): boolean {
  const text = vocabulary.texts[token] ?? "";
  return text !== "" && !text.startsWith("\n") && !LATIN_WORD.test(text);
}
