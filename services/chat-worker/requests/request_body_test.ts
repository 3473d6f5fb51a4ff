/** The body of a request to a model server. */
import assert from "node:assert/strict";
import type { ToolCall } from "@gateway/shared/openai/chat_message";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import {
  type Dialect,
  DIALECT_NAMES,
  type DialectName,
  DIALECTS,
} from "@gateway/shared/models/dialects";
import { requestWith } from "./request_fixture.ts";
import { encodeRequestBody } from "./request_body.ts";

const plain = requestWith({ stream: false, include_usage: false });
const base = { model: "org/upstream", messages: plain.messages, stream: false };
const tool = {
  type: "function" as const,
  function: { name: "f", parameters: {} },
};

function toolCall(text: string): ToolCall {
  const called = { name: "f", arguments: text };
  return { id: "c", type: "function", function: called };
}
const refusing = { role: "assistant", refusal: "No" } as const;
const calling = (...texts: string[]) => (
  { role: "assistant", tool_calls: texts.map(toolCall) } as const
);

const EVERY_FIELD = {
  n: 2,
  temperature: 0,
  top_p: 0.5,
  max_tokens: 7,
  presence_penalty: -1,
  frequency_penalty: 1,
  repetition_penalty: 1.1,
  seed: 0,
  stop: ["a", "b"],
  tools: [tool],
  tool_choice: "auto" as const,
  parallel_tool_calls: false,
  response_format: { type: "json_object" as const },
  enable_thinking: false,
  thinking_budget: 9,
  logprobs: true,
  top_logprobs: 0,
};

interface Case {
  name: string;
  request: Partial<ChatRequest>;
  /** What is sent, beside what is in every request. */
  body: object;
  dialect?: Partial<Dialect>;
}

const withUsage = { stream: true, stream_options: { include_usage: true } };

const cases: Case[] = [
  { name: "only what was given", request: {}, body: {} },
  { name: "usage in every stream", request: { stream: true }, body: withUsage },
  {
    name: "no request for usage to a server that does not know it",
    request: { stream: true },
    body: { stream: true },
    dialect: { stream_usage: false },
  },
  { name: "every known field", request: EVERY_FIELD, body: EVERY_FIELD },
  {
    name: "thinking beside other arguments of the chat template",
    request: {
      enable_thinking: true,
      chat_template_kwargs: { x: 1, enable_thinking: false },
    },
    body: { chat_template_kwargs: { x: 1, enable_thinking: true } },
    dialect: { thinking_field: "chat_template_kwargs" },
  },
  {
    name: "empty text for null content, and an empty object for no arguments",
    request: {
      messages: [
        { ...refusing, content: null },
        { ...calling("", '{"a":1}'), content: null },
      ],
    },
    body: {
      messages: [
        { ...refusing, content: "" },
        { ...calling("{}", '{"a":1}'), content: "" },
      ],
    },
  },
  {
    name: "fields that only the server knows, and other stream options",
    request: { top_k: 5, thinking: {}, stream: true, stream_options: { x: 1 } },
    body: {
      top_k: 5,
      thinking: {},
      stream: true,
      stream_options: { x: 1, include_usage: true },
    },
  },
];

const fields: Partial<ChatRequest> = {
  messages: [{ role: "developer", content: "Be brief" }],
  stream: true,
  max_tokens: 7,
  repetition_penalty: 1.2,
  enable_thinking: false,
  thinking_budget: 9,
};
const system = [{ role: "system", content: "Be brief" }];
const usual = { messages: system, max_tokens: 7, repetition_penalty: 1.2 };
const template = (args: object) => ({ chat_template_kwargs: args });
const thinking = { enable_thinking: false, thinking_budget: 9 };
const spoken: Record<DialectName, { [name: string]: unknown }> = {
  dashscope: { ...usual, ...thinking },
  vllm: { ...usual, ...template(thinking) },
  sglang: { ...usual, ...template(thinking) },
  "llama.cpp": {
    messages: system,
    max_tokens: 7,
    repeat_penalty: 1.2,
    ...template({ enable_thinking: false }),
  },
  ollama: { messages: system, max_tokens: 7, reasoning_effort: "none" },
  lmstudio: { messages: system, max_tokens: 7, repeat_penalty: 1.2 },
  openai: { messages: fields.messages, max_completion_tokens: 7 },
  anthropic: { messages: system, max_tokens: 7 },
};

const everyDialect = DIALECT_NAMES.map((name): Case => {
  const body = { ...withUsage, ...spoken[name] };
  const dialect = DIALECTS[name];
  return { name: `what ${name} knows`, request: fields, body, dialect };
});

for (const { name, request, body, dialect } of [...cases, ...everyDialect]) {
  Deno.test(`encodeRequestBody() sends ${name}`, () => {
    const text = encodeRequestBody({ ...plain, ...request }, {
      model: "org/upstream",
      dialect: { ...DIALECTS.dashscope, ...dialect },
    });
    assert.deepEqual(JSON.parse(text), { ...base, ...body });
  });
}
