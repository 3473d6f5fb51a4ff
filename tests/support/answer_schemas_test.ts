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

const CALL = {
  index: 0,
  id: "call_1",
  type: "function",
  function: { name: "f", arguments: "" },
} as const;
const MODEL = { id: "m", object: "model", created: 1, owned_by: "gateway" };

const chunks: ChatCompletionChunk[] = [
  chunkOf({ role: "assistant", content: "" }),
  chunkOf({ role: "assistant", content: null }),
  chunkOf({ reasoning_content: "because" }),
  chunkOf({ content: "hello" }),
  chunkOf({ refusal: "no" }),
  chunkOf({ tool_calls: [CALL] }),
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
  const copy: object = structuredClone(value);
  const steps = path.split(".");
  const last = steps.pop() ?? "";
  const parent: object = steps.reduce(
    (at, step) => Object(Reflect.get(at, step)),
    copy,
  );
  assert.ok(Reflect.has(Object(parent), last) || replacement !== undefined);
  if (replacement === undefined) Reflect.deleteProperty(parent, last);
  else Reflect.set(parent, last, replacement);
  return copy;
}

/** What a schema must refuse of a value it accepts: each path missing, and each with these values. */
interface Defects {
  schema: z.ZodType;
  value: object;
  missing: string[];
  wrong: [path: string, ...replacements: unknown[]][];
}

const DEFECTS: Record<string, Defects> = {
  "a completion": {
    schema: chatCompletionSchema,
    value: completion,
    missing: [
      ...["id", "created", "model", "choices", "usage", "system_fingerprint"],
      ...["choices.0.index", "choices.0.message", "choices.0.message.role"],
      ...["choices.0.message.content", "choices.0.message.refusal"],
      ...["choices.0.logprobs", "choices.0.finish_reason"],
      "choices.1.message.tool_calls.0.type",
    ],
    wrong: [
      ["id", "", "abc"],
      ["object", "chat.completion.chunk"],
      ["created", "1767622290", 1_767_622_290.5, 1_767_622_290_000],
      ["model", ""],
      ["choices", null, []],
      ["choices.0.index", 1],
      ["choices.0.message.role", "user"],
      ["choices.0.message.content", null],
      ["choices.0.message.tool_calls", []],
      ["choices.0.message.reasoning_content", null],
      ["choices.0.message.annotations", []],
      ["choices.0.finish_reason", null, "eos"],
      ["choices.1.message.tool_calls.0.id", ""],
      ["choices.1.message.tool_calls.0.function.arguments", {}],
      ["usage", null],
      ["usage.total_tokens", 30],
      ["usage.prompt_tokens", -1],
      ["usage.completion_tokens", 1.5],
      ["service_tier", "default"],
      ["error", null],
    ],
  },
  "a chunk": {
    schema: chatCompletionChunkSchema,
    value: chunkOf({ role: "assistant", content: "" }),
    missing: [
      ...["id", "choices", "choices.0.index", "choices.0.delta"],
      "choices.0.finish_reason",
    ],
    wrong: [
      ["object", "chat.completion"],
      ["error", null],
      ["usage", usage],
      ["choices", []],
      ["choices.0.delta", null],
      ["choices.0.delta.role", ""],
      ["choices.0.delta.reasoning_content", null, ""],
      ["choices.0.delta.info", "x"],
    ],
  },
  "a chunk with a call": {
    schema: chatCompletionChunkSchema,
    value: chunkOf({ tool_calls: [CALL] }),
    missing: ["index", "type", "id", "function", "function.name"]
      .map((name) => `choices.0.delta.tool_calls.0.${name}`),
    wrong: [
      ["choices.0.delta.tool_calls", []],
      ["choices.0.delta.tool_calls.0.id", null],
      ["choices.0.delta.tool_calls.0.function.arguments", {}],
    ],
  },
  "a chunk with usage": {
    schema: chatCompletionChunkSchema,
    value: { ...envelope, choices: [], usage },
    missing: ["choices", "usage"],
    wrong: [["choices", null], ["usage", null]],
  },
  "an error": {
    schema: errorBodySchema,
    value: {
      error: { message: "no", type: "server_error", param: null, code: null },
    },
    missing: ["error", "error.message", "error.type", "error.code"],
    wrong: [
      ["error", "no"],
      ["error.message", ""],
      ["error.code", 429],
      ["error.param", 1],
      ["error.stack", "x"],
      ["message", "no"],
    ],
  },
  "a model": {
    schema: modelSchema,
    value: MODEL,
    missing: ["created"],
    wrong: [
      ["id", ""],
      ["object", "models"],
      ["created", 1.5],
      ["owned_by", ""],
    ],
  },
  "a list of models": {
    schema: modelListSchema,
    value: { object: "list", data: [MODEL] },
    missing: ["object", "data.0.id"],
    wrong: [["data", null]],
  },
};

for (
  const [what, { schema, value, missing, wrong }] of Object.entries(DEFECTS)
) {
  Deno.test(`the schema of ${what} accepts it, and refuses each defect`, () => {
    schema.parse(value);
    const defects = [
      ...missing.map((path): [string, unknown] => [path, undefined]),
      ...wrong.flatMap(([path, ...all]) =>
        all.map((each): [string, unknown] => [path, each])
      ),
    ];
    for (const [path, replacement] of defects) {
      const { success } = schema.safeParse(changed(value, path, replacement));
      assert.ok(!success, `${path}: ${JSON.stringify(replacement)}`);
    }
  });
}

Deno.test("errorBodySchema accepts every body an ApiError makes", () => {
  errorBodySchema.parse(UNAUTHORIZED_BODY);
  for (
    const error of [
      new ApiError("forbidden", "no"),
      new ApiError("empty_array", "no", { param: "messages" }),
      new ApiError("upstream_error", "no", { wireCode: null }),
    ]
  ) errorBodySchema.parse(error.toBody());
});
