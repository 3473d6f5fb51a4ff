/** Which chat requests are accepted, and what they become. */
import assert from "node:assert/strict";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import { CHAT_FIELDS, type ChatRequest } from "@gateway/shared/openai/chat";
import type { ErrorCode } from "@gateway/shared/openai/error";
import {
  callOf,
  catalog,
  chosen,
  type Fields,
  parse,
  parts,
  ping,
  PONG,
  refusalOf,
  weatherTool,
} from "./request_fixture.ts";
import { parseChatRequest } from "./request.ts";

const choice = chosen("get_weather");
const schema = { $schema: "https://json-schema.org/x", type: "object" };

/** What is sent, and what becomes of it where that is not the same. */
const ACCEPTED: [fields: Fields, changes?: Partial<ChatRequest>][] = [
  [{}],
  [{ store: false, user: "u", modalities: ["text", "audio"], audio: {} }],
  [{ functions: [{ name: "f" }], function_call: "auto", zzz: [1, null] }],
  [{ top_k: null, temperature: null }, { top_k: null }],
  [{ temperature: 0.7, top_p: 0.9 }],
  [{ stop: "p" }, { stop: ["p"] }],
  [{ stop: ["p", "q"] }],
  [{ stop: [] }, {}],
  [{ max_tokens: 5 }],
  [{ max_completion_tokens: 5 }, { max_tokens: 5 }],
  [{ max_tokens: 9, max_completion_tokens: 5 }, { max_tokens: 5 }],
  [{ max_tokens: 5, max_completion_tokens: 9e6 }, { max_tokens: 5 }],
  [{ stream: true }],
  [{ stream: true, stream_options: { include_usage: true, x: 1 } }, {
    stream: true,
    include_usage: true,
    stream_options: { x: 1 },
  }],
  [{ stream: true, stream_options: { include_usage: null } }, { stream: true }],
  [{ tools: [], parallel_tool_calls: true, tool_choice: "auto" }, {}],
  [{ tool_choice: "none" }, {}],
  [{ tools: [weatherTool], tool_choice: "required" }],
  [{ tools: [weatherTool], tool_choice: choice, parallel_tool_calls: false }],
  [{
    tools: [{
      type: "function",
      extra: 1,
      function: { name: "f", description: null, parameters: null },
    }],
  }, { tools: [{ type: "function", extra: 1, function: { name: "f" } }] }],
  [{ tools: [{ type: "custom", custom: {} }, { type: "web_search" }] }],
  [{ tools: [weatherTool], tool_choice: { type: "allowed_tools" } }],
  [{ response_format: { type: "json_object" } }],
  [{ response_format: { type: "text", x: 1 } }],
  [{ response_format: { type: "grammar", grammar: "root" } }],
  [{
    response_format: {
      type: "json_schema",
      json_schema: { name: "a-b_1", strict: true, schema },
    },
  }],
  [{ enable_thinking: true, thinking_budget: 100 }],
  [{ logprobs: true, top_logprobs: 3 }],
  [{ logprobs: false, top_logprobs: 0 }, {}],
  [{ top_k: 20, chat_template_kwargs: { a: [1, "x", null] }, min_p: 1 }],
  [{ repetition_penalty: 1.05, seed: -1, n: 8 }],
];

Deno.test("parseChatRequest() accepts what SDKs send, and does not change it", () => {
  for (const [fields, changes] of ACCEPTED) {
    const body = structuredClone(fields);
    const expected: unknown = { ...PONG, ...(changes ?? fields) };
    assert.deepEqual(parse(fields), expected, JSON.stringify(fields));
    assert.deepEqual(fields, body);
  }
});

const images = [
  { type: "text", text: "what is this?" },
  { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } },
  { type: "image_url", image_url: { url: "HTTPS://a/b", detail: "low" } },
];
const MESSAGES: [sent: Fields, kept?: Fields][] = [
  [{ role: "system", content: "x" }],
  [{ role: "developer", content: "x" }],
  [{ role: "user", content: "" }],
  [{ role: "user", content: "a\u0000b😀" }],
  [{ role: "user", content: parts }, { role: "user", content: "one\ntwo" }],
  [{ role: "assistant", content: [{ type: "refusal", refusal: "No." }] }, {
    role: "assistant",
    content: "No.",
  }],
  [{ role: "user", content: images }],
  [{ role: "user", content: [] }, { role: "user", content: "" }],
  [{ role: "user", content: [{ ...parts[0], cache_control: {} }], id: 1 }],
  [{ role: "user", content: [{ type: "container", id: 1 }] }],
  [{ role: "user", content: "a\ud83d" }, { role: "user", content: "a\ufffd" }],
  [{ role: "assistant", content: null }],
  [{ role: "assistant" }, { role: "assistant", content: null }],
  [{ role: "assistant", content: "x", tool_calls: [] }, {
    role: "assistant",
    content: "x",
  }],
  [{ role: "user", content: "x", name: "Ann" }],
  [{ role: "user", content: "x", name: "" }, { role: "user", content: "x" }],
  [
    { role: "assistant", content: "x", name: null, tool_calls: null, audio: 1 },
    { role: "assistant", content: "x", audio: 1 },
  ],
  [{ role: "assistant", content: null, refusal: "no" }],
  [{ role: "assistant", content: "x", reasoning_content: "because" }],
];

