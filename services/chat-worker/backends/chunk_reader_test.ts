import assert from "node:assert/strict";
import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";
import { promptTokensLikely } from "@gateway/shared/tokens/prompt_tokens";
import { textTokensLikely } from "@gateway/shared/tokens/text_tokens";
import {
  choiceChunk,
  usageChunk,
} from "../../../tests/support/model_answers.ts";
import type { BackendEvent } from "./backend.ts";
import { UpstreamError, type UpstreamFault } from "./errors.ts";
import { ChunkReader, parseUsage } from "./chunk_reader.ts";

const request: ChatRequest = {
  model: "neutral-3.7-plus",
  messages: [{ role: "user", content: "x".repeat(40) }],
  stream: true,
  include_usage: false,
  n: 1,
};
const counted: Usage = {
  prompt_tokens: 3,
  completion_tokens: 2,
  total_tokens: 5,
};
const PROMPT_ESTIMATE = promptTokensLikely(request);
const SENTENCE =
  "All of it comes in one piece, as from a server that does not stream.";

function newReader(n: number): ChunkReader {
  let ids = 0;
  return new ChunkReader({
    request: { ...request, n },
    newToolCallId: () => `call_new${++ids}`,
    redact: (text) => text.replaceAll("secret", "[redacted]"),
  });
}

function read(
  chunks: readonly unknown[],
  n: number,
  isWhole = true,
): BackendEvent[] {
  const reader = newReader(n);
  const events: BackendEvent[] = [];
  for (const chunk of chunks) {
    const text = typeof chunk === "string" ? chunk : JSON.stringify(chunk);
    reader.take(text, "", events);
  }
  reader.end(events, isWhole);
  return events;
}

/** A chunk whose one choice is exactly this. */
function choice(fields: { [name: string]: unknown }): unknown {
  return { ...choiceChunk({}), choices: [fields] };
}

function text(content: string, index = 0): BackendEvent {
  return { type: "delta", index, content };
}

function stop(index = 0): BackendEvent {
  return { type: "finish", index, reason: "stop" };
}

const usage: BackendEvent = { type: "usage", usage: counted };

function estimated(completion: number): BackendEvent {
  return {
    type: "usage",
    usage: {
      prompt_tokens: PROMPT_ESTIMATE,
      completion_tokens: completion,
      total_tokens: PROMPT_ESTIMATE + completion,
    },
  };
}

const end = [choiceChunk({}, "stop"), usageChunk(3, 2)];
const ended = [stop(), usage];

