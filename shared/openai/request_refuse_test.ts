import assert from "node:assert/strict";
import { ping, refusalOf } from "./request_cases_test.ts";

for (
  const [body, kind] of [
    [[], "an array"],
    ["x", "a string"],
    [null, "null"],
    [7, "an integer"],
    [true, "a boolean"],
    [undefined, "nothing"],
  ] as const
) {
  Deno.test(`parseChatRequest() refuses ${kind} as a body`, () => {
    const error = refusalOf(body);
    assert.equal(error.status, 400);
    assert.equal(
      error.message,
      "Invalid type for the request body: expected an object, but got " +
        `${kind} instead.`,
    );
  });
}

type Pair = [string, { [name: string]: unknown }, string];

const ORDER: Pair[] = [
  ["model before messages", { model: undefined, messages: [] }, "model"],
  ["messages before tools", { messages: [], tools: 1 }, "messages"],
  ["tools before n", { tools: 1, n: 0 }, "tools"],
  [
    "parallel_tool_calls before n",
    { parallel_tool_calls: 1, n: 0 },
    "parallel_tool_calls",
  ],
  [
    "max_completion_tokens before n",
    { n: 0, max_completion_tokens: 0 },
    "max_completion_tokens",
  ],
  ["n before temperature", { temperature: 3, n: 0 }, "n"],
  ["temperature before top_p", { top_p: 3, temperature: 3 }, "temperature"],
  ["top_p before penalties", { presence_penalty: 3, top_p: 3 }, "top_p"],
  [
    "presence before frequency",
    { frequency_penalty: 3, presence_penalty: 3 },
    "presence_penalty",
  ],
  ["logprobs before seed", { seed: "x", logprobs: 1 }, "logprobs"],
  ["seed before stream", { stream: 1, seed: "x" }, "seed"],
  ["a bad field before missing content", {
    messages: [{ role: "user" }],
    stream: 1,
  }, "stream"],
  ["a bad role before missing content", {
    messages: [{ role: "user" }, { role: "x" }],
  }, "messages[1].role"],
];

for (const [name, fields, param] of ORDER) {
  Deno.test(`parseChatRequest() reports ${name}`, () => {
    assert.equal(refusalOf({ ...ping, ...fields }).param, param);
  });
}

Deno.test("parseChatRequest() never repeats what people wrote", () => {
  const secret = "my secret prompt";
  const bodies = [
    { messages: [{ role: "user", content: [secret] }] },
    { messages: [{ role: "user", content: `${secret}\ud800` }] },
    {
      messages: [{ role: "user", content: [{ type: "text", text: [secret] }] }],
    },
    { messages: secret },
    { temperature: secret },
    { stop: [`${secret}\ud800`] },
    {
      tools: [{
        type: "function",
        function: { name: "f", parameters: { [secret]: Infinity } },
      }],
    },
    { top_k: { [secret]: "\ud800" } },
  ];
  for (const fields of bodies) {
    const error = refusalOf({ ...ping, ...fields });
    assert.ok(
      !JSON.stringify(error.toBody()).includes("secret"),
      error.message,
    );
  }
});

Deno.test("parseChatRequest() refuses a million wrong elements as fast as one", () => {
  const many = Array(1_000_000).fill(7);
  const wide = Array.from(
    { length: 4096 },
    () => ({ role: "user", content: Array(1024).fill(7) }),
  );
  for (
    const fields of [{ messages: many }, { messages: wide }, { tools: many }, {
      stop: many,
    }]
  ) {
    const start = performance.now();
    assert.equal(refusalOf({ ...ping, ...fields }).status, 400);
    // 4 million issues of zod would take seconds and a gigabyte.
    assert.ok(performance.now() - start < 500);
  }
});
