import assert from "node:assert/strict";
import type { Usage } from "@gateway/shared/openai/chat";
import { promptTokensLikely } from "@gateway/shared/tokens/prompt_tokens";
import { createTextMeter } from "@gateway/shared/tokens/text_meter";
import { textTokensLikely } from "@gateway/shared/tokens/text_tokens";
import { chatRequest } from "../../../../tests/support/chat_request.ts";
import { estimateUsage, parseUsage } from "./usage.ts";

const parsed: { name: string; value: unknown; usage: Usage | null }[] = [
  {
    name: "three counts",
    value: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
  },
  {
    name: "a total that is missing",
    value: { prompt_tokens: 1, completion_tokens: 2 },
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
  },
  {
    name: "a total that is wrong",
    value: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 9 },
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
  },
  {
    name: "details",
    value: {
      prompt_tokens: 5,
      completion_tokens: 7,
      total_tokens: 12,
      prompt_tokens_details: { cached_tokens: 5, audio_tokens: 0 },
      completion_tokens_details: { reasoning_tokens: 7 },
    },
    usage: {
      prompt_tokens: 5,
      completion_tokens: 7,
      total_tokens: 12,
      prompt_tokens_details: { cached_tokens: 5 },
      completion_tokens_details: { reasoning_tokens: 7 },
    },
  },
  {
    name: "details that cannot be",
    value: {
      prompt_tokens: 5,
      completion_tokens: 7,
      prompt_tokens_details: { cached_tokens: 6 },
      completion_tokens_details: { reasoning_tokens: 8 },
    },
    usage: { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 },
  },
  {
    name: "details that are null",
    value: {
      prompt_tokens: 5,
      completion_tokens: 7,
      prompt_tokens_details: null,
      completion_tokens_details: { reasoning_tokens: null },
    },
    usage: { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 },
  },
  {
    name: "reasoning beside the completion",
    value: {
      prompt_tokens: 5,
      completion_tokens: 7,
      total_tokens: 32,
      completion_tokens_details: { reasoning_tokens: 20 },
    },
    usage: {
      prompt_tokens: 5,
      completion_tokens: 27,
      total_tokens: 32,
      completion_tokens_details: { reasoning_tokens: 20 },
    },
  },
  {
    name: "details beside the counts, as SGLang and DeepSeek have them",
    value: {
      prompt_tokens: 5,
      completion_tokens: 7,
      total_tokens: 12,
      prompt_tokens_details: null,
      reasoning_tokens: 3,
      prompt_cache_hit_tokens: 4,
      prompt_cache_miss_tokens: 1,
    },
    usage: {
      prompt_tokens: 5,
      completion_tokens: 7,
      total_tokens: 12,
      prompt_tokens_details: { cached_tokens: 4 },
      completion_tokens_details: { reasoning_tokens: 3 },
    },
  },
  { name: "null", value: null, usage: null },
  { name: "an array", value: [1, 2], usage: null },
  { name: "a count missing", value: { prompt_tokens: 1 }, usage: null },
  {
    name: "a negative count",
    value: { prompt_tokens: 1, completion_tokens: -1 },
    usage: null,
  },
  {
    name: "a fraction",
    value: { prompt_tokens: 1.5, completion_tokens: 1 },
    usage: null,
  },
  {
    name: "a string",
    value: { prompt_tokens: "1", completion_tokens: 1 },
    usage: null,
  },
  {
    name: "a number too large to be exact",
    value: { prompt_tokens: 2 ** 53, completion_tokens: 1 },
    usage: null,
  },
];

for (const { name, value, usage } of parsed) {
  Deno.test(`API10: parseUsage() reads ${name}`, () =>
    assert.deepEqual(parseUsage(value), usage));
}

const answers: { name: string; pieces: string[]; tokens: number }[] = [
  { name: "nothing", pieces: [], tokens: 0 },
  { name: "a piece for each token", pieces: ["a", "b", "c"], tokens: 3 },
  {
    name: "all in one piece",
    pieces: ["The answer is forty-two, as ever."],
    tokens: textTokensLikely("The answer is forty-two, as ever."),
  },
];

for (const { name, pieces, tokens } of answers) {
  Deno.test(`estimateUsage() of ${name} is ${tokens} tokens`, () => {
    const request = chatRequest({
      messages: [{ role: "user", content: "How many?" }],
    });
    const answer = createTextMeter();
    for (const piece of pieces) answer.add(piece);
    const prompt = promptTokensLikely(request);
    assert.deepEqual(estimateUsage(request, answer), {
      prompt_tokens: prompt,
      completion_tokens: tokens,
      total_tokens: prompt + tokens,
    });
  });
}