const answers: {
  name: string;
  n?: number;
  chunks: readonly unknown[];
  events: BackendEvent[];
}[] = [
  {
    name: "an ordinary stream",
    chunks: [
      choiceChunk({ role: "assistant", content: "" }),
      choiceChunk({ content: "Hel" }),
      choiceChunk({ content: "lo" }),
      ...end,
    ],
    events: [text("Hel"), text("lo"), ...ended],
  },
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
      ...end,
    ],
    events: [text("Hi"), ...ended],
  },
  {
    name: "content beside the finish reason",
    chunks: [choiceChunk({ content: "Hi" }, "stop"), usageChunk(3, 2)],
    events: [text("Hi"), ...ended],
  },
  {
    name: "a finish chunk without a delta",
    chunks: [
      choice({ index: 0, finish_reason: "stop" }),
      usageChunk(3, 2),
    ],
    events: ended,
  },
  {
    name: "no index",
    chunks: [choice({ delta: { content: "Hi" } }), ...end],
    events: [text("Hi"), ...ended],
  },
  {
    name: "choices that are empty or null in between",
    chunks: [
      choiceChunk({ content: "a" }),
      { choices: [] },
      { choices: null },
      choiceChunk({ content: "b" }),
      ...end,
    ],
    events: [text("a"), text("b"), ...ended],
  },
  {
    name: "nothing but choices in a chunk",
    chunks: [
      { choices: [{ delta: { content: "a" } }] },
      { choices: [{ delta: {}, finish_reason: "stop" }] },
      { usage: counted },
    ],
    events: [text("a"), ...ended],
  },
  {
    name: "what Azure says of its filters, before and between",
    chunks: [
      {
        id: "",
        object: "",
        created: 0,
        model: "",
        choices: [],
        prompt_filter_results: [{
          prompt_index: 0,
          content_filter_results: { hate: { filtered: false } },
        }],
      },
      choiceChunk({ content: "a", refusal: null }),
      choice({
        index: 0,
        finish_reason: null,
        content_filter_results: { hate: { filtered: false } },
        content_filter_offsets: { check_offset: 44, start_offset: 44 },
      }),
      ...end,
    ],
    events: [text("a"), ...ended],
  },
  {
    name: "the whole so far beside each delta, as Perplexity sends it",
    chunks: [
      choice({
        index: 0,
        delta: { content: "a" },
        message: { role: "assistant", content: "a" },
      }),
      choice({
        index: 0,
        delta: { content: "b" },
        message: { role: "assistant", content: "ab" },
      }),
      ...end,
    ],
    events: [text("a"), text("b"), ...ended],
  },
  {
    name: "progress and timings of llama.cpp",
    chunks: [
      {
        ...choiceChunk({ role: "assistant", content: null }),
        prompt_progress: { total: 9, cache: 0, processed: 4, time_ms: 3 },
      },
      { ...choiceChunk({ content: "a" }), timings: { predicted_n: 1 } },
      ...end,
    ],
    events: [text("a"), ...ended],
  },
  {
    name: "what comes after a finish as a repeat",
    chunks: [
      choiceChunk({ content: "a" }, "stop"),
      choiceChunk({ content: "a" }, "stop"),
      choiceChunk({}, "length"),
      usageChunk(3, 2),
    ],
    events: [text("a"), ...ended],
  },
  {
    name: "reasoning under both names",
    chunks: [
      choiceChunk({ reasoning_content: "a", content: null }),
      choiceChunk({ reasoning: "b" }),
      choiceChunk({ reasoning: "c", reasoning_content: "c" }),
      choiceChunk({ content: "d" }),
      ...end,
    ],
    events: [
      { type: "delta", index: 0, reasoning: "a" },
      { type: "delta", index: 0, reasoning: "b" },
      { type: "delta", index: 0, reasoning: "c" },
      text("d"),
      ...ended,
    ],
  },
  {
    name: "a refusal",
    chunks: [choiceChunk({ refusal: "No" }), ...end],
    events: [{ type: "delta", index: 0, refusal: "No" }, ...ended],
  },
  {
    name: "content in parts",
    chunks: [
      choiceChunk({
        content: [{ type: "thinking", thinking: [] }, "x", {
          type: "text",
          text: "a",
        }, { type: "text", text: "b" }],
      }),
      ...end,
    ],
    events: [text("ab"), ...ended],
  },
  {
    name: "log probabilities",
    chunks: [
      choice({
        index: 0,
        delta: { content: "a" },
        logprobs: { content: [{ token: "a" }] },
      }),
      ...end,
    ],
    events: [{
      type: "delta",
      index: 0,
      content: "a",
      logprobs: { content: [{ token: "a" }] },
    }, ...ended],
  },
  {
    name: "two choices, one after the other and in one chunk",
    n: 2,
    chunks: [
      choiceChunk({ content: "a" }, null, 1),
      {
        ...choiceChunk({}),
        choices: [{ index: 0, delta: { content: "b" } }, {
          index: 1,
          delta: {},
          finish_reason: "length",
        }],
      },
      choiceChunk({}, "stop", 0),
      usageChunk(3, 2),
    ],
    events: [
      text("a", 1),
      text("b", 0),
      { type: "finish", index: 1, reason: "length" },
      ...ended,
    ],
  },
  {
    name: "two choices without index",
    n: 2,
    chunks: [
      {
        choices: [
          { delta: { content: "a" }, finish_reason: "stop" },
          { delta: { content: "b" }, finish_reason: "stop" },
        ],
      },
      usageChunk(3, 2),
    ],
    events: [text("a"), stop(), text("b", 1), stop(1), usage],
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
    events: [
      { type: "delta", index: 0, content: "Hello", reasoning: "Hm" },
      ...ended,
    ],
  },
  {
    name: "usage beside choices, and the last of several",
    chunks: [
      {
        ...choiceChunk({ content: "a" }),
        usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 },
      },
      { ...choiceChunk({ content: "b" }, "stop"), usage: counted },
    ],
    events: [text("a"), text("b"), ...ended],
  },
  {
    name: "no usage, by estimate: one token a piece",
    chunks: [
      choiceChunk({ content: "a" }),
      choiceChunk({ content: "b" }),
      choiceChunk({}, "stop"),
    ],
    events: [text("a"), text("b"), stop(), estimated(2)],
  },
  {
    name: "no usage, by estimate: what a long piece looks like",
    chunks: [
      choiceChunk({ content: SENTENCE }),
      choiceChunk({}, "stop"),
    ],
    events: [text(SENTENCE), stop(), estimated(textTokensLikely(SENTENCE))],
  },
  {
    name: "usage that cannot be, by estimate",
    chunks: [
      choiceChunk({ content: "a" }, "stop"),
      usageChunk(3, -2),
      usageChunk(1.5, 2),
    ],
    events: [text("a"), stop(), estimated(1)],
  },
  {
    name: "usage that counts nothing, by estimate",
    chunks: [choiceChunk({ content: "a" }, "stop"), usageChunk(0, 0)],
    events: [text("a"), stop(), estimated(1)],
  },
  {
    name: "nothing said and nothing counted",
    chunks: [choiceChunk({}, "stop"), usageChunk(3, 0)],
    events: [stop(), {
      type: "usage",
      usage: { prompt_tokens: 3, completion_tokens: 0, total_tokens: 3 },
    }],
  },
];

