/** The lines of an answer, as a stream and whole. */
import assert from "node:assert/strict";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Logprobs, Usage } from "@gateway/shared/openai/completion";
import type { ChoicePart } from "./answer.ts";
import { linesOf, newAnswer } from "./answer_fixture.ts";

const USAGE: Usage = {
  prompt_tokens: 5,
  completion_tokens: 3,
  total_tokens: 8,
};
const IDENTITY = {
  id: "chatcmpl-req1",
  created: 1_767_622_290,
  model: "neutral-3.7-plus",
};

/** What an answer is made of: a delta, or a finish reason. */
type Part =
  | { index: number; delta: ChoicePart["delta"]; logprobs?: Logprobs }
  | { index: number; finish: "stop" | "length" | "tool_calls" };

function encode(change: Partial<ChatRequest>, parts: Part[]): unknown[] {
  const { answer, context } = newAnswer({ include_usage: false, ...change });
  for (const { index, ...part } of parts) {
    const choice = answer.choices[index] ?? assert.fail("no such choice");
    if ("finish" in part) answer.finish(choice, part.finish);
    else answer.add(choice, part);
  }
  answer.end({ counts: USAGE, members: USAGE });
  return linesOf(context);
}

function chunk(choices: unknown[], more: object = {}): object {
  return {
    ...IDENTITY,
    object: "chat.completion.chunk",
    system_fingerprint: null,
    choices,
    ...more,
  };
}

function choice(index: number, delta: object, finish: string | null = null) {
  return { index, delta, logprobs: null, finish_reason: finish };
}

function role(index: number, content: string | null = ""): object {
  return choice(index, { role: "assistant", content });
}

const CALL = {
  index: 0,
  id: "call_1",
  type: "function" as const,
  function: { name: "f", arguments: '{"a":' },
};

Deno.test("a stream begins with the role chunks of all choices; usage is null in all chunks but the last", () => {
  const parts: Part[] = [{ index: 1, delta: { content: 'b "c"\n' } }, {
    index: 1,
    finish: "stop",
  }, {
    index: 0,
    finish: "length",
  }];
  const choices = [
    role(0),
    role(1),
    choice(1, { content: 'b "c"\n' }),
    choice(1, {}, "stop"),
    choice(0, {}, "length"),
  ];
  assert.deepEqual(encode({ n: 2, include_usage: true }, parts), [
    ...choices.map((one) => chunk([one], { usage: null })),
    chunk([], { usage: USAGE }),
  ]);
});

Deno.test("content is null beside the role in a stream that begins with a tool call", () => {
  const parts: Part[] = [{ index: 0, delta: { tool_calls: [CALL] } }, {
    index: 0,
    finish: "tool_calls",
  }];
  assert.deepEqual(encode({}, parts), [
    chunk([role(0, null)]),
    chunk([choice(0, { tool_calls: [CALL] })]),
    chunk([choice(0, {}, "tool_calls")]),
  ]);
});

Deno.test("a whole response joins deltas, reasoning, tool calls and log probabilities", () => {
  const probabilities = (token: number) => (
    { content: [token], refusal: null }
  );
  const [whole] = encode({ stream: false, n: 2 }, [
    { index: 0, delta: { reasoning_content: "let me " } },
    { index: 0, delta: { reasoning_content: "think" } },
    { index: 0, delta: { content: "Hel" }, logprobs: probabilities(1) },
    { index: 0, delta: { content: "lo" }, logprobs: probabilities(2) },
    { index: 1, delta: { tool_calls: [CALL] } },
    {
      index: 1,
      delta: { tool_calls: [{ index: 0, function: { arguments: "1}" } }] },
    },
    { index: 1, finish: "tool_calls" },
    { index: 0, finish: "stop" },
  ]);
  const message = { role: "assistant", refusal: null };
  const spoken = { content: "Hello", reasoning_content: "let me think" };
  const { index: _, ...call } = CALL;
  const called = { ...call, function: { name: "f", arguments: '{"a":1}' } };
  assert.deepEqual(whole, {
    ...IDENTITY,
    object: "chat.completion",
    choices: [
      {
        index: 0,
        message: { ...message, ...spoken },
        logprobs: { content: [1, 2], refusal: null },
        finish_reason: "stop",
      },
      {
        index: 1,
        message: { ...message, content: null, tool_calls: [called] },
        logprobs: null,
        finish_reason: "tool_calls",
      },
    ],
    usage: USAGE,
    system_fingerprint: null,
  });
  assert.partialDeepStrictEqual(
    encode({ stream: false }, [
      { index: 0, finish: "length" },
    ]),
    [
      { choices: [{ message: { content: "" } }] },
    ],
  );
});

for (const stream of [true, false]) {
  Deno.test(`flush() reports the tokens read so far, end() the usage (stream: ${stream})`, () => {
    const { answer, context } = newAnswer({ stream, n: 2 });
    const counters = [{ tokens: 0 }, { tokens: 0 }];
    answer.counters.push(...counters);
    for (const [index, choice] of answer.choices.entries()) {
      answer.add(choice, { delta: { content: "a" } });
      counters[index] = Object.assign(counters[index] ?? {}, { tokens: 5 });
      answer.flush();
      assert.equal(context.tokens, 5 * (index + 1));
    }
    for (const choice of answer.choices) answer.finish(choice, "stop");
    assert.equal(answer.progress.hasSent, stream);
    answer.end({ counts: USAGE, members: USAGE });
    assert.equal(context.tokens, USAGE.completion_tokens);
  });
}
