/**
 * What real servers send, and what a client receives. Each case has been seen in
 * practice.
 */
import assert from "node:assert/strict";
import type { Usage } from "@gateway/shared/openai/completion";
import { promptTokens, textTokens } from "@gateway/shared/openai/tokens";
import {
  choiceChunk,
  usageChunk,
} from "../../../tests/support/model_servers/model_answers.ts";
import { requestWith } from "../requests/request_fixture.ts";
import { linesOf, newAnswer, seen } from "./answer/answer_fixture.ts";
import { ChunkReader } from "./chunk_reader.ts";
import type { UpstreamFault } from "@gateway/shared/upstream/http/errors";

const PROMPT = promptTokens(requestWith());
const SENTENCE =
  "All of it comes in one piece, as from a server that does not stream.";

function newReader(n = 1) {
  const { answer, call } = newAnswer({ n });
  const redact = (text: string) => text.replaceAll("secret", "[redacted]");
  const { choices } = answer;
  const reader = new ChunkReader({ answer, choices, redact });
  return { reader, answer, call };
}

function read(chunks: readonly unknown[], n = 1, isWhole = true) {
  const { reader, answer, call } = newReader(n);
  for (const chunk of chunks) {
    const text = typeof chunk === "string" ? chunk : JSON.stringify(chunk);
    reader.take(text, "");
  }
  answer.end(reader.end(isWhole));
  return call;
}

/** A chunk whose one choice is exactly this. */
function choice(fields: { [name: string]: unknown }): unknown {
  return { ...choiceChunk({}), choices: [fields] };
}

function say(content: string, reason: string | null = null, index = 0) {
  return choiceChunk({ content }, reason, index);
}

const saying = (content: string) => ({ delta: { content } });
const part = (text: string) => ({ type: "text", text });
const thinking = { type: "thinking", thinking: [part("H"), part("m")] };
const parts = [thinking, "x", part("a"), part("b")];
const LOGPROBS = { logprobs: { content: [{ token: "a" }] } };
const STOP = { finish_reason: "stop" };
const stop = choiceChunk({}, "stop");
const end = [stop, usageChunk(3, 2)];
const ended = ["[stop]", "3+2"];
const counted = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };

/** Chunks before a usual end, and what is seen before it. */
const answers: [name: string, chunks: unknown[], seen: unknown[]][] = [
  ["a role in every chunk, and null for what is not there", [
    {
      ...choiceChunk({
        role: "assistant",
        content: "Hi",
        refusal: null,
        reasoning_content: null,
        tool_calls: null,
        function_call: null,
      }),
      error: null,
      usage: null,
    },
    choiceChunk({ role: "", content: null }),
  ], ["Hi"]],
  ["choices that are empty or null in between", [
    say("a"),
    { choices: [] },
    { choices: null },
    say("b"),
  ], ["a", "b"]],
  ["the whole so far beside each delta, as Perplexity sends it", [
    choice({ ...saying("a"), message: { content: "za" } }),
  ], ["a"]],
  ["reasoning under both names", [
    choiceChunk({ reasoning_content: "a", content: null }),
    choiceChunk({ reasoning: "b" }),
    choiceChunk({ reasoning: "c", reasoning_content: "c" }),
  ], [
    { reasoning_content: "a" },
    { reasoning: "b", reasoning_content: "b" },
    { reasoning: "c", reasoning_content: "c" },
  ]],
  ["Mistral's content in parts", [choiceChunk({ content: parts })], [
    { content: "ab", reasoning_content: "Hm" },
  ]],
  ["log probabilities", [choice({ ...saying("a"), ...LOGPROBS })], [
    { content: "a", ...LOGPROBS },
  ]],
];

/** Whole answers whose end is not the usual one. */
const endings: [name: string, chunks: unknown[], seen: unknown[], n?: 2][] = [
  ["a finish chunk without a delta", [choice(STOP), usageChunk(3, 2)], ended],
  ["a finish reason in every chunk", [
    say("a", "stop"),
    say("b", "stop"),
    choiceChunk({}, "length"),
    usageChunk(3, 2),
  ], ["a", "b", "[length]", "3+2"]],
  [
    "two choices, one after the other and in one chunk",
    [
      say("a", null, 1),
      {
        choices: [
          { index: 0, ...saying("b") },
          { index: 1, delta: {}, finish_reason: "length" },
        ],
      },
      ...end,
    ],
    ["1:a", "b", "[stop]", "1:[length]", "3+2"],
    2,
  ],
  [
    "two choices without index",
    [
      { choices: ["a", "b"].map((text) => ({ ...saying(text), ...STOP })) },
      usageChunk(3, 2),
    ],
    ["a", "1:b", "[stop]", "1:[stop]", "3+2"],
    2,
  ],
  ["a whole response", [{
    object: "chat.completion",
    choices: [{
      index: 0,
      message: {
        role: "assistant",
        content: "Hello",
        refusal: null,
        reasoning_content: "Hm",
      },
      logprobs: null,
      finish_reason: "stop",
    }],
    usage: counted,
  }], [{ content: "Hello", reasoning_content: "Hm" }, ...ended]],
  ["usage beside choices, and the last of several", [
    { ...say("a"), usage: { ...counted, completion_tokens: 1 } },
    { ...say("b", "stop"), usage: counted },
  ], ["a", "b", ...ended]],
  ["no usage, which is estimated from the text", [say(SENTENCE), stop], [
    SENTENCE,
    "[stop]",
    `${PROMPT}+${Math.ceil(textTokens(SENTENCE))}`,
  ]],
  ["impossible usage, which is estimated instead", [
    say("a", "stop"),
    usageChunk(3, -2),
    usageChunk(1.5, 2),
  ], ["a", "[stop]", `${PROMPT}+1`]],
  ["no text and no tokens", [stop, usageChunk(3, 0)], ["[stop]", "3+0"]],
];