for (const { name, n = 1, chunks, events } of answers) {
  Deno.test(`new ChunkReader() reads ${name}`, () => {
    assert.deepEqual(read(chunks, n), events);
  });
}

const reasons: { word: string; reason: string; tools?: true }[] = [
  { word: "stop", reason: "stop" },
  { word: "length", reason: "length" },
  { word: "content_filter", reason: "content_filter" },
  { word: "eos", reason: "stop" },
  { word: "STOP", reason: "stop" },
  { word: "max_tokens", reason: "length" },
  { word: "eos_token", reason: "stop" },
  { word: "stop_sequence", reason: "stop" },
  { word: "MAX_TOKENS", reason: "length" },
  { word: "model_length", reason: "length" },
  { word: "model_context_window_exceeded", reason: "length" },
  { word: "SAFETY", reason: "content_filter" },
  { word: "RECITATION", reason: "content_filter" },
  { word: "refusal", reason: "content_filter" },
  { word: "COMPLETE", reason: "stop" },
  { word: "something new", reason: "stop" },
  { word: "stop", reason: "tool_calls", tools: true },
  { word: "tool_calls", reason: "tool_calls", tools: true },
  { word: "function_call", reason: "tool_calls", tools: true },
  { word: "length", reason: "length", tools: true },
];

for (const { word, reason, tools } of reasons) {
  Deno.test(`new ChunkReader() takes "${word}" ${tools ? "after tool calls " : ""}for ${reason}`, () => {
    const call = {
      index: 0,
      id: "a",
      function: { name: "f", arguments: "{}" },
    };
    const events = read([
      choiceChunk(tools ? { tool_calls: [call] } : { content: "a" }),
      choiceChunk({}, word),
    ], 1);
    assert.deepEqual(events[1], { type: "finish", index: 0, reason });
  });
}

interface Fragment {
  index: number;
  id?: string;
  type?: string;
  function: { name?: string; arguments?: string };
}

function first(
  index: number,
  id: string,
  name: string,
  args: string,
): Fragment {
  return { index, id, type: "function", function: { name, arguments: args } };
}

function next(index: number, args: string): Fragment {
  return { index, function: { arguments: args } };
}

