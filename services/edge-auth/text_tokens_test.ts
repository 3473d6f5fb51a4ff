// Promise: a request is not taken for less than it is, whatever it is made of. The
// tokenizers of OpenAI stand for those of all models; nothing but tests uses them.
import assert from "node:assert/strict";
import { countTokens as countCl100k } from "gpt-tokenizer/esm/encoding/cl100k_base";
import { countTokens as countO200k } from "gpt-tokenizer/esm/encoding/o200k_base";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { chatRequest } from "./chat_request_fixture.ts";
import { TEXT_SAMPLES } from "./text_samples_fixture.ts";
import { textTokens } from "./text_tokens.ts";
import { estimateTokens } from "./token_estimate.ts";

/** How much too high it may be where it matters; ratios of what it was when it was made. */
const AT_MOST: Readonly<Record<string, number>> = {
  english: 1.7,
  german: 1.9,
  french: 1.7,
  chinese: 1.8,
  japanese: 1.8,
  typescript: 1.9,
  python: 1.6,
  json: 1.9,
  base64: 1.2,
};
const LONG_CHARS = 200_000;

function counted(text: string): { least: number; most: number } {
  const counts = [countO200k(text), countCl100k(text)];
  return { least: Math.min(...counts), most: Math.max(...counts) };
}

for (const [name, text] of Object.entries(TEXT_SAMPLES)) {
  Deno.test(`textTokens() of ${name} is not less than tokenizers find`, () => {
    const estimate = textTokens(text);
    const { least, most } = counted(text);
    assert.ok(estimate >= most, `${estimate} of ${most} tokens`);
    const bound = AT_MOST[name];
    if (bound !== undefined) {
      assert.ok(estimate <= bound * least, `${estimate} of ${least} tokens`);
    }
  });
}

Deno.test("the estimate of a message cut short anywhere is not less either", () => {
  for (const [name, text] of Object.entries(TEXT_SAMPLES)) {
    for (let length = 1; length < text.length; length += 13) {
      const content = text.slice(0, length);
      if (!content.isWellFormed()) continue;
      // Its 4 tokens besides the text take the chance out of short ones.
      const estimate = estimateTokens(
        chatRequest({ messages: [{ role: "user", content }] }),
      ).promptTokens;
      const { most } = counted(content);
      assert.ok(estimate >= most, `${name}, ${length}: ${estimate} of ${most}`);
    }
  }
});

Deno.test("textTokens() of a long text, of which it sees a part, is as good", () => {
  for (const [name, text] of Object.entries(TEXT_SAMPLES)) {
    const long = text.repeat(Math.ceil(LONG_CHARS / text.length));
    const whole = textTokens(text) * (long.length / text.length);
    const estimate = textTokens(long);
    assert.ok(
      estimate > 0.9 * whole && estimate < 1.2 * whole + 500,
      `${name}: ${estimate} of ${whole}`,
    );
  }
});

Deno.test("textTokens() takes a long text in little time, and an empty one for nothing", () => {
  assert.equal(textTokens(""), 0);
  const text = (TEXT_SAMPLES.english ?? "").repeat(30_000);
  assert.ok(text.length > 10_000_000);
  textTokens(text);
  const startedAtMs = performance.now();
  textTokens(text);
  const tookMs = performance.now() - startedAtMs;
  assert.ok(tookMs < 20, `${tookMs} ms for ${text.length} characters`);
});

Deno.test("the estimate of tools, schemas, tool calls and n is not less than their text", () => {
  const tools: ChatRequest["tools"] = [{
    type: "function",
    function: {
      name: "get_weather",
      description: "Current weather of a city, in °C and mm of rain.",
      parameters: {
        type: "object",
        properties: { city: { type: "string" }, days: { type: "integer" } },
        required: ["city"],
      },
    },
  }];
  const { promptTokens } = estimateTokens(chatRequest({ tools }));
  assert.ok(promptTokens >= counted(JSON.stringify(tools)).most);

  const call = {
    id: "call_8f14e45fceea167a",
    type: "function" as const,
    function: { name: "get_weather", arguments: '{"city":"Zürich","days":3}' },
  };
  const history = estimateTokens(
    chatRequest({
      messages: [{ role: "assistant", content: null, tool_calls: [call] }],
    }),
  );
  assert.ok(history.promptTokens >= counted(JSON.stringify([call])).most);

  const many = estimateTokens(chatRequest({ n: 4, max_tokens: 100, tools }));
  assert.equal(many.totalTokens, promptTokens + 400);
});
