import assert from "node:assert/strict";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import { CHAT_FIELDS, type ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import {
  assertDescribed,
  RULE_NAMES,
  ruleBehind,
} from "../../../tests/support/api_document.ts";
import { callOf, catalog, ping, weatherTool } from "./request_fixture.ts";
import { parseChatRequest } from "./request.ts";

type Fields = { [name: string]: unknown };

/** The result of parsing {@link ping}. */
const PONG: ChatRequest = {
  model: "neutral-3.7-plus",
  messages: [{ role: "user", content: "ping" }],
  stream: false,
  include_usage: false,
  n: 1,
};
/**
 * What the request with these fields becomes. The description of the API allows it,
 * too.
 */
function parse(fields: Fields): ChatRequest {
  const body = { ...ping, ...fields };
  assertDescribed(body);
  return parseChatRequest(body, catalog);
}

/**
 * The error that a body is refused with, by the description of the API, too, or by one
 * of its rules.
 */
function refusalOf(body: unknown): ApiError {
  try {
    parseChatRequest(body, catalog);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    ruleBehind(body, error);
    return error;
  }
  throw new Error(`accepted ${JSON.stringify(body)?.slice(0, 200)}`);
}

const chosen = (name: string) => ({ type: "function", function: { name } });
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
    const sent = structuredClone(fields);
    const expected: unknown = { ...PONG, ...(changes ?? fields) };
    assert.deepEqual(parse(fields), expected, JSON.stringify(fields));
    assert.deepEqual(fields, sent);
  }
});

