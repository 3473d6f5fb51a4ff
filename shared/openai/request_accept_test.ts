import assert from "node:assert/strict";
import type { ChatRequest } from "./chat.ts";
import { callOf, catalog, ping, weatherTool } from "./request_cases_test.ts";
import { parseChatRequest } from "./request.ts";

/** What {@link ping} alone becomes. */
const PONG: ChatRequest = {
  model: "neutral-3.7-plus",
  messages: [{ role: "user", content: "ping" }],
  stream: false,
  include_usage: false,
  n: 1,
};

function parse(fields: { [name: string]: unknown }): ChatRequest {
  return parseChatRequest({ ...ping, ...fields }, catalog);
}

type Row = [
  name: string,
  fields: { [name: string]: unknown },
  changes: Partial<ChatRequest>,
];

const usage = { include_usage: true };
const choice = { type: "function", function: { name: "get_weather" } } as const;

const ROWS: Row[] = [
  ["the smallest request", {}, {}],
  ["null for every optional field", {
    stream: null,
    stream_options: null,
    temperature: null,
    top_p: null,
    max_tokens: null,
    max_completion_tokens: null,
    presence_penalty: null,
    frequency_penalty: null,
    repetition_penalty: null,
    n: null,
    seed: null,
    stop: null,
    tools: null,
    tool_choice: null,
    parallel_tool_calls: null,
    response_format: null,
    enable_thinking: null,
    thinking_budget: null,
    logprobs: null,
    top_logprobs: null,
    top_k: null,
  }, {}],
  ["fields nobody knows", {
    store: false,
    metadata: { a: "b" },
    user: "u",
    logit_bias: null,
    service_tier: "auto",
    reasoning_effort: "low",
    modalities: ["text"],
    zzz: 1,
    "\ud800": { deep: [Infinity] },
  }, {}],
  ["null for what is not supported", {
    modalities: null,
    audio: null,
    functions: null,
    function_call: null,
  }, {}],
  ["temperature and top_p together", { temperature: 0.7, top_p: 0.9 }, {
    temperature: 0.7,
    top_p: 0.9,
  }],
  ["stop as a string", { stop: "p" }, { stop: ["p"] }],
  ["stop as an array", { stop: ["p", "q"] }, { stop: ["p", "q"] }],
  ["stop as an empty array", { stop: [] }, {}],
  ["max_tokens", { max_tokens: 5 }, { max_tokens: 5 }],
  ["max_completion_tokens", { max_completion_tokens: 5 }, { max_tokens: 5 }],
  ["both bounds, the newer smaller", {
    max_tokens: 9,
    max_completion_tokens: 5,
  }, { max_tokens: 5 }],
  ["both bounds, the older smaller", {
    max_tokens: 5,
    max_completion_tokens: 9_999_999,
  }, { max_tokens: 5 }],
  ["a stream", { stream: true }, { stream: true }],
  ["a stream with usage", { stream: true, stream_options: usage }, {
    stream: true,
    include_usage: true,
  }],
  ["a stream with options of others", {
    stream: true,
    stream_options: { include_obfuscation: false, include_usage: null },
  }, { stream: true }],
  ["an empty list of tools", { tools: [], parallel_tool_calls: true }, {}],
  ["tool_choice none without tools", { tool_choice: "none" }, {}],
  ["tool_choice auto without tools", { tool_choice: "auto", tools: [] }, {}],
  ["parallel_tool_calls without tools", { parallel_tool_calls: false }, {}],
  ["a tool with nulls and extras", {
    tools: [{
      type: "function",
      extra: 1,
      function: {
        name: "f",
        description: null,
        parameters: null,
        strict: null,
      },
    }],
  }, { tools: [{ type: "function", function: { name: "f" } }] }],
  ["a tool and its choice", {
    tools: [weatherTool],
    tool_choice: choice,
    parallel_tool_calls: false,
  }, {
    tools: [{
      type: "function",
      function: { name: "get_weather", parameters: { type: "object" } },
    }],
    tool_choice: choice,
    parallel_tool_calls: false,
  }],
  ["tool_choice required", { tools: [weatherTool], tool_choice: "required" }, {
    tools: [{
      type: "function",
      function: { name: "get_weather", parameters: { type: "object" } },
    }],
    tool_choice: "required",
  }],
  [
    "json_object without the word",
    { response_format: { type: "json_object" } },
    {
      response_format: { type: "json_object" },
    },
  ],
  ["text format", { response_format: { type: "text", x: 1 } }, {
    response_format: { type: "text" },
  }],
  ["json_schema", {
    response_format: {
      type: "json_schema",
      json_schema: {
        name: "a-b_1",
        strict: true,
        description: null,
        schema: { $schema: "https://json-schema.org/x", type: "object" },
      },
    },
  }, {
    response_format: {
      type: "json_schema",
      json_schema: {
        name: "a-b_1",
        strict: true,
        schema: { $schema: "https://json-schema.org/x", type: "object" },
      },
    },
  }],
  ["thinking", { enable_thinking: true, thinking_budget: 100 }, {
    enable_thinking: true,
    thinking_budget: 100,
  }],
  ["log probabilities", { logprobs: true, top_logprobs: 3 }, {
    logprobs: true,
    top_logprobs: 3,
  }],
  [
    "no top_logprobs without logprobs",
    { top_logprobs: 0, logprobs: false },
    {},
  ],
  ["fields that the model passes on", {
    top_k: 20,
    chat_template_kwargs: { a: [1, "x", null] },
    min_p: 0.1,
  }, { extra: { top_k: 20, chat_template_kwargs: { a: [1, "x", null] } } }],
  ["penalties and seed", {
    presence_penalty: -2,
    frequency_penalty: 2,
    repetition_penalty: 1.05,
    seed: -1,
    n: 8,
  }, {
    presence_penalty: -2,
    frequency_penalty: 2,
    repetition_penalty: 1.05,
    seed: -1,
    n: 8,
  }],
];