const toolCalls: {
  name: string;
  /** `tool_calls` of one chunk after the other. */
  given: unknown[];
  /** Of one event after the other. */
  expected: Fragment[][];
}[] = [
  {
    name: "OpenAI's fragments",
    given: [
      [{
        index: 0,
        id: "a",
        type: "function",
        function: { name: "f", arguments: "" },
      }],
      [{ index: 0, function: { arguments: '{"x":' } }],
      [{ index: 0, function: { arguments: "1}" } }],
      [{
        index: 1,
        id: "b",
        type: "function",
        function: { name: "g", arguments: "{}" },
      }],
    ],
    expected: [
      [first(0, "a", "f", "")],
      [next(0, '{"x":')],
      [next(0, "1}")],
      [first(1, "b", "g", "{}")],
    ],
  },
  {
    name: "id, type and name in every fragment",
    given: [
      [{
        index: 0,
        id: "a",
        type: "function",
        function: { name: "f", arguments: "{" },
      }],
      [{
        index: 0,
        id: "a",
        type: "function",
        function: { name: "f", arguments: "}" },
      }],
    ],
    expected: [[first(0, "a", "f", "{")], [next(0, "}")]],
  },
  {
    name: "a new id in every fragment",
    given: [
      [{ index: 0, id: "a", function: { name: "f", arguments: "{" } }],
      [{ index: 0, id: "b", function: { name: null, arguments: "}" } }],
    ],
    expected: [[first(0, "a", "f", "{")], [next(0, "}")]],
  },
  {
    name: "empty id and name in later fragments",
    given: [
      [{ index: 0, id: "a", function: { name: "f" } }],
      [{ index: 0, id: "", type: "", function: { name: "", arguments: "{}" } }],
      [{
        index: 0,
        id: null,
        type: null,
        function: { name: null, arguments: null },
      }],
    ],
    expected: [[first(0, "a", "f", "")], [next(0, "{}")]],
  },
  {
    name: "no type and no index",
    given: [
      [{ id: "a", function: { name: "f", arguments: "{" } }],
      [{ function: { arguments: "}" } }],
      [{ id: "b", function: { name: "g", arguments: "{" } }],
      [{ id: "a", function: { arguments: " " } }],
      [{ id: "b", function: { arguments: "}" } }],
    ],
    expected: [
      [first(0, "a", "f", "{")],
      [next(0, "}")],
      [first(1, "b", "g", "{")],
      [next(0, " ")],
      [next(1, "}")],
    ],
  },
  {
    name: "whole calls in one chunk without index",
    given: [[
      { id: "a", type: "function", function: { name: "f", arguments: "{}" } },
      { id: "b", type: "function", function: { name: "f", arguments: "{}" } },
    ]],
    expected: [[first(0, "a", "f", "{}"), first(1, "b", "f", "{}")]],
  },
  {
    name: "whole calls that are all numbered 0",
    given: [
      [{ index: 0, id: "a", function: { name: "f", arguments: "{}" } }],
      [{ index: 0, id: "b", function: { name: "f", arguments: "{}" } }],
    ],
    expected: [[first(0, "a", "f", "{}")], [first(1, "b", "f", "{}")]],
  },
  {
    name: "whole calls with neither number nor id",
    given: [[
      { function: { name: "f", arguments: "{}" } },
      { function: { name: "f", arguments: "{}" } },
    ]],
    expected: [[
      first(0, "call_new1", "f", "{}"),
      first(1, "call_new2", "f", "{}"),
    ]],
  },
  {
    name: "whole calls of one function, all numbered 0, without id",
    given: [
      [
        { index: 0, id: "", function: { name: "f", arguments: '{"x":1}' } },
        { index: 0, id: "", function: { name: "f", arguments: '{"x":2}' } },
      ],
      [{ index: 0, id: "", function: { name: "f", arguments: "{}" } }],
    ],
    expected: [
      [
        first(0, "call_new1", "f", '{"x":1}'),
        first(1, "call_new2", "f", '{"x":2}'),
      ],
      [first(2, "call_new3", "f", "{}")],
    ],
  },
  {
    name: "the name in every fragment, without id",
    given: [
      [{ index: 0, function: { name: "f", arguments: '{"x":' } }],
      [{ index: 0, function: { name: "f", arguments: "1" } }],
      [{ index: 0, function: { name: "f", arguments: "}" } }],
    ],
    expected: [
      [first(0, "call_new1", "f", '{"x":')],
      [next(0, "1")],
      [next(0, "}")],
    ],
  },
  {
    name: "indexes that begin at 1 and have gaps",
    given: [
      [{ index: 1, id: "a", function: { name: "f", arguments: "" } }],
      [{ index: 4, id: "b", function: { name: "g", arguments: "" } }],
      [{ index: 1, function: { arguments: "{}" } }],
    ],
    expected: [[first(0, "a", "f", "")], [first(1, "b", "g", "")], [
      next(0, "{}"),
    ]],
  },
  {
    name: "arguments as an object",
    given: [[{
      index: 0,
      id: "a",
      function: { name: "f", arguments: { x: [1] } },
    }]],
    expected: [[first(0, "a", "f", '{"x":[1]}')]],
  },
  {
    name: "a name that comes after its arguments",
    given: [
      [{ index: 0, id: "a", type: "function" }],
      [{ index: 0, function: { arguments: "{" } }],
      [{ index: 0, function: { name: "f", arguments: "}" } }],
    ],
    expected: [[first(0, "a", "f", "{}")]],
  },
];

