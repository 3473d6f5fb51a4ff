import assert from "node:assert/strict";
import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";
import { type AnswerIdentity, createAnswerEncoder } from "./encode_answer.ts";
import type { BackendEvent } from "./backends/backend.ts";

const IDENTITY: AnswerIdentity = {
  id: "chatcmpl-0123",
  created: 1_767_622_290,
  model: "neutral-3.7-plus",
};

const USAGE: Usage = {
  prompt_tokens: 5,
  completion_tokens: 3,
  total_tokens: 8,
};

function requestWith(change: Partial<ChatRequest>): ChatRequest {
  return {
    model: IDENTITY.model,
    messages: [{ role: "user", content: "ping" }],
    stream: true,
    include_usage: false,
    n: 1,
    ...change,
  };
}

function encode(
  change: Partial<ChatRequest>,
  events: BackendEvent[],
): unknown[] {
  const encoder = createAnswerEncoder(requestWith(change), IDENTITY);
  const text = encoder.push(events) + encoder.finish();
  assert.ok(text === "" || text.endsWith("\n"));
  return text.split("\n").slice(0, -1).map((line) => JSON.parse(line));
}

function chunk(choices: unknown[], more: object = {}): object {
  return {
    id: IDENTITY.id,
    object: "chat.completion.chunk",
    created: IDENTITY.created,
    model: IDENTITY.model,
    system_fingerprint: null,
    choices,
    ...more,
  };
}

function choice(
  index: number,
  delta: object,
  finish: string | null = null,
): object {
  return { index, delta, logprobs: null, finish_reason: finish };
}

Deno.test("a stream is a role chunk, deltas, a finish chunk with an empty delta", () => {
  assert.deepEqual(
    encode({}, [
      { type: "delta", index: 0, content: "Hel" },
      { type: "delta", index: 0, content: 'lo "you"\n' },
      { type: "finish", index: 0, reason: "stop" },
      { type: "usage", usage: USAGE },
    ]),
    [
      chunk([choice(0, { role: "assistant", content: "" })]),
      chunk([choice(0, { content: "Hel" })]),
      chunk([choice(0, { content: 'lo "you"\n' })]),
      chunk([choice(0, {}, "stop")]),
    ],
  );
});

Deno.test("include_usage puts null in every chunk and the usage in one of its own", () => {
  const chunks = encode({ include_usage: true }, [
    { type: "delta", index: 0, content: "x" },
    { type: "finish", index: 0, reason: "length" },
    { type: "usage", usage: USAGE },
  ]);
  assert.deepEqual(chunks, [
    chunk([choice(0, { role: "assistant", content: "" })], { usage: null }),
    chunk([choice(0, { content: "x" })], { usage: null }),
    chunk([choice(0, {}, "length")], { usage: null }),
    chunk([], { usage: USAGE }),
  ]);
});

Deno.test("all choices get their role chunk before the first delta of any", () => {
  const chunks = encode({ n: 3 }, [
    { type: "delta", index: 1, content: "b" },
    { type: "finish", index: 1, reason: "stop" },
    { type: "finish", index: 0, reason: "stop" },
    { type: "finish", index: 2, reason: "stop" },
    { type: "usage", usage: USAGE },
  ]);
  assert.deepEqual(
    chunks.slice(0, 3),
    [0, 1, 2].map((index) =>
      chunk([choice(index, { role: "assistant", content: "" })])
    ),
  );
});

Deno.test("an answer that begins with a tool call has null content beside its role", () => {
  const [first, second] = encode({}, [
    {
      type: "delta",
      index: 0,
      toolCalls: [{
        index: 0,
        id: "call_1",
        type: "function",
        function: { name: "f", arguments: "" },
      }],
    },
    { type: "finish", index: 0, reason: "tool_calls" },
    { type: "usage", usage: USAGE },
  ]);
  assert.deepEqual(
    first,
    chunk([choice(0, { role: "assistant", content: null })]),
  );
  assert.deepEqual(
    second,
    chunk([choice(0, {
      tool_calls: [{
        index: 0,
        id: "call_1",
        type: "function",
        function: { name: "f", arguments: "" },
      }],
    })]),
  );
});

Deno.test("reasoning travels as reasoning_content and is absent when there is none", () => {
  const chunks = encode({}, [
    { type: "delta", index: 0, reasoning: "hm" },
    { type: "delta", index: 0, content: "yes" },
    { type: "finish", index: 0, reason: "stop" },
    { type: "usage", usage: USAGE },
  ]);
  assert.deepEqual(chunks[1], chunk([choice(0, { reasoning_content: "hm" })]));
  assert.deepEqual(chunks[2], chunk([choice(0, { content: "yes" })]));
});