for (const [name, fields, changes] of ROWS) {
  Deno.test(`parseChatRequest() accepts ${name}`, () => {
    assert.deepEqual(parse(fields), { ...PONG, ...changes });
  });
}

type MessageRow = [name: string, sent: unknown, kept: unknown];

const parts = [{ type: "text", text: "one" }, { type: "text", text: "two" }];

const MESSAGES: MessageRow[] = [
  ["the role system", { role: "system", content: "x" }, {
    role: "system",
    content: "x",
  }],
  ["the role developer", { role: "developer", content: "x" }, {
    role: "developer",
    content: "x",
  }],
  ["empty content", { role: "user", content: "" }, {
    role: "user",
    content: "",
  }],
  ["text parts, joined", { role: "user", content: parts }, {
    role: "user",
    content: "one\ntwo",
  }],
  ["one text part", { role: "system", content: [parts[0]] }, {
    role: "system",
    content: "one",
  }],
  ["no parts", { role: "user", content: [] }, { role: "user", content: "" }],
  ["members nobody knows", {
    role: "user",
    content: [{ type: "text", text: "x", cache_control: {} }],
    id: 1,
  }, { role: "user", content: "x" }],
  ["NUL in content", { role: "user", content: "a\u0000b" }, {
    role: "user",
    content: "a\u0000b",
  }],
  ["a paired surrogate", { role: "user", content: "😀" }, {
    role: "user",
    content: "😀",
  }],
  ["a name", { role: "user", content: "x", name: "Ann" }, {
    role: "user",
    content: "x",
    name: "Ann",
  }],
  ["an empty name", { role: "user", content: "x", name: "" }, {
    role: "user",
    content: "x",
  }],
  ["nulls in an assistant's turn", {
    role: "assistant",
    content: "x",
    name: null,
    refusal: null,
    tool_calls: null,
    reasoning_content: null,
    audio: null,
    function_call: null,
  }, { role: "assistant", content: "x" }],
  ["a refusal", { role: "assistant", content: null, refusal: "no" }, {
    role: "assistant",
    content: null,
    refusal: "no",
  }],
  ["a refusal as a part", {
    role: "assistant",
    content: [{ type: "refusal", refusal: "no" }],
  }, { role: "assistant", content: null, refusal: "no" }],
  ["reasoning", {
    role: "assistant",
    content: "x",
    reasoning_content: "because",
  }, { role: "assistant", content: "x", reasoning_content: "because" }],
];

