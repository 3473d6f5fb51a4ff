import assert from "node:assert/strict";
import type * as z from "zod";
import type {
  ChatCompletion,
  ChatCompletionChunk,
  Usage,
} from "@gateway/shared/openai/chat";
import { ApiError, UNAUTHORIZED_BODY } from "@gateway/shared/openai/error";
import {
  chatCompletionChunkSchema,
  chatCompletionSchema,
  errorBodySchema,
  modelListSchema,
  modelSchema,
} from "./answer_schemas.ts";

const usage: Usage = {
  prompt_tokens: 11,
  completion_tokens: 18,
  total_tokens: 29,
  prompt_tokens_details: { cached_tokens: 0 },
  completion_tokens_details: { reasoning_tokens: 3 },
};

/** Every member that an answer may have. */
const completion: ChatCompletion = {
  id: "chatcmpl-1",
  object: "chat.completion",
  created: 1_767_622_290,
  model: "neutral-3.7-plus",
  choices: [{
    index: 0,
    message: {
      role: "assistant",
      content: "hello",
      refusal: null,
      reasoning_content: "because",
    },
    logprobs: null,
    finish_reason: "stop",
  }, {
    index: 1,
    message: {
      role: "assistant",
      content: null,
      refusal: null,
      tool_calls: [{
        id: "call_1",
        type: "function",
        function: { name: "f", arguments: "{}" },
      }],
    },
    logprobs: { content: [] },
    finish_reason: "tool_calls",
  }],
  usage,
  system_fingerprint: null,
};

const envelope = {
  id: "chatcmpl-1",
  object: "chat.completion.chunk",
  created: 1_767_622_290,
  model: "neutral-3.7-plus",
  system_fingerprint: "fp_1",
} as const;

function chunkOf(
  delta: ChatCompletionChunk["choices"][number]["delta"],
  finish: "stop" | null = null,
): ChatCompletionChunk {
  return {
    ...envelope,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
  };
}

const chunks: ChatCompletionChunk[] = [
  chunkOf({ role: "assistant", content: "" }),
  chunkOf({ role: "assistant", content: null }),
  chunkOf({ reasoning_content: "because" }),
  chunkOf({ content: "hello" }),
  chunkOf({ refusal: "no" }),
  chunkOf({
    tool_calls: [{
      index: 0,
      id: "call_1",
      type: "function",
      function: { name: "f", arguments: "" },
    }],
  }),
  chunkOf({ tool_calls: [{ index: 0, function: { arguments: "{}" } }] }),
  chunkOf({}, "stop"),
  { ...chunkOf({ content: "x" }), usage: null },
  { ...envelope, choices: [], usage },
];

Deno.test("chatCompletionSchema accepts all that an answer may have", () => {
  assert.deepEqual(chatCompletionSchema.parse(completion), completion);
});

Deno.test("chatCompletionChunkSchema accepts all that a stream may have", () => {
  for (const chunk of chunks) {
    assert.deepEqual(chatCompletionChunkSchema.parse(chunk), chunk);
  }
});

/** A copy of `value` with the member at `path` replaced, or removed for undefined. */
function changed(value: object, path: string, replacement: unknown): unknown {
  const copy: unknown = structuredClone(value);
  const steps = path.split(".");
  const last = steps.pop() ?? "";
  let parent: unknown = copy;
  for (const step of steps) {
    assert.ok(typeof parent === "object" && parent !== null, path);
    parent = Reflect.get(parent, step);
  }
  assert.ok(typeof parent === "object" && parent !== null, path);
  if (replacement === undefined) Reflect.deleteProperty(parent, last);
  else Reflect.set(parent, last, replacement);
  return copy;
}

type Defect = [path: string, replacement: unknown];

function testDefects(
  name: string,
  schema: z.ZodType,
  value: object,
  defects: Defect[],
): void {
  for (const [path, replacement] of defects) {
    const what = replacement === undefined
      ? "no"
      : `${JSON.stringify(replacement)} as`;
    Deno.test(`${name} refuses ${what} ${path}`, () => {
      assert.ok(!schema.safeParse(changed(value, path, replacement)).success);
    });
  }
}

