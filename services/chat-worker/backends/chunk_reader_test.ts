/**
 * What real servers send, and what a client receives. Each case has been seen in
 * practice.
 */
import assert from "node:assert/strict";
import { promptTokens, textTokens } from "@gateway/shared/openai/tokens";
import {
  choiceChunk,
  usageChunk,
} from "../../../tests/support/model_servers/model_answers.ts";
import { requestWith } from "../requests/request_fixture.ts";
import { contentOf, linesOf } from "./answer/answer_fixture.ts";
import { counted, end, read, say, stop } from "./chunk_reader_fixture.ts";

const PROMPT = promptTokens(requestWith());
const SENTENCE =
  "All of it comes in one piece, as from a server that does not stream.";

/** A chunk whose one choice is exactly this. */
function choice(fields: { [name: string]: unknown }): unknown {
  return { ...choiceChunk({}), choices: [fields] };
}

const saying = (content: string) => ({ delta: { content } });
const part = (text: string) => ({ type: "text", text });
const thinking = { type: "thinking", thinking: [part("H"), part("m")] };
const parts = [thinking, "x", part("a"), part("b")];
const LOGPROBS = { logprobs: { content: [{ token: "a" }] } };
const STOP = { finish_reason: "stop" };
const ended = ["[stop]", "3+2"];

/** Chunks before a usual end, and what is seen before it. */
const answers: { name: string; chunks: unknown[]; expected: unknown[] }[] = [
  {
    name: "a role in every chunk, and null for what is not there",
    chunks: [
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
    ],
    expected: ["Hi"],
  },
  {
    name: "choices that are empty or null in between",
    chunks: [
      say("a"),
      { choices: [] },
      { choices: null },
      say("b"),
    ],
    expected: ["a", "b"],
  },
  {
    name: "the whole so far beside each delta, as Perplexity sends it",
    chunks: [
      choice({ ...saying("a"), message: { content: "za" } }),
    ],
    expected: ["a"],
  },
  {
    name: "reasoning under both names",
    chunks: [
      choiceChunk({ reasoning_content: "a", content: null }),
      choiceChunk({ reasoning: "b" }),
      choiceChunk({ reasoning: "c", reasoning_content: "c" }),
    ],
    expected: [
      { reasoning_content: "a" },
      { reasoning: "b", reasoning_content: "b" },
      { reasoning: "c", reasoning_content: "c" },
    ],
  },
  {
    name: "Mistral's content in parts",
    chunks: [choiceChunk({ content: parts })],
    expected: [
      { content: "ab", reasoning_content: "Hm" },
    ],
  },
  {
    name: "log probabilities",
    chunks: [choice({ ...saying("a"), ...LOGPROBS })],
    expected: [
      { content: "a", ...LOGPROBS },
    ],
  },
];

/** Whole answers whose end is not the usual one. */
const endings: {
  name: string;
  chunks: unknown[];
  expected: unknown[];
  n?: 2;
}[] = [
  {
    name: "a finish chunk without a delta",
    chunks: [choice(STOP), usageChunk(3, 2)],
    expected: ended,
  },
  {
    name: "a finish reason in every chunk",
    chunks: [
      say("a", "stop"),
      say("b", "stop"),
      choiceChunk({}, "length"),
      usageChunk(3, 2),
    ],
    expected: ["a", "b", "[length]", "3+2"],
  },
  {
    name: "two choices, one after the other and in one chunk",
    chunks: [
      say("a", null, 1),
      {
        choices: [
          { index: 0, ...saying("b") },
          { index: 1, delta: {}, finish_reason: "length" },
        ],
      },
      ...end,
    ],
    expected: ["1:a", "b", "[stop]", "1:[length]", "3+2"],
    n: 2,
  },
  {
    name: "two choices without index",
    chunks: [
      { choices: ["a", "b"].map((text) => ({ ...saying(text), ...STOP })) },
      usageChunk(3, 2),
    ],
    expected: ["a", "1:b", "[stop]", "1:[stop]", "3+2"],
    n: 2,
  },
  {
    name: "a whole response",
    chunks: [{
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
    }],
    expected: [{ content: "Hello", reasoning_content: "Hm" }, ...ended],
  },
  {
    name: "usage beside choices, and the last of several",
    chunks: [
      { ...say("a"), usage: { ...counted, completion_tokens: 1 } },
      { ...say("b", "stop"), usage: counted },
    ],
    expected: ["a", "b", ...ended],
  },
  {
    name: "no usage, which is estimated from the text",
    chunks: [say(SENTENCE), stop],
    expected: [
      SENTENCE,
      "[stop]",
      `${PROMPT}+${Math.ceil(textTokens(SENTENCE))}`,
    ],
  },
  {
    name: "a usage without the tokens of the answer, which are estimated",
    chunks: [say(SENTENCE), stop, usageChunk(30, 0)],
    expected: [
      SENTENCE,
      "[stop]",
      `30+${Math.ceil(textTokens(SENTENCE))}`,
    ],
  },
  {
    name: "a usage without the tokens of the prompt, which are estimated",
    chunks: [say("a", "stop"), usageChunk(0, 2)],
    expected: ["a", "[stop]", `${PROMPT}+2`],
  },
  {
    name: "impossible usage, which is estimated instead",
    chunks: [
      say("a", "stop"),
      usageChunk(3, -2),
      usageChunk(1.5, 2),
    ],
    expected: ["a", "[stop]", `${PROMPT}+1`],
  },
  {
    name: "no text and no tokens",
    chunks: [stop, usageChunk(3, 0)],
    expected: ["[stop]", "3+0"],
  },
];

const usual: typeof endings = answers.map(({ name, chunks, expected }) => ({
  name,
  chunks: [...chunks, ...end],
  expected: [...expected, ...ended],
}));
for (const { name, chunks, expected, n } of [...usual, ...endings]) {
  Deno.test(`an answer with ${name}`, () => {
    assert.deepEqual(contentOf(read(chunks, n)), expected);
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
    contentOf(read([chunk, choiceChunk({}, word)])).at(-2);
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

Deno.test("a fingerprint is passed on unless it is malformed or contains a secret", () => {
  const fingerprints = [
    ["fp_44709d6fcb", "fp_44709d6fcb"],
    [null, null],
    ["fp_secret", null],
    ["a b<c>", null],
  ];
  for (const [fingerprint, expected] of fingerprints) {
    const chunks = [choiceChunk({ role: "assistant" }), say("Hi"), ...end];
    const call = read(
      chunks.map((each) => ({ ...each, system_fingerprint: fingerprint })),
    );
    for (const { system_fingerprint } of linesOf(call)) {
      assert.equal(system_fingerprint, expected);
    }
  }
});