for (const { name, given, expected } of toolCalls) {
  Deno.test(`new ChunkReader() takes tool calls with ${name}`, () => {
    const events = read([
      ...given.map((calls) => choiceChunk({ tool_calls: calls })),
      choiceChunk({}, "tool_calls"),
      usageChunk(3, 2),
    ], 1);
    assert.deepEqual(events, [
      ...expected.map((calls) => ({
        type: "delta",
        index: 0,
        toolCalls: calls,
      })),
      { type: "finish", index: 0, reason: "tool_calls" },
      usage,
    ]);
  });
}

Deno.test("new ChunkReader() takes the older function_call", () => {
  const events = read([
    choiceChunk({ function_call: { name: "f", arguments: "" } }),
    choiceChunk({ function_call: { arguments: "{}" } }),
    choiceChunk({}, "function_call"),
    usageChunk(3, 2),
  ], 1);
  assert.deepEqual(events, [
    { type: "delta", index: 0, toolCalls: [first(0, "call_new1", "f", "")] },
    { type: "delta", index: 0, toolCalls: [next(0, "{}")] },
    { type: "finish", index: 0, reason: "tool_calls" },
    usage,
  ]);
});

const broken: {
  name: string;
  n?: number;
  chunks: readonly unknown[];
  /** The server did not say that this was all. */
  isWhole?: false;
  fault: UpstreamFault;
}[] = [
  { name: "nothing at all", chunks: [], fault: "truncated" },
  {
    name: "no finish reason",
    chunks: [choiceChunk({ content: "a" }), usageChunk(3, 2)],
    fault: "truncated",
  },
  {
    name: "one of two choices finished, and no end",
    n: 2,
    chunks: [choiceChunk({}, "stop")],
    isWhole: false,
    fault: "truncated",
  },
  {
    name: "one of two choices finished, the other begun",
    n: 2,
    chunks: [choiceChunk({ role: "assistant" }, null, 1), ...end],
    fault: "truncated",
  },
  {
    name: "none of two choices begun",
    n: 2,
    chunks: [usageChunk(3, 0)],
    fault: "truncated",
  },
  {
    name: "one of two choices begun",
    n: 2,
    chunks: [choiceChunk({ content: "a" })],
    fault: "truncated",
  },
  {
    name: "one of two choices finished, the other never begun",
    n: 2,
    chunks: end,
    fault: "request",
  },
  {
    name: "an empty finish reason",
    chunks: [choiceChunk({}, "")],
    fault: "truncated",
  },
  {
    name: "an abort for a finish reason",
    chunks: [choiceChunk({}, "abort")],
    fault: "truncated",
  },
  {
    name: "DeepSeek's finish reason for no room",
    chunks: [choiceChunk({ content: "a" }, "insufficient_system_resource")],
    fault: "truncated",
  },
  {
    name: "Gemini's finish reason for a broken call",
    chunks: [choiceChunk({}, "MALFORMED_FUNCTION_CALL")],
    fault: "truncated",
  },
  {
    name: "OpenRouter's error beside a last choice",
    chunks: [
      choiceChunk({ content: "a" }),
      {
        ...choiceChunk({ content: "" }, "error"),
        error: { code: 502, message: "Provider disconnected" },
      },
    ],
    fault: "server_error",
  },
  {
    name: "Mistral's error whose message is an object",
    chunks: [{
      object: "error",
      message: { detail: [{ msg: "Bad", loc: ["body"] }] },
      type: "invalid_request_error",
      code: null,
    }],
    fault: "request",
  },
  {
    name: "TGI's error of a prompt that is too long",
    chunks: [{
      error: "Input validation error: `inputs` must have less than 8 tokens",
      error_type: "validation",
    }],
    fault: "request",
  },
  { name: "no JSON", chunks: ["<html>"], fault: "invalid" },
  { name: "half an object", chunks: ['{"choices":['], fault: "invalid" },
  { name: "null", chunks: ["null"], fault: "invalid" },
  { name: "an array", chunks: ["[]"], fault: "invalid" },
  { name: "a text", chunks: ['"hello"'], fault: "invalid" },
  { name: "a depth bomb", chunks: ["[".repeat(500_000)], fault: "invalid" },
  {
    name: "choices that are no array",
    chunks: [{ choices: {} }],
    fault: "invalid",
  },
  {
    name: "a choice that is no object",
    chunks: [{ choices: [null] }],
    fault: "invalid",
  },
  {
    name: "an index beyond n",
    chunks: [choiceChunk({}, null, 1)],
    fault: "invalid",
  },
  {
    name: "a negative index",
    chunks: [choiceChunk({}, null, -1)],
    fault: "invalid",
  },
  {
    name: "an index that is no integer",
    chunks: [choiceChunk({}, null, 0.5)],
    fault: "invalid",
  },
  {
    name: "an index in words",
    chunks: [choice({ index: "0", delta: {} })],
    fault: "invalid",
  },
  {
    name: "tool calls that are no array",
    chunks: [choiceChunk({ tool_calls: {} })],
    fault: "invalid",
  },
  {
    name: "a tool call that is no object",
    chunks: [choiceChunk({ tool_calls: ["f"] })],
    fault: "invalid",
  },
  {
    name: "a tool call that never gets its name",
    chunks: [
      choiceChunk({
        tool_calls: [{ index: 0, id: "a", function: { arguments: "{}" } }],
      }),
      choiceChunk({}, "tool_calls"),
    ],
    fault: "invalid",
  },
  {
    name: "endless arguments before a name",
    chunks: [
      choiceChunk({
        tool_calls: [{ index: 0, function: { arguments: "x".repeat(65_537) } }],
      }),
    ],
    fault: "invalid",
  },
  {
    name: "129 tool calls",
    chunks: [
      choiceChunk({
        tool_calls: Array.from(
          { length: 129 },
          (_, i) => ({ index: i, id: `${i}`, function: { name: "f" } }),
        ),
      }),
    ],
    fault: "invalid",
  },
  {
    name: "an error object",
    chunks: [{ error: { message: "Out of memory" } }],
    fault: "server_error",
  },
  {
    name: "an error beside choices",
    chunks: [{ ...choiceChunk({}), error: { message: "x" } }],
    fault: "server_error",
  },
  {
    name: "an error in text",
    chunks: [{ error: "Out of memory" }],
    fault: "server_error",
  },
  {
    name: "vLLM's error",
    chunks: [{ object: "error", message: "Bad", code: 400 }],
    fault: "request",
  },
  {
    name: "a flat error",
    chunks: [{ message: "Bad", code: "x" }],
    fault: "server_error",
  },
];