const usual = answers.map(([name, chunks, seen]): typeof endings[number] => {
  return [name, [...chunks, ...end], [...seen, ...ended]];
});
for (const [name, chunks, expected, n] of [...usual, ...endings]) {
  Deno.test(`an answer with ${name}`, () => {
    assert.deepEqual(seen(read(chunks, n)), expected);
  });
}

const REASONS = {
  stop: ["stop", "eos", "STOP", "eos_token", "stop_sequence", "COMPLETE", "?"],
  length: [
    "length",
    "max_tokens",
    "MAX_TOKENS",
    "model_length",
    "model_context_window_exceeded",
  ],
  content_filter: ["content_filter", "SAFETY", "RECITATION", "refusal"],
};

Deno.test("finish reasons are OpenAI's, and a stop after tool calls is tool_calls", () => {
  const call = { index: 0, id: "a", function: { name: "f", arguments: "{}" } };
  const calling = choiceChunk({ tool_calls: [call] });
  const reasonOf = (chunk: unknown, word: string) =>
    seen(read([chunk, choiceChunk({}, word)])).at(-2);
  for (const [reason, words] of Object.entries(REASONS)) {
    for (const word of words) {
      assert.equal(reasonOf(say("a"), word), `[${reason}]`, word);
    }
  }
  for (const word of ["stop", "tool_calls"]) {
    assert.equal(reasonOf(calling, word), "[tool_calls]", word);
  }
  assert.equal(reasonOf(calling, "length"), "[length]");
});

/**
 * A fragment as `index id name arguments`, or `index arguments`; `-`: absent, `""`:
 * empty.
 */
function fragmentOf(text: string): object {
  const words = text.split(" ").map((word) =>
    word === "-" ? undefined : word === "null" ? null : word.replace(`""`, "")
  );
  const [index, id, name] = words.length === 2 ? [words[0]] : words;
  const called = { name, arguments: words.at(-1) };
  return { index: index && Number(index), id, function: called };
}

/** Chunks with fragments: `|` is between chunks, `+` between fragments of one. */
const fragmentsOf = (text: string): object[][] =>
  text.split(" | ").map((chunk) => chunk.split(" + ").map(fragmentOf));

const toolCalls: [name: string, given: string, expected: string][] = [
  [
    "OpenAI's fragments",
    `0 a f "" | 0 {"x": | 0 1} | 1 b g {}`,
    `0 a f "" | 0 {"x": | 0 1} | 1 b g "" | 1 {}`,
  ],
  ["a new id in every fragment", "0 a f { | 0 b null }", "0 a f { | 0 }"],
  [
    "empty id and name in later fragments",
    `0 a f - | 0 "" "" {} | 0 null null null`,
    `0 a f "" | 0 {}`,
  ],
  [
    "no type and no index",
    "- a f { | - - - } | - b g { | - a - 1 | - b - }",
    "0 a f { | 0 } | 1 b g { | 0 1 | 1 }",
  ],
  [
    "whole calls that are all numbered 0",
    "0 a f {} | 0 b f {}",
    `0 a f "" | 0 {} + 1 b f "" | 1 {}`,
  ],
  [
    "whole calls of one function, all numbered 0, without id",
    `0 "" f {"x":1} + 0 "" f {"x":2} | 0 "" f {}`,
    `0 call_req1_0_0 f {"x":1} + 1 call_req1_0_1 f {"x":2} | 2 call_req1_0_2 f "" | 2 {}`,
  ],
  [
    "the name in every fragment, without id",
    `0 - f {"x": | 0 - f 1 | 0 - f }`,
    `0 call_req1_0_0 f {"x": | 0 1 | 0 }`,
  ],
  [
    "indexes that begin at 1 and have gaps",
    `1 a f "" | 4 b g "" | 1 {}`,
    `0 a f "" | 1 b g "" | 0 {} + 1 {}`,
  ],
  [
    "a name that comes after its arguments",
    "0 a - { | 0 - f }",
    `0 a f "" | 0 {}`,
  ],
];

function readCalls(chunks: readonly unknown[][]): unknown[] {
  const deltas = chunks.map(calls);
  const done = [choiceChunk({}, "tool_calls"), usageChunk(3, 2)];
  return seen(read([...deltas, ...done]));
}

