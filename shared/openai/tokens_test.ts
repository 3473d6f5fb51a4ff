/** Estimates of tokens from text. */
import assert from "node:assert/strict";
import { chatRequest } from "../../tests/support/chat_request.ts";
import { promptTokens, textTokens } from "./tokens.ts";

Deno.test("a text has one token for every four bytes of UTF-8", () => {
  const rows: [text: string, tokens: number][] = [
    ["", 0],
    ["a", 0.25],
    ["hello", 1.25],
    ["网关检查", 3],
    ["x".repeat(4_000_000), 1_000_000],
  ];
  for (const [text, tokens] of rows) assert.equal(textTokens(text), tokens);
});

Deno.test("the tokens of a prompt are those of its texts, tools and schema, 4 a message and 1,000 an image", () => {
  const text = "A gateway checks every request.";
  const tools = [
    { type: "function" as const, function: { name: "f", description: text } },
  ];
  const call = {
    id: "call_8f14e45fceea167a",
    type: "function" as const,
    function: { name: "get_weather", arguments: '{"city":"Zürich","days":3}' },
  };
  const json_schema = { name: "s", schema: { type: "object" } };
  const url = `data:,${"x".repeat(9_999)}`;
  const request = chatRequest({
    messages: [
      { role: "system", content: text, name: "Ann" },
      {
        role: "user",
        content: [
          { type: "text", text },
          { type: "image_url", image_url: { url } },
        ],
      },
      { role: "assistant", content: null, tool_calls: [call] },
      {
        role: "assistant",
        content: "",
        refusal: "No.",
        reasoning_content: "Hm",
      },
    ],
    tools,
    response_format: { type: "json_schema", json_schema },
  });
  const texts = [
    text,
    text,
    "Ann",
    "No.",
    "Hm",
    JSON.stringify(tools),
    JSON.stringify([call]),
    JSON.stringify(json_schema),
  ];
  const expected = texts.reduce((total, each) => total + textTokens(each), 0);
  assert.equal(promptTokens(request), Math.ceil(expected) + 4 * 4 + 1_000);
});
