// Promise: a request is not taken for less than it is, and where nobody counts, for about what it is.
import assert from "node:assert/strict";
import type { ChatRequest } from "../openai/chat.ts";
import { chatRequest } from "../../tests/support/chat_request.ts";
import { gptTokens } from "./gpt_tokens_fixture.ts";
import { promptTokensLikely, promptTokensMost } from "./prompt_tokens.ts";
import { TEXT_SAMPLES } from "./text_samples_fixture.ts";
import { textTokensLikely } from "./text_tokens.ts";

Deno.test("promptTokensMost() of a message cut short anywhere is not less than tokenizers find", () => {
  for (const [name, text] of Object.entries(TEXT_SAMPLES)) {
    for (let length = 1; length < text.length; length += 13) {
      const content = text.slice(0, length);
      if (!content.isWellFormed()) continue;
      // Its 4 tokens besides the text take the chance out of short ones.
      const estimate = promptTokensMost(
        chatRequest({ messages: [{ role: "user", content }] }),
      );
      const { most } = gptTokens(content);
      assert.ok(estimate >= most, `${name}, ${length}: ${estimate} of ${most}`);
    }
  }
});

Deno.test("promptTokensMost() of tools and tool calls is not less than their text", () => {
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
  assert.ok(
    promptTokensMost(chatRequest({ tools })) >=
      gptTokens(JSON.stringify(tools)).most,
  );

  const call = {
    id: "call_8f14e45fceea167a",
    type: "function" as const,
    function: { name: "get_weather", arguments: '{"city":"Zürich","days":3}' },
  };
  const history = promptTokensMost(
    chatRequest({
      messages: [{ role: "assistant", content: null, tool_calls: [call] }],
    }),
  );
  assert.ok(history >= gptTokens(JSON.stringify([call])).most);
});

Deno.test("promptTokensLikely() counts every text, 4 a message, and 1,000 an image", () => {
  const english = TEXT_SAMPLES.english ?? "";
  const tools: ChatRequest["tools"] = [
    { type: "function", function: { name: "f", description: english } },
  ];
  const url = `data:,${"x".repeat(9_999)}`;
  const request = chatRequest({
    messages: [
      { role: "system", content: english },
      {
        role: "user",
        content: [
          { type: "text", text: english },
          { type: "image_url", image_url: { url } },
        ],
      },
    ],
    tools,
  });
  const expected = 2 * textTokensLikely(english) +
    textTokensLikely(JSON.stringify(tools)) + 2 * 4 + 1_000;
  assert.equal(promptTokensLikely(request), expected);
  assert.ok(expected < promptTokensMost(request));
});