for (const [name, fragments, expected] of toolCalls) {
  Deno.test(`tool calls with ${name}`, () => {
    const deltas = fragmentsOf(expected).map((chunk) => ({
      tool_calls: chunk.map((each) =>
        "id" in each && each.id ? { ...each, type: "function" } : each
      ),
    }));
    const told = JSON.stringify([...deltas, "[tool_calls]", "3+2"]);
    assert.deepEqual(readCalls(fragmentsOf(fragments)), JSON.parse(told));
  });
}

Deno.test("tool calls with arguments as an object", () => {
  const named = { name: "f", arguments: { x: [1] } };
  const called = { name: "f", arguments: '{"x":[1]}' };
  const [delta] = readCalls([[{ index: 0, id: "a", function: named }]]);
  const call = { index: 0, id: "a", type: "function", function: called };
  assert.deepEqual(delta, { tool_calls: [call] });
});

const calls = (list: unknown) => choiceChunk({ tool_calls: list });
const calling = (fragment: string) => calls([fragmentOf(fragment)]);

const broken: {
  [fault in UpstreamFault]?: [name: string, chunks: unknown[], n?: number][];
} = {
  truncated: [
    ["nothing at all", []],
    ["one of two choices finished, the other begun", [
      choiceChunk({ role: "assistant" }, null, 1),
      ...end,
    ], 2],
    ["an empty finish reason", [choiceChunk({}, "")]],
    ["DeepSeek's reason for no room", [
      say("a", "insufficient_system_resource"),
    ]],
    ["Gemini's reason for a broken call", [say("", "MALFORMED_FUNCTION_CALL")]],
  ],
  request: [["vLLM's error", [{ object: "error", message: "Bad", code: 400 }]]],
  server_error: [
    ["OpenRouter's error beside a last choice", [say("a"), {
      ...say("", "error"),
      error: { code: 502, message: "Provider disconnected" },
    }]],
    ["a flat error", [{ message: "Bad", code: "x" }]],
  ],
  invalid: [
    ["no JSON", ["<html>"]],
    ["a depth bomb", ["[".repeat(500_000)]],
  ],
  unsupported: [
    ["none of two choices begun", [usageChunk(3, 0)], 2],
    ["Ollama's own form", [{ message: { content: "Hi" }, done: true }]],
    ["choices that are no array", [{ choices: {} }]],
    ["a choice that is no object", [{ choices: [null] }]],
    ["an index beyond n", [choiceChunk({}, null, 1)]],
    ["an index that is no integer", [choiceChunk({}, null, 0.5)]],
    ["tool calls that are no array", [calls({})]],
    ["a tool call that is no object", [calls(["f"])]],
    ["a tool call that never gets its name", [calling("0 a - {}"), stop]],
    ["endless arguments before a name", [calling(`0 ${"x".repeat(65_537)}`)]],
    ["129 tool calls", [
      calls(Array.from({ length: 129 }, (_, i) => fragmentOf(`${i} ${i} f -`))),
    ]],
  ],
};

for (const [fault, cases] of Object.entries(broken)) {
  for (const [name, chunks, n] of cases) {
    Deno.test(`an answer fails with ${fault} for ${name}`, () => {
      assert.throws(() => read(chunks, n), { fault });
    });
  }
}

Deno.test("fewer choices in a complete response are a fault of 'n', with their usage", () => {
  const message = (choices: string, n: number) =>
    `The server of this model returns ${choices} per request, but 'n' is ${n}.`;
  const failure = { code: "unsupported_value", param: "n" };
  assert.throws(
    () => read([say("a"), ...end], 2),
    { ...failure, message: message("one choice", 2), usage: counted },
  );
  const two = [say("a", "stop"), say("b", "stop", 2)];
  const estimate = usage(PROMPT, 2);
  assert.throws(
    () => read(two, 3),
    { ...failure, message: message("2 choices", 3), usage: estimate },
  );
  assert.throws(() => read([stop], 2, false), { code: "upstream_truncated" });
});

Deno.test("an error event throws, whatever its data, and is redacted", () => {
  const events = [
    ['{"message":"secret","code":"x"}', "[redacted]"],
    ["Internal Server Error", "The model server failed"],
  ] as const;
  for (const [data, message] of events) {
    assert.throws(() => newReader().reader.take(data, "error"), { message });
  }
});

Deno.test("a fingerprint is passed on unless it is malformed or contains a secret", () => {
  const fingerprints = [
    ["fp_44709d6fcb", "fp_44709d6fcb"],
    [null, null],
    ["fp_secret", null],
    ["a b<c>", null],
  ];
  for (const [said, expected] of fingerprints) {
    const chunks = [choiceChunk({ role: "assistant" }), say("Hi"), ...end];
    const call = read(
      chunks.map((each) => ({ ...each, system_fingerprint: said })),
    );
    for (const { system_fingerprint } of linesOf(call)) {
      assert.equal(system_fingerprint, expected);
    }
  }
});

function usage(prompt: number, completion: number, more: object = {}): Usage {
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    ...more,
  };
}