Deno.test("a whole response joins deltas, reasoning, tool calls and log probabilities", () => {
  const [completion] = encode({ stream: false, n: 2 }, [
    { type: "delta", index: 0, reasoning: "let me " },
    { type: "delta", index: 0, reasoning: "think" },
    {
      type: "delta",
      index: 0,
      content: "Hel",
      logprobs: { content: [1], refusal: null },
    },
    {
      type: "delta",
      index: 0,
      content: "lo",
      logprobs: { content: [2], refusal: null },
    },
    {
      type: "delta",
      index: 1,
      toolCalls: [{
        index: 0,
        id: "call_1",
        type: "function",
        function: { name: "f", arguments: '{"a":' },
      }],
    },
    {
      type: "delta",
      index: 1,
      toolCalls: [{ index: 0, function: { arguments: "1}" } }],
    },
    { type: "finish", index: 1, reason: "tool_calls" },
    { type: "finish", index: 0, reason: "stop" },
    { type: "usage", usage: USAGE },
  ]);
  assert.deepEqual(completion, {
    id: IDENTITY.id,
    object: "chat.completion",
    created: IDENTITY.created,
    model: IDENTITY.model,
    choices: [
      {
        index: 0,
        message: {
          role: "assistant",
          content: "Hello",
          refusal: null,
          reasoning_content: "let me think",
        },
        logprobs: { content: [1, 2], refusal: null },
        finish_reason: "stop",
      },
      {
        index: 1,
        message: {
          role: "assistant",
          content: null,
          refusal: null,
          tool_calls: [{
            id: "call_1",
            type: "function",
            function: { name: "f", arguments: '{"a":1}' },
          }],
        },
        logprobs: null,
        finish_reason: "tool_calls",
      },
    ],
    usage: USAGE,
    system_fingerprint: null,
  });
});

Deno.test("an answer without a token has empty content, streamed or not", () => {
  const events: BackendEvent[] = [
    { type: "finish", index: 0, reason: "length" },
    { type: "usage", usage: USAGE },
  ];
  const [completion] = encode({ stream: false }, events);
  assert.partialDeepStrictEqual(completion, {
    choices: [{ message: { content: "" } }],
  });
  assert.deepEqual(encode({}, events), [
    chunk([choice(0, { role: "assistant", content: "" })]),
    chunk([choice(0, {}, "length")]),
  ]);
});

for (const stream of [true, false]) {
  Deno.test(`finish() refuses an incomplete answer (stream: ${stream})`, () => {
    const finish0: BackendEvent = { type: "finish", index: 0, reason: "stop" };
    const incomplete: BackendEvent[][] = [
      [],
      [{ type: "delta", index: 0, content: "x" }],
      [finish0],
      [finish0, { type: "usage", usage: USAGE }],
    ];
    for (const events of incomplete) {
      const encoder = createAnswerEncoder(
        requestWith({ stream, n: 2 }),
        IDENTITY,
      );
      encoder.push(events);
      assert.throws(() => encoder.finish(), { code: "upstream_truncated" });
    }
  });

  Deno.test(`push() refuses a choice nobody asked for (stream: ${stream})`, () => {
    const encoder = createAnswerEncoder(requestWith({ stream }), IDENTITY);
    assert.throws(
      () => encoder.push([{ type: "finish", index: 1, reason: "stop" }]),
      { code: "upstream_invalid" },
    );
  });

  Deno.test(`completionTokens counts deltas until the backend counts (stream: ${stream})`, () => {
    const encoder = createAnswerEncoder(requestWith({ stream }), IDENTITY);
    encoder.push([
      { type: "delta", index: 0, content: "a" },
      { type: "delta", index: 0, content: "b" },
    ]);
    assert.equal(encoder.completionTokens, 2);
    encoder.push([{ type: "usage", usage: USAGE }]);
    assert.equal(encoder.completionTokens, 3);
  });
}

for (const stream of [true, false]) {
  Deno.test(`the fingerprint of the server is in ${stream ? "every chunk" : "a whole answer"}`, () => {
    const lines = encode({ stream, include_usage: true }, [
      { type: "fingerprint", fingerprint: "fp_1" },
      { type: "delta", index: 0, content: "Hi" },
      { type: "finish", index: 0, reason: "stop" },
      { type: "usage", usage: USAGE },
    ]);
    assert.equal(lines.length, stream ? 4 : 1);
    for (const line of lines) {
      assert.equal(Reflect.get(Object(line), "system_fingerprint"), "fp_1");
    }
  });
}