Deno.test("parseChatRequest() accepts messages, images for a model with vision, and tool histories", () => {
  for (const [message, result = message] of MESSAGES) {
    const before = structuredClone(message);
    const { messages } = parse({ model: "seer", messages: [message] });
    assert.deepEqual([messages, message], [[result], before]);
  }
  const history = [
    { role: "user", content: "weather?" },
    { role: "assistant", tool_calls: [callOf("a"), callOf("b")] },
    { role: "tool", tool_call_id: "b", content: [parts[0]] },
    { role: "tool", tool_call_id: "a", content: "sun" },
    { role: "assistant", content: "both" },
    // Some backends number the calls of each turn anew.
    { role: "assistant", content: "", tool_calls: [callOf("a")] },
    { role: "tool", tool_call_id: "a", content: "", name: "get_weather" },
  ];
  const { messages } = parse({ messages: history });
  assert.deepEqual(messages, [
    history[0],
    { ...history[1], content: null },
    { ...history[2], content: "one" },
    ...history.slice(3),
  ]);
});

const BELOW = "decimal_below_min_value";
const ABOVE = "decimal_above_max_value";
const INT_BELOW = "integer_below_min_value";
const INT_ABOVE = "integer_above_max_value";
const TYPE = "invalid_type";
const SAFE = Number.MAX_SAFE_INTEGER;
type Wrong = [value: unknown, code: ErrorCode];
const INTEGERS: Wrong[] = [[1.5, TYPE], [SAFE + 1, INT_ABOVE]];
const OUTPUT_TOKENS_REFUSED: Wrong[] = [
  [0, INT_BELOW],
  [32_769, INT_ABOVE],
  ...INTEGERS,
];

const NUMBERS: { field: string; accepted: number[]; refused: Wrong[] }[] = [
  {
    field: "temperature",
    accepted: [0, -0, 0.7, 2],
    refused: [[-0.1, BELOW], [2.1, ABOVE]],
  },
  {
    field: "top_p",
    accepted: [0, 0.5, 1],
    refused: [[-0.1, BELOW], [1.1, ABOVE], [200, ABOVE]],
  },
  {
    field: "presence_penalty",
    accepted: [-2, 0, 2],
    refused: [[-2.1, BELOW], [2.1, ABOVE]],
  },
  {
    field: "frequency_penalty",
    accepted: [-2, 0, 2],
    refused: [[-2.1, BELOW], [2.1, ABOVE]],
  },
  {
    field: "repetition_penalty",
    accepted: [Number.MIN_VALUE, 100],
    refused: [[0, BELOW], [-1, BELOW]],
  },
  {
    field: "n",
    accepted: [1, 8],
    refused: [[0, INT_BELOW], [9, INT_ABOVE], ...INTEGERS],
  },
  {
    field: "max_tokens",
    accepted: [1, 32_768],
    refused: OUTPUT_TOKENS_REFUSED,
  },
  {
    field: "max_completion_tokens",
    accepted: [1, 32_768],
    refused: OUTPUT_TOKENS_REFUSED,
  },
  {
    field: "seed",
    accepted: [0, SAFE, -SAFE],
    refused: [[-SAFE - 1, INT_BELOW], ...INTEGERS],
  },
  {
    field: "top_logprobs",
    accepted: [0, 20],
    refused: [[-1, INT_BELOW], [21, INT_ABOVE], ...INTEGERS],
  },
  {
    field: "thinking_budget",
    accepted: [1, SAFE],
    refused: [[0, INT_BELOW], ...INTEGERS],
  },
];
/** Refused by every number field. JSON's `1e400` parses to `Infinity`. */
const NO_NUMBERS = ["1", "hot", true, [1], {}, Infinity];

Deno.test("parseChatRequest() takes each number on its bounds and not beyond", () => {
  for (const { field, accepted, refused } of NUMBERS) {
    for (const value of accepted) parse({ logprobs: true, [field]: value });
    const types = NO_NUMBERS.map((value) => [value, TYPE] as const);
    for (const [value, code] of [...refused, ...types]) {
      const error = refusalOf({ ...ping, [field]: value });
      const { param, status } = error;
      assert.deepEqual([error.code, param, status], [code, field, 400]);
    }
  }
});

Deno.test("parseChatRequest() takes null for every optional field", () => {
  const names = [
    ...ACCEPTED.flatMap(([fields]) => Object.keys(fields)),
    ...NUMBERS.map(({ field }) => field),
  ].filter((name) => CHAT_FIELDS.has(name));
  const nulls = Object.fromEntries(names.map((name) => [name, null]));
  assert.deepEqual(parse(nulls), PONG);
});

Deno.test("parseChatRequest() enforces the bounds of the model", () => {
  assert.equal(parse({ model: "plain", max_tokens: 1e7 }).max_tokens, 1e7);
  parse({ model: "single", n: 1 });
  const { code, param } = refusalOf({ ...ping, model: "single", n: 2 });
  assert.deepEqual([code, param], [INT_ABOVE, "n"]);
});

Deno.test("parseChatRequest() accepts lists and names on their bounds", () => {
  const tools = Array.from({ length: REQUEST_LIMITS.toolsMax }, (_, index) => ({
    type: "function",
    function: { name: `f${index}`.padEnd(64, "_") },
  }));
  const messages = Array.from({ length: REQUEST_LIMITS.messagesMax }, () => ({
    role: "user",
    content: Array(2).fill({ type: "text", text: "" }),
  }));
  parse({ messages, tools, stop: Array(16).fill("s".repeat(512)) });
});

Deno.test("ASVS 15.3.6: parseChatRequest() gives no access to a prototype", () => {
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
  const [message] = request.messages;
  assert.equal(message?.content, "x");
  assert.equal(message.name, undefined);
  for (const each of [{}, request, message]) {
    assert.equal(Reflect.get(each, "polluted"), undefined);
    assert.equal(Object.getPrototypeOf(each), Object.prototype);
  }
  // As members of that name they pass.
  assert.equal(JSON.stringify(request).match(/"__proto__"/g)?.length, 4);
});
