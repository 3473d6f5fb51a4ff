import assert from "node:assert/strict";
import type { ChatMessage, ChatRequest } from "@gateway/shared/openai/chat";
import { chatRequest } from "../../../tests/support/chat_request.ts";
import { estimateTokens } from "./token_estimate.ts";

const says = (content: ChatMessage["content"]): ChatMessage => ({
  role: "user",
  content,
});

const PROMPTS: {
  name: string;
  part: Partial<ChatRequest>;
  tokens: number;
}[] = [
  { name: "no message", part: {}, tokens: 0 },
  { name: "an empty message", part: { messages: [says("")] }, tokens: 4 },
  { name: "a word", part: { messages: [says("hello")] }, tokens: 6 },
  {
    name: "a word and a mark",
    part: { messages: [says("hello!")] },
    tokens: 7,
  },
  { name: "CJK", part: { messages: [says("你好")] }, tokens: 7 },
  { name: "emoji", part: { messages: [says("😀")] }, tokens: 8 },
  {
    name: "two messages",
    part: { messages: [says("abc"), says("abc")] },
    tokens: 10,
  },
  {
    name: "text and image parts; the data URL does not count",
    part: {
      messages: [says([
        { type: "text", text: "abc" },
        { type: "image_url", image_url: { url: "data:" + "A".repeat(9_000) } },
      ])],
    },
    tokens: 4 + 1 + 1_500,
  },
  {
    name: "tool calls of the history",
    part: {
      messages: [{
        role: "assistant",
        content: null,
        tool_calls: [{
          id: "c",
          type: "function",
          function: { name: "f", arguments: "{}" },
        }],
      }],
    },
    tokens: 4 + 42,
  },
  {
    name: "tool definitions",
    part: { tools: [{ type: "function", function: { name: "f" } }] },
    tokens: 26,
  },
  {
    name: "a response schema",
    part: {
      response_format: {
        type: "json_schema",
        json_schema: { name: "s", schema: { type: "object" } },
      },
    },
    tokens: 22,
  },
];

for (const { name, part, tokens } of PROMPTS) {
  Deno.test(`estimateTokens() of ${name}: ${tokens} prompt tokens`, () => {
    assert.equal(estimateTokens(chatRequest(part)).promptTokens, tokens);
  });
}

const OUTPUTS: {
  name: string;
  part: Partial<ChatRequest>;
  outputTokensMax?: number;
  tokens: number;
}[] = [
  { name: "max_tokens", part: { max_tokens: 10 }, tokens: 10 },
  { name: "n choices", part: { max_tokens: 10, n: 3 }, tokens: 30 },
  {
    name: "more than the model can",
    part: { max_tokens: 10_000, n: 2 },
    outputTokensMax: 4_096,
    tokens: 8_192,
  },
];

for (const { name, part, outputTokensMax, tokens } of OUTPUTS) {
  Deno.test(`estimateTokens() of ${name}: ${tokens} completion tokens`, () => {
    const estimate = estimateTokens(chatRequest(part), outputTokensMax);
    assert.equal(estimate.completionTokens, tokens);
    assert.equal(estimate.totalTokens, estimate.promptTokens + tokens);
  });
}

Deno.test("estimateTokens() reserves a default without max_tokens, and thinking on top", () => {
  const { max_tokens: _, ...open } = chatRequest({});
  assert.equal(estimateTokens(open).completionTokens, 1_024);
  assert.equal(
    estimateTokens({ ...open, enable_thinking: true }).completionTokens,
    2_048,
  );
  assert.equal(
    estimateTokens({ ...open, enable_thinking: true, thinking_budget: 500 })
      .completionTokens,
    1_524,
  );
  assert.equal(
    estimateTokens(open, 100).completionTokens,
    100,
  );
});