for (const { name, n = 1, chunks, isWhole = true, fault } of broken) {
  Deno.test(`new ChunkReader() fails with ${fault} for ${name}`, () => {
    assert.throws(
      () => read(chunks, n, isWhole),
      (error) => error instanceof UpstreamError && error.fault === fault,
    );
  });
}

const short: {
  name: string;
  n: number;
  chunks: unknown[];
  message: string;
  usage: unknown;
}[] = [
  {
    name: "one of two choices, counted",
    n: 2,
    chunks: [choiceChunk({ content: "a" }), ...end],
    message: "gives one choice per request, but 'n' asks for 2.",
    usage,
  },
  {
    name: "two of three choices, not counted",
    n: 3,
    chunks: [
      choiceChunk({ content: "a" }, "stop", 0),
      choiceChunk({ content: "b" }, "stop", 2),
    ],
    message: "gives 2 choices per request, but 'n' asks for 3.",
    usage: estimated(2),
  },
];

for (const { name, n, chunks, message, usage } of short) {
  Deno.test(`new ChunkReader() blames 'n' for ${name}`, () => {
    assert.throws(() => read(chunks, n), (error) => {
      assert.ok(error instanceof UpstreamError);
      assert.equal(error.code, "unsupported_value");
      assert.equal(error.param, "n");
      assert.equal(error.message, `The server of this model ${message}`);
      assert.deepEqual({ type: "usage", usage: error.usage }, usage);
      return true;
    });
  });
}

Deno.test("new ChunkReader() throws for an error event, whatever it holds, and redacts it", () => {
  for (
    const [data, message] of [
      ['{"message":"secret","code":"x"}', "[redacted]"],
      ["Internal Server Error", "The model server failed"],
    ] as const
  ) {
    assert.throws(() => newReader(1).take(data, "error", []), { message });
  }
});

Deno.test("new ChunkReader() says when an answer has begun and when it is finished", () => {
  const reader = newReader(1);
  const seen: [boolean, boolean][] = [];
  for (
    const chunk of [
      choiceChunk({ role: "assistant", content: "" }),
      choiceChunk({ content: "a" }),
      choiceChunk({}, "stop"),
    ]
  ) {
    reader.take(JSON.stringify(chunk), "", []);
    seen.push([reader.hasBegun, reader.isFinished]);
  }
  assert.deepEqual(seen, [[false, false], [true, false], [true, true]]);
});