testDefects("chatCompletionSchema", chatCompletionSchema, completion, [
  ["id", undefined],
  ["id", ""],
  ["id", "abc"],
  ["object", "chat.completion.chunk"],
  ["created", undefined],
  ["created", "1767622290"],
  ["created", 1_767_622_290.5],
  ["created", 1_767_622_290_000],
  ["model", undefined],
  ["model", ""],
  ["choices", undefined],
  ["choices", null],
  ["choices", []],
  ["choices.0.index", undefined],
  ["choices.0.index", 1],
  ["choices.0.message", undefined],
  ["choices.0.message.role", undefined],
  ["choices.0.message.role", "user"],
  ["choices.0.message.content", undefined],
  ["choices.0.message.content", null],
  ["choices.0.message.refusal", undefined],
  ["choices.0.message.tool_calls", []],
  ["choices.0.message.reasoning_content", null],
  ["choices.0.message.annotations", []],
  ["choices.0.logprobs", undefined],
  ["choices.0.finish_reason", undefined],
  ["choices.0.finish_reason", null],
  ["choices.0.finish_reason", "eos"],
  ["choices.1.message.tool_calls.0.type", undefined],
  ["choices.1.message.tool_calls.0.id", ""],
  ["choices.1.message.tool_calls.0.function.arguments", {}],
  ["usage", undefined],
  ["usage", null],
  ["usage.total_tokens", 30],
  ["usage.prompt_tokens", -1],
  ["usage.completion_tokens", 1.5],
  ["system_fingerprint", undefined],
  ["service_tier", "default"],
  ["error", null],
]);

const first = chunkOf({ role: "assistant", content: "" });
const call = chunkOf({
  tool_calls: [{
    index: 0,
    id: "call_1",
    type: "function",
    function: { name: "f", arguments: "" },
  }],
});
const last: ChatCompletionChunk = { ...envelope, choices: [], usage };

testDefects("chatCompletionChunkSchema", chatCompletionChunkSchema, first, [
  ["object", "chat.completion"],
  ["id", undefined],
  ["error", null],
  ["usage", usage],
  ["choices", []],
  ["choices", undefined],
  ["choices.0.index", undefined],
  ["choices.0.delta", undefined],
  ["choices.0.delta", null],
  ["choices.0.delta.role", ""],
  ["choices.0.delta.reasoning_content", null],
  ["choices.0.delta.reasoning_content", ""],
  ["choices.0.delta.info", "x"],
  ["choices.0.finish_reason", undefined],
]);

testDefects(
  "chatCompletionChunkSchema, tools,",
  chatCompletionChunkSchema,
  call,
  [
    ["choices.0.delta.tool_calls", []],
    ["choices.0.delta.tool_calls.0.index", undefined],
    ["choices.0.delta.tool_calls.0.type", undefined],
    ["choices.0.delta.tool_calls.0.id", undefined],
    ["choices.0.delta.tool_calls.0.id", null],
    ["choices.0.delta.tool_calls.0.function", undefined],
    ["choices.0.delta.tool_calls.0.function.name", undefined],
    ["choices.0.delta.tool_calls.0.function.arguments", {}],
  ],
);

testDefects(
  "chatCompletionChunkSchema, usage,",
  chatCompletionChunkSchema,
  last,
  [
    ["choices", null],
    ["choices", undefined],
    ["usage", null],
    ["usage", undefined],
  ],
);

Deno.test("errorBodySchema accepts every body an ApiError makes", () => {
  errorBodySchema.parse(UNAUTHORIZED_BODY);
  for (
    const error of [
      new ApiError("forbidden", "no"),
      new ApiError("empty_array", "no", { param: "messages" }),
      new ApiError("upstream_error", "no", { wireCode: null }),
    ]
  ) {
    errorBodySchema.parse(error.toBody());
  }
});

testDefects("errorBodySchema", errorBodySchema, {
  error: { message: "no", type: "server_error", param: null, code: null },
}, [
  ["error", "no"],
  ["error", undefined],
  ["error.message", ""],
  ["error.message", undefined],
  ["error.type", undefined],
  ["error.code", 429],
  ["error.code", undefined],
  ["error.param", 1],
  ["error.stack", "x"],
  ["message", "no"],
]);

const model = { id: "m", object: "model", created: 1, owned_by: "gateway" };

Deno.test("modelListSchema accepts a list of models", () => {
  modelSchema.parse(model);
  modelListSchema.parse({ object: "list", data: [model] });
  modelListSchema.parse({ object: "list", data: [] });
});

testDefects("modelSchema", modelSchema, model, [
  ["id", ""],
  ["object", "models"],
  ["created", undefined],
  ["created", 1.5],
  ["owned_by", ""],
]);

testDefects("modelListSchema", modelListSchema, {
  object: "list",
  data: [model],
}, [["object", undefined], ["data", null], ["data.0.id", undefined]]);