for (const [name, sent, kept] of MESSAGES) {
  Deno.test(`parseChatRequest() accepts a message with ${name}`, () => {
    assert.deepEqual(parse({ messages: [sent] }).messages, [kept]);
  });
}

Deno.test("parseChatRequest() accepts tool histories", () => {
  const messages = [
    { role: "user", content: "weather?" },
    {
      role: "assistant",
      content: null,
      tool_calls: [callOf("a"), callOf("b")],
    },
    { role: "tool", tool_call_id: "b", content: "rain" },
    { role: "tool", tool_call_id: "a", content: "sun" },
    { role: "assistant", content: "both" },
    { role: "user", content: "again" },
    // Some backends number the calls of each turn anew.
    { role: "assistant", content: "", tool_calls: [callOf("a")] },
    { role: "tool", tool_call_id: "a", content: "", name: "get_weather" },
  ];
  assert.deepEqual(parse({ messages }).messages, messages);
});

Deno.test("parseChatRequest() accepts a call without content", () => {
  const { messages } = parse({
    messages: [
      { role: "assistant", tool_calls: [callOf("a")] },
      { role: "tool", tool_call_id: "a", content: [parts[0]] },
    ],
  });
  assert.equal(messages[0]?.content, null);
  assert.equal(messages[1]?.content, "one");
});

Deno.test("parseChatRequest() accepts images where the model has eyes", () => {
  const content = [
    { type: "text", text: "what is this?" },
    { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } },
    { type: "image_url", image_url: { url: "HTTPS://a/b", detail: "low" } },
    { type: "image_url", image_url: { url: "http://a", detail: null } },
  ];
  const { messages } = parse({
    model: "seer",
    messages: [{ role: "user", content }],
  });
  assert.deepEqual(messages[0]?.content, [
    ...content.slice(0, 3),
    { type: "image_url", image_url: { url: "http://a" } },
  ]);
});

Deno.test("parseChatRequest() changes nothing in the body", () => {
  const body = {
    ...ping,
    messages: [{ role: "user", content: parts }],
    tools: [weatherTool],
    stop: "x",
    top_k: 1,
  };
  const before = structuredClone(body);
  parseChatRequest(body, catalog);
  assert.deepEqual(body, before);
});

Deno.test("ASVS 15.3.6: parseChatRequest() lets nobody reach a prototype", () => {
  const body: unknown = JSON.parse(`{
    "model": "neutral-3.7-plus",
    "__proto__": { "stream": true, "polluted": 1 },
    "constructor": { "prototype": { "polluted": 1 } },
    "messages": [{ "role": "user", "content": "x", "__proto__": { "name": "p" } }],
    "tools": [{ "type": "function", "function": { "name": "f",
      "parameters": { "__proto__": { "polluted": 1 }, "type": "object" } } }],
    "chat_template_kwargs": { "__proto__": { "polluted": 1 } }
  }`);
  const request = parseChatRequest(body, catalog);
  assert.equal(request.stream, false);
  assert.deepEqual(request.messages, [{ role: "user", content: "x" }]);
  assert.equal(Reflect.get({}, "polluted"), undefined);
  assert.equal(Reflect.get(request, "polluted"), undefined);
});

Deno.test("ASVS 1.5.3: parseChatRequest() takes the last of two members of one name", () => {
  const text = '{"model":"nope","model":"seer",' +
    '"messages":[{"role":"user","content":"x"}]}';
  assert.equal(parseChatRequest(JSON.parse(text), catalog).model, "seer");
});
