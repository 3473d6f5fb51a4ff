/** The usage in forwarded answers. */
import assert from "node:assert/strict";
import type { ForwardName } from "./endpoints.ts";
import { usageOfTokens } from "../openai/completion.ts";
import { readWholeAnswer } from "./usage.ts";

const cases: readonly {
  endpoint: ForwardName;
  text: string;
  prompt: number | null;
  vectors: number | null;
}[] = [
  {
    endpoint: "embeddings",
    text:
      '{"data":[{"embedding":[0.1,-0.2]},{"embedding":"AAAA]"}],"usage":{"prompt_tokens":8,"total_tokens":8}}',
    prompt: 8,
    vectors: 2,
  },
  {
    endpoint: "embeddings",
    text: '{ "usage" : {"total_tokens": 5}, "data": [] }',
    prompt: 5,
    vectors: 0,
  },
  { endpoint: "embeddings", text: '{"data":{}}', prompt: null, vectors: null },
  {
    endpoint: "embeddings",
    text: '{"data":[[1]],"usage":{"prompt_tokens":-1}}',
    prompt: null,
    vectors: 1,
  },
  {
    endpoint: "rerank",
    text: '{"results":[],"usage":{"total_tokens":17}}',
    prompt: 17,
    vectors: null,
  },
  {
    endpoint: "rerank",
    text:
      '{"results":[],"meta":{"billed_units":{"search_units":1},"tokens":{"input_tokens":9}}}',
    prompt: 9,
    vectors: null,
  },
  { endpoint: "rerank", text: '{"results":[]}', prompt: null, vectors: null },
  {
    endpoint: "rerank",
    text: ' [{"index":0,"score":0.9}]',
    prompt: null,
    vectors: null,
  },
];

Deno.test("readWholeAnswer() finds the usage, and counts vectors without parsing them", () => {
  for (const { endpoint, text, prompt, vectors } of cases) {
    const usage = prompt === null ? null : usageOfTokens(prompt, 0);
    const expected = { usage, vectors, isError: false };
    assert.deepEqual(readWholeAnswer(text, endpoint), expected, text);
  }
});

Deno.test("readWholeAnswer() tells an error from an answer that mentions one", () => {
  const texts: [text: string, isError: boolean][] = [
    ['{"error":{"message":"No"}}', true],
    ['{"type":"error","error":{"type":"x"},"request_id":"r"}', true],
    ['{"error":null}', false],
    ['{"id":"r","error":{"code":"x"},"output":[]}', false],
    ['{"content":[],"usage":{},"error":"x"}', false],
  ];
  for (const [text, isError] of texts) {
    assert.equal(readWholeAnswer(text, "responses")?.isError, isError, text);
  }
});

Deno.test("readWholeAnswer() of what is neither an object nor a list, or breaks off, is null", () => {
  for (const text of ["", "<html>", "[1", '{"data":[{"embedding":[0.1,']) {
    assert.equal(readWholeAnswer(text, "embeddings"), null, text);
  }
});
