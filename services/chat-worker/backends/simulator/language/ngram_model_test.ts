import assert from "node:assert/strict";
import { CORPUS } from "../corpus/corpus.ts";
import { LANGUAGES, type Topic } from "../corpus/topic.ts";
import { language as learned } from "../test_support.ts";
import { Candidates } from "./candidates.ts";
import { corpusHash, type Language, trainLanguage } from "./language.ts";
import type { Bias } from "./ngram_model.ts";
import { END_TOKEN, START_TOKEN } from "./vocabulary.ts";

const TOPICS: Topic[] = [
  {
    id: "small-talk",
    language: "en",
    keywords: "hello",
    passages: ["the cat sat", "the cat sat", "the cat ran", "a dog ran"],
  },
  {
    id: "birds",
    language: "en",
    keywords: "fly feather",
    passages: ["the bird flew", "a bird flew"],
  },
  {
    id: "german",
    language: "de",
    keywords: "hallo",
    passages: ["der Hund lief", "der Vogel flog"],
  },
];

Deno.test("the model prefers what followed a context more often", () => {
  const { probabilityOf } = predictAfter(trainLanguage(TOPICS), "the cat");
  assert.ok(probabilityOf(" sat") > probabilityOf(" ran"));
  assert.ok(probabilityOf(" ran") > probabilityOf(" flew"));
});

Deno.test("the model knows what begins and what ends a text", () => {
  const trained = trainLanguage(TOPICS);
  const opening = predictAfter(trained, "");
  assert.ok(opening.probabilityOf("the") > 0.4);
  assert.ok(opening.probabilityOf(" sat") < 0.01);
  assert.ok(predictAfter(trained, "the cat sat").probabilityOfEnd > 0.5);
  assert.ok(predictAfter(trained, "the").probabilityOfEnd < 0.1);
});

Deno.test("the model goes on after words it never saw together", () => {
  const { probabilityOf } = predictAfter(trainLanguage(TOPICS), "sat bird");
  assert.ok(probabilityOf(" flew") > 0.5);
});

Deno.test("after words it never saw, many neighbours count more than many occurrences", () => {
  // Kneser and Ney's example: "francisco" is frequent, and only after "san".
  const passages = [
    ...Array.from({ length: 9 }, () => "they saw san francisco"),
    "a red glass",
    "one blue glass",
    "my green glass",
  ];
  const topic: Topic = {
    id: "small-talk",
    language: "en",
    keywords: "",
    passages,
  };
  const trained = trainLanguage([topic]);
  const { probabilityOf } = predictAfter(trained, "zebra");
  assert.ok(probabilityOf(" glass") > 2 * probabilityOf(" francisco"));
});

Deno.test("a topic of the request is preferred, another language is not spoken", () => {
  const trained = trainLanguage(TOPICS);
  const plain = predictAfter(trained, "the");
  const birds = predictAfter(
    trained,
    "the",
    trained.topics.choose(["feather"]),
  );
  assert.ok(birds.probabilityOf(" bird") > 2 * plain.probabilityOf(" bird"));
  assert.equal(plain.probabilityOf("der"), 0);
  const german = predictAfter(trained, "", trained.topics.choose(["hallo"]));
  assert.ok(german.probabilityOf("der") > 0.9);
  assert.equal(german.probabilityOf("the"), 0);
});

Deno.test("a message about nothing leads to the fallback topic", () => {
  const { topics } = trainLanguage(TOPICS);
  const bias = topics.choose(["xyzzy"]);
  assert.equal(bias.activeTopics, topics.bitOf("small-talk"));
  assert.deepEqual(bias.boostedTokens, []);
});

Deno.test("a subject stays when the next message does not name one", () => {
  const { topics } = learned();
  const bias = topics.choose(["and then?", "How do I bake bread in an oven?"]);
  assert.notEqual(bias.activeTopics & topics.bitOf("cooking"), 0);
});

const SUBJECTS: [message: string, topic: string][] = [
  ["How do I cook rice?", "cooking"],
  ["Why is the sky blue?", "science"],
  ["Write me a poem", "poems"],
  ["explain this python function", "code"],
  ["What is a rate limit?", "gateways"],
  ["Wie geht es dir?", "german"],
  ["Bonjour, comment ça va ?", "french"],
  ["¿Cómo estás?", "spanish"],
  ["你好吗", "chinese"],
  ["日本語で教えてください", "japanese"],
  ["who are you?", "about"],
  ["hi", "small-talk"],
];
for (const [message, topic] of SUBJECTS) {
  Deno.test(`"${message}" is about ${topic}`, () => {
    const { topics } = learned();
    const bit = topics.bitOf(topic);
    assert.notEqual(topics.choose([message]).activeTopics & bit, 0);
  });
}

Deno.test("the corpus fits its bounds: 31 topics, every language, plain text", () => {
  assert.ok(CORPUS.length <= 31);
  assert.equal(new Set(CORPUS.map(({ id }) => id)).size, CORPUS.length);
  for (const id of LANGUAGES) {
    assert.ok(CORPUS.some(({ language }) => language === id), id);
  }
  assert.match(corpusHash(), /^[0-9a-f]{8}$/);
  assert.notEqual(corpusHash(TOPICS), corpusHash());
});

Deno.test("every passage is likely to the model that learned it", () => {
  // A model that forgot its corpus, or mixed up its contexts, gives each word about 1 in 100.
  const { tokenizer, model, topics } = learned();
  const candidates = new Candidates(tokenizer.vocabulary.size);
  const text = CORPUS[4]?.passages[0]?.replaceAll("\n", " ") ?? "";
  const bias = topics.choose([text]);
  const history = [START_TOKEN];
  let logSum = 0;
  const tokens = tokenizer.encode(text);
  for (const token of tokens) {
    model.predict(history, bias, candidates);
    candidates.normalise(1);
    const slot = candidates.slotOf(token);
    assert.ok(slot >= 0);
    logSum += Math.log(candidates.probabilities[slot] ?? 0);
    history.push(token);
  }
  assert.ok(Math.exp(logSum / tokens.length) > 0.4);
});

function predictAfter(trained: Language, text: string, bias?: Bias) {
  const { tokenizer, model } = trained;
  const candidates = new Candidates(tokenizer.vocabulary.size);
  const fallback = trained.topics.choose(["xyzzy"]);
  model.predict(
    [START_TOKEN, ...tokenizer.encode(text)],
    bias ?? { ...fallback, activeTopics: 0 },
    candidates,
  );
  candidates.normalise(1);
  const probabilityOfToken = (token: number) => {
    const slot = candidates.slotOf(token);
    return slot < 0 ? 0 : candidates.probabilities[slot] ?? 0;
  };
  return {
    probabilityOf: (word: string) =>
      probabilityOfToken(tokenizer.vocabulary.tokenOf(word) ?? -1),
    probabilityOfEnd: probabilityOfToken(END_TOKEN),
  };
}
