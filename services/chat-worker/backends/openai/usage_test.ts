import assert from "node:assert/strict";
import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";
import { createTextMeter, estimateUsage, parseUsage } from "./usage.ts";

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

const measured: { pieces: string[]; tokens: number }[] = [
  { pieces: [], tokens: 0 },
  { pieces: [""], tokens: 0 },
  { pieces: ["hello world"], tokens: 3 },
  { pieces: ["hel", "lo w", "orld"], tokens: 3 },
  { pieces: ["你好世界"], tokens: 4 },
  { pieces: ["你好", " ok"], tokens: 3 },
];

for (const { pieces, tokens } of measured) {
  Deno.test(`createTextMeter() takes ${JSON.stringify(pieces)} for ${tokens} tokens`, () => {
    const meter = createTextMeter();
    for (const piece of pieces) meter.add(piece);
    assert.equal(meter.tokens, tokens);
  });
}

Deno.test("estimateUsage() counts text, tools, images and messages, not the bytes of an image", () => {
  const request: ChatRequest = {
    model: "m",
    stream: true,
    include_usage: false,
    n: 1,
    messages: [
      { role: "system", content: "x".repeat(40) },
      {
        role: "user",
        content: [
          { type: "text", text: "x".repeat(40) },
          {
            type: "image_url",
            image_url: { url: `data:,${"x".repeat(9_999)}` },
          },
        ],
      },
      {
        role: "assistant",
        content: null,
        tool_calls: [{
          id: "c",
          type: "function",
          function: { name: "f", arguments: "{}" },
        }],
      },
    ],
    tools: [{ type: "function", function: { name: "f" } }],
  };
  const answer = createTextMeter();
  for (const piece of ["a", "b", "c"]) answer.add(piece);
  const tools = JSON.stringify(request.tools).length;
  const prompt = Math.ceil((40 + 40 + 3 + tools) / 4) + 1_000 + 3 * 4;
  assert.deepEqual(estimateUsage(request, answer), {
    prompt_tokens: prompt,
    completion_tokens: 3,
    total_tokens: prompt + 3,
  });
});