const parts = [{ type: "text", text: "one" }, { type: "text", text: "two" }];
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
  for (const [sent, kept = sent] of MESSAGES) {
    const before = structuredClone(sent);
    const { messages } = parse({ model: "seer", messages: [sent] });
    assert.deepEqual([messages, sent], [[kept], before]);
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

const NUMBERS: [field: string, accepted: number[], refused: Wrong[]][] = [
  ["temperature", [0, -0, 0.7, 2], [[-0.1, BELOW], [2.1, ABOVE]]],
  ["top_p", [0, 0.5, 1], [[-0.1, BELOW], [1.1, ABOVE], [200, ABOVE]]],
  ["presence_penalty", [-2, 0, 2], [[-2.1, BELOW], [2.1, ABOVE]]],
  ["frequency_penalty", [-2, 0, 2], [[-2.1, BELOW], [2.1, ABOVE]]],
  ["repetition_penalty", [Number.MIN_VALUE, 100], [[0, BELOW], [-1, BELOW]]],
  ["n", [1, 8], [[0, INT_BELOW], [9, INT_ABOVE], ...INTEGERS]],
  ["max_tokens", [1, 32_768], OUTPUT_TOKENS_REFUSED],
  ["max_completion_tokens", [1, 32_768], OUTPUT_TOKENS_REFUSED],
  ["seed", [0, SAFE, -SAFE], [[-SAFE - 1, INT_BELOW], ...INTEGERS]],
  ["top_logprobs", [0, 20], [[-1, INT_BELOW], [21, INT_ABOVE], ...INTEGERS]],
  ["thinking_budget", [1, SAFE], [[0, INT_BELOW], ...INTEGERS]],
];
/** Refused by every number field. JSON's `1e400` parses to `Infinity`. */
const NO_NUMBERS = ["1", "hot", true, [1], {}, Infinity];

Deno.test("parseChatRequest() takes each number on its bounds and not beyond", () => {
  for (const [field, accepted, refused] of NUMBERS) {
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
    ...NUMBERS.map(([field]) => field),
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

const message = (fields: object) => ({ messages: [fields] });
const says = (role: unknown, content: unknown) => message({ role, content });
const user = (content: unknown) => says("user", content);
const image = (image_url: unknown) => ({
  model: "seer",
  ...user([{ type: "image_url", image_url }]),
});
const tool = (fields: object) => ({
  tools: [{ type: "function", function: fields }],
});
const parameters = (parameters: object) => tool({ name: "f", parameters });
const choose = (tool_choice: unknown) => ({
  tools: [weatherTool],
  tool_choice,
});
const format = (json_schema: unknown) => ({
  response_format: { type: "json_schema", json_schema },
});
const empty = { role: "user", content: "" };
const called = { role: "assistant", content: null, tool_calls: [callOf("a")] };
const calls = (...tool_calls: unknown[]) => message({ ...called, tool_calls });
const callWith = (args: unknown) => ({
  ...callOf("a"),
  function: { name: "f", arguments: args },
});
const answered = { role: "tool", tool_call_id: "a", content: "" };
const PART = "messages[0].content[0]";
const NAME = "tools[0].function.name";
const PARAMETERS = "tools[0].function.parameters";

/** By code: the `param` of the error and what is changed in {@link ping}. */
const REFUSED: { [Code in ErrorCode]?: [param: string | null, Fields][] } = {
  missing_required_parameter: [
    ["model", { model: undefined }],
    ["messages", { messages: undefined }],
    ["messages[0].role", message({ content: "x" })],
    ["messages[0].content", message({ role: "user" })],
    ["messages[0].tool_call_id", message({ role: "tool", content: "x" })],
    [`${PART}.type`, user([{ text: "x" }])],
    [`${PART}.text`, user([{ type: "text" }])],
    [`${PART}.image_url.url`, image({})],
    ["tools[0].type", { tools: [{ function: { name: "f" } }] }],
    [NAME, tool({ parameters: {} })],
    ["tool_choice.type", choose({ function: { name: "f" } })],
    ["response_format.type", { response_format: {} }],
    ["response_format.json_schema.name", format({ schema: {} })],
  ],
  invalid_type: [
    ["model", { model: null }],
    ["messages", { messages: "hi" }],
    ["messages[0].role", says(7, "x")],
    ["messages[0].name", message({ role: "user", content: "x", name: 7 })],
    ["messages[0].content", user(null)],
    [PART, user(["x"])],
    [`${PART}.text`, user([{ type: "text", text: null }])],
    [`${PART}.image_url`, image("https://a")],
    ["messages[0].tool_calls[0].function.arguments", calls(callWith({}))],
    [PARAMETERS, parameters([])],
    ["tools[0].function.strict", tool({ name: "f", strict: "yes" })],
    ["tool_choice", choose(7)],
    ["parallel_tool_calls", { parallel_tool_calls: "true" }],
    ["stop", { stop: 7 }],
    ["response_format", { response_format: "json" }],
    ["response_format.json_schema.schema", format({ name: "a", schema: true })],
    ["stream", { stream: "true" }],
    ["stream_options.include_usage", { stream_options: { include_usage: 7 } }],
  ],
  invalid_value: [
    ["model", { model: "\r\nPUB evil 1\r\nx" }],
    ["messages[0].role", says("bogus", "x")],
    ["messages[0].name", message({ role: "user", content: "", name: "a\0" })],
    [`${PART}.image_url.url`, image({ url: "file:///etc/passwd" })],
    [
      `${PARAMETERS}.properties.n.maximum`,
      parameters({ properties: { n: { maximum: Infinity } } }),
    ],
    ["tool_choice", choose("bogus")],
    ["tool_choice", { tool_choice: "required" }],
    ["tool_choice.function.name", choose(chosen("f"))],
    ["messages[0]", message(answered)],
    ["messages[1]", { messages: [called, { ...answered, tool_call_id: "b" }] }],
    ["messages[1]", { messages: [empty, called] }],
    ["messages[0]", { messages: [called, empty, answered] }],
    ["messages[3]", { messages: [called, answered, empty, answered] }],
    ["stream_options", { stream_options: {} }],
    ["top_logprobs", { top_logprobs: 3 }],
    ["top_k", { top_k: Infinity }],
  ],
  empty_string: [
    ["model", { model: "" }],
    [NAME, tool({ name: "" })],
    ["stop", { stop: "" }],
    ["stop[1]", { stop: ["a", ""] }],
  ],
  string_above_max_length: [
    ["model", { model: "m".repeat(201) }],
    ["stop", { stop: "a".repeat(513) }],
  ],
  empty_array: [
    ["messages", { messages: [] }],
  ],
  array_above_max_length: [
    ["messages", { messages: Array(4_097).fill(empty) }],
    ["messages[0].content", user(Array(1_025).fill(parts[0]))],
    ["messages[0].tool_calls", calls(...Array(129).fill(callOf("a")))],
    ["tools", { tools: Array(129).fill(weatherTool) }],
    ["stop", { stop: Array(17).fill("a") }],
  ],
  unsupported_parameter: [
    ["priority", { priority: 5 }],
    ["min_tokens", { min_tokens: 9, max_tokens: 8 }],
    ["logit_bias", { model: "closed", logit_bias: {} }],
    ["top_k", { model: "picky", top_k: 5 }],
  ],
  unsupported_value: [
    [`${PART}.type`, { ...image({ url: "https://a" }), model: ping.model }],
    [`${PART}.type`, user([{ type: "file", file: { file_id: "f" } }])],
    [`${PART}.image_url.url`, {
      ...image({ url: "https://a" }),
      model: "closed",
    }],
  ],
  model_not_found: [
    [null, { model: "x.>", temperature: 9 }],
    [null, { model: "__proto__" }],
  ],
};

for (const [code, rows] of Object.entries(REFUSED)) {
  Deno.test(`parseChatRequest() refuses by ${code}`, () => {
    for (const [param, fields] of rows) {
      const error = refusalOf({ ...ping, ...fields });
      assert.deepEqual([error.code, error.param], [code, param], error.message);
      assert.equal(error.status, code === "model_not_found" ? 404 : 400);
      assert.ok(error.message.length < 400, "the message is short");
      assert.ok(!error.message.includes("secret"), error.message);
    }
  });
}

Deno.test("parseChatRequest() reports what was expected, and the value if it is not private", () => {
  const roles = "'system', 'developer', 'user', 'assistant', or 'tool'";
  const rows: [Fields, param: string, expected: string][] = [
    [{ temperature: 200 }, "temperature", "a value <= 2, but got 200"],
    [{ n: 1.5 }, "n", "an integer, but got 1.5"],
    [{ repetition_penalty: 0 }, "repetition_penalty", "a value > 0, but got 0"],
    [{ max_tokens: 9e6 }, "max_tokens", "a value <= 32768, but got 9000000"],
    [{ stop: 7 }, "stop", "a string or an array of strings, but got 7"],
    [
      { stop: Array(17).fill("secret") },
      "stop",
      "at most 16 elements, but got an array of length 17",
    ],
    [says("bogus", "x"), "messages[0].role", `${roles}, but got 'bogus'`],
    [user([["secret"]]), PART, "an object, but got an array of length 1"],
  ];
  for (const [fields, param, expected] of rows) {
    const { message } = refusalOf({ ...ping, ...fields });
    assert.equal(message, `Invalid '${param}': expected ${expected}.`);
  }
  const { message } = refusalOf({ ...ping, model: undefined });
  assert.equal(message, "Missing required parameter: 'model'.");
});

Deno.test("parseChatRequest() reports the first fault in OpenAI's order", () => {
  const order = [
    "model",
    "messages",
    "tools",
    "parallel_tool_calls",
    "max_completion_tokens",
    "n",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "seed",
    "stream",
  ];
  const fields: Fields = {};
  for (const name of order.reverse()) {
    fields[name] = { wrong: true };
    assert.equal(refusalOf({ ...ping, ...fields }).param, name);
  }
  for (const body of [[], "x", null, 7, true, undefined]) {
    assert.match(refusalOf(body).message, /request body: expected an object/);
  }
});

Deno.test("parseChatRequest() refuses a million wrong elements as fast as one", () => {
  const many = Array(1_000_000).fill(7);
  const wide = Array(4096).fill({ role: "user", content: Array(1024).fill(7) });
  const bodies = [{ messages: many }, { messages: wide }, { tools: many }];
  for (const fields of [...bodies, { stop: many }]) {
    const start = performance.now();
    assert.equal(refusalOf({ ...ping, ...fields }).status, 400);
    // 4 million issues of zod would take seconds and a gigabyte.
    assert.ok(performance.now() - start < 500);
  }
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
  assert.deepEqual(request.messages, [{ role: "user", content: "x" }]);
  assert.equal(Reflect.get({}, "polluted"), undefined);
  assert.equal(Reflect.get(request, "polluted"), undefined);
});

Deno.test("the description of the API names every rule that its schema does not have", () => {
  const broken: { [rule: string]: Fields } = {
    History: message(answered),
    Choice: { tool_choice: "required" },
    Needs: { stream_options: {} },
    Values: { zzz: Infinity },
    Model: { model: "unknown" },
    Unsupported: { priority: 5 },
  };
  for (const [rule, fields] of Object.entries(broken)) {
    const body = { ...ping, ...fields };
    assert.equal(ruleBehind(body, refusalOf(body)), rule);
  }
  // The size is checked before the body is parsed: json_body_test.ts.
  assert.deepEqual([...Object.keys(broken), "Size"], RULE_NAMES);
});
