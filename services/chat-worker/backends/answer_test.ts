import assert from "node:assert/strict";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type {
  ChunkDelta,
  Logprobs,
  Usage,
} from "@gateway/shared/openai/completion";
import { Answer } from "./answer.ts";
import {
  noProgress,
  parsed,
  recordCall,
  requestWith,
} from "./answer_fixture.ts";

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
  | [index: number, delta: ChunkDelta, logprobs?: Logprobs]
  | [index: number, reason: "stop" | "length" | "tool_calls"];

function newAnswer(change: Partial<ChatRequest>) {
  const call = recordCall();
  const request = requestWith({ include_usage: false, ...change });
  return { call, answer: new Answer(request, call, noProgress()) };
}

function encode(change: Partial<ChatRequest>, parts: Part[]): unknown[] {
  const { answer, call } = newAnswer(change);
  for (const [index, part, logprobs] of parts) {
    const choice = answer.choices[index] ?? assert.fail("no such choice");
    if (typeof part === "string") answer.finish(choice, part);
    else answer.addDelta(choice, part, logprobs);
  }
  answer.end(USAGE);
  return parsed(call.lines);
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

const streams: [
  name: string,
  change: Partial<ChatRequest>,
  parts: Part[],
  chunks: object[],
][] = [
  [
    "with include_usage null in every chunk and the usage in one of its own",
    { include_usage: true },
    [[0, { content: "x" }], [0, "length"]],
    [
      chunk([role(0)], { usage: null }),
      chunk([choice(0, { content: "x" })], { usage: null }),
      chunk([choice(0, {}, "length")], { usage: null }),
      chunk([], { usage: USAGE }),
    ],
  ],
  [
    "the role chunks of all choices before the first delta of any",
    { n: 2 },
    [[1, { content: 'b "c"\n' }], [1, "stop"], [0, "stop"]],
    [
      chunk([role(0)]),
      chunk([role(1)]),
      chunk([choice(1, { content: 'b "c"\n' })]),
      chunk([choice(1, {}, "stop")]),
      chunk([choice(0, {}, "stop")]),
    ],
  ],
  [
    "null content beside the role where it begins with a tool call",
    {},
    [[0, { tool_calls: [CALL] }], [0, "tool_calls"]],
    [
      chunk([role(0, null)]),
      chunk([choice(0, { tool_calls: [CALL] })]),
      chunk([choice(0, {}, "tool_calls")]),
    ],
  ],
  [
    "a role chunk and a finish chunk where nothing was said",
    {},
    [[0, "length"]],
    [chunk([role(0)]), chunk([choice(0, {}, "length")])],
  ],
];

for (const [name, change, parts, chunks] of streams) {
  Deno.test(`a stream is ${name}`, () =>
    assert.deepEqual(encode(change, parts), chunks));
}

Deno.test("a whole response joins deltas, reasoning, tool calls and log probabilities", () => {
  const probabilities = (token: number) => ({
    content: [token],
    refusal: null,
  });
  assert.deepEqual(
    encode({ stream: false, n: 2 }, [
      [0, { reasoning_content: "let me " }],
      [0, { reasoning_content: "think" }],
      [0, { content: "Hel" }, probabilities(1)],
      [0, { content: "lo" }, probabilities(2)],
      [1, { tool_calls: [CALL] }],
      [1, { tool_calls: [{ index: 0, function: { arguments: "1}" } }] }],
      [1, "tool_calls"],
      [0, "stop"],
    ]),
    [{
      ...IDENTITY,
      object: "chat.completion",
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
    }],
  );
  assert.partialDeepStrictEqual(encode({ stream: false }, [[0, "length"]]), [
    { choices: [{ message: { content: "" } }] },
  ]);
});

for (const stream of [true, false]) {
  Deno.test(`flush() reports one token per delta, end() the usage (stream: ${stream})`, () => {
    const { answer, call } = newAnswer({ stream, n: 2 });
    for (const choice of answer.choices) {
      answer.addDelta(choice, { content: "a" });
      answer.finish(choice, "stop");
      answer.flush();
      assert.equal(call.tokens, choice.index + 1);
    }
    assert.equal(answer.progress.hasSent, stream);
    answer.end(USAGE);
    assert.equal(call.tokens, USAGE.completion_tokens);
  });
}
