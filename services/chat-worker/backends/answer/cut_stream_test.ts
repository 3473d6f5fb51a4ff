/** The tokens that travel with every line, which a client that leaves is charged. */
import assert from "node:assert/strict";
import type { Usage } from "@gateway/shared/openai/completion";
import { textTokens } from "@gateway/shared/openai/tokens";
import { choiceChunk } from "../../../../tests/support/model_servers/model_answers.ts";
import type { ChatAnswer, Choice } from "./answer.ts";
import { newAnswer } from "./answer_fixture.ts";
import { ChunkReader } from "../chunk_reader.ts";

const usage = (prompt: number, completion: number): Usage => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: prompt + completion,
});

const readerOf = (answer: ChatAnswer, choices: readonly Choice[]) =>
  new ChunkReader({ answer, choices, redact: (text) => text });

Deno.test("every line carries the largest of the stated tokens and the text's", () => {
  const text = "word ".repeat(2_000);
  const call = { index: 0, id: "a", function: { name: "f", arguments: text } };
  const tokens = textTokens(text);
  const cases = [
    {
      name: "many words in one chunk",
      chunk: choiceChunk({ content: text }),
      expected: tokens,
    },
    {
      name: "reasoning",
      chunk: choiceChunk({ reasoning: text }),
      expected: tokens,
    },
    {
      name: "arguments of a tool call",
      chunk: choiceChunk({ tool_calls: [call] }),
      expected: tokens,
    },
    {
      name: "usage beside a word",
      chunk: { ...choiceChunk({ content: "a" }), usage: usage(3, 900) },
      expected: 900,
    },
    {
      name: "usage that is less than the text",
      chunk: { ...choiceChunk({ content: text }), usage: usage(3, 1) },
      expected: tokens,
    },
  ];
  for (const { name, chunk, expected } of cases) {
    const { answer, context } = newAnswer();
    const reader = readerOf(answer, answer.choices);
    reader.take(JSON.stringify(chunk), "");
    void answer.flush();
    assert.equal(context.tokens, expected, name);
  }
});

Deno.test("the tokens of several readers of one answer add up", () => {
  const { answer, context } = newAnswer({ n: 2 });
  for (const choice of answer.choices) {
    const reader = readerOf(answer, [choice]);
    const chunk = {
      ...choiceChunk({ content: "a" }),
      usage: usage(3, 2 ** 31),
    };
    reader.take(JSON.stringify(chunk), "");
  }
  void answer.flush();
  assert.equal(context.tokens, 2 ** 32 - 1);
});