const fingerprints: { name: string; said: unknown; events: BackendEvent[] }[] =
  [
    {
      name: "a fingerprint",
      said: "fp_44709d6fcb",
      events: [{ type: "fingerprint", fingerprint: "fp_44709d6fcb" }],
    },
    { name: "none", said: null, events: [] },
    { name: "one with a secret", said: "fp_secret", events: [] },
    { name: "one that is none", said: "a b<c>", events: [] },
  ];

for (const { name, said, events } of fingerprints) {
  Deno.test(`take() passes on ${name} once, before the first words`, () => {
    const chunks = [
      choiceChunk({ role: "assistant" }),
      choiceChunk({ content: "Hi" }),
      ...end,
    ].map((each) => ({ ...each, system_fingerprint: said }));
    assert.deepEqual(read(chunks, 1), [...events, text("Hi"), ...ended]);
  });
}

const parsed: { name: string; value: unknown; usage: Usage | null }[] = [
  {
    name: "three counts",
    value: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
  },
  {
    name: "a total that is missing",
    value: { prompt_tokens: 1, completion_tokens: 2 },
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
  },
  {
    name: "a total that is wrong",
    value: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 9 },
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
  },
  {
    name: "details",
    value: {
      prompt_tokens: 5,
      completion_tokens: 7,
      total_tokens: 12,
      prompt_tokens_details: { cached_tokens: 5, audio_tokens: 0 },
      completion_tokens_details: { reasoning_tokens: 7 },
    },
    usage: {
      prompt_tokens: 5,
      completion_tokens: 7,
      total_tokens: 12,
      prompt_tokens_details: { cached_tokens: 5 },
      completion_tokens_details: { reasoning_tokens: 7 },
    },
  },
  {
    name: "details that cannot be",
    value: {
      prompt_tokens: 5,
      completion_tokens: 7,
      prompt_tokens_details: { cached_tokens: 6 },
      completion_tokens_details: { reasoning_tokens: 8 },
    },
    usage: { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 },
  },
  {
    name: "details that are null",
    value: {
      prompt_tokens: 5,
      completion_tokens: 7,
      prompt_tokens_details: null,
      completion_tokens_details: { reasoning_tokens: null },
    },
    usage: { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 },
  },
  {
    name: "reasoning beside the completion",
    value: {
      prompt_tokens: 5,
      completion_tokens: 7,
      total_tokens: 32,
      completion_tokens_details: { reasoning_tokens: 20 },
    },
    usage: {
      prompt_tokens: 5,
      completion_tokens: 27,
      total_tokens: 32,
      completion_tokens_details: { reasoning_tokens: 20 },
    },
  },
  {
    name: "details beside the counts, as SGLang and DeepSeek have them",
    value: {
      prompt_tokens: 5,
      completion_tokens: 7,
      total_tokens: 12,
      prompt_tokens_details: null,
      reasoning_tokens: 3,
      prompt_cache_hit_tokens: 4,
      prompt_cache_miss_tokens: 1,
    },
    usage: {
      prompt_tokens: 5,
      completion_tokens: 7,
      total_tokens: 12,
      prompt_tokens_details: { cached_tokens: 4 },
      completion_tokens_details: { reasoning_tokens: 3 },
    },
  },
  { name: "null", value: null, usage: null },
  { name: "an array", value: [1, 2], usage: null },
  { name: "a count missing", value: { prompt_tokens: 1 }, usage: null },
  {
    name: "a negative count",
    value: { prompt_tokens: 1, completion_tokens: -1 },
    usage: null,
  },
  {
    name: "a fraction",
    value: { prompt_tokens: 1.5, completion_tokens: 1 },
    usage: null,
  },
  {
    name: "a string",
    value: { prompt_tokens: "1", completion_tokens: 1 },
    usage: null,
  },
  {
    name: "a number too large to be exact",
    value: { prompt_tokens: 2 ** 53, completion_tokens: 1 },
    usage: null,
  },
];

for (const { name, value, usage } of parsed) {
  Deno.test(`API10: parseUsage() reads ${name}`, () =>
    assert.deepEqual(parseUsage(value), usage));
}
