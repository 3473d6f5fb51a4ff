/** Which chat requests are refused, by which error, and in what order. */
import assert from "node:assert/strict";
import type { ErrorCode } from "@gateway/shared/openai/error";
import { RULE_NAMES, ruleBehind } from "../../../tests/support/api_document.ts";
import {
  callOf,
  chosen,
  type Fields,
  parts,
  ping,
  refusalOf,
  weatherTool,
} from "./request_fixture.ts";

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
  const roles =
    "'system', 'developer', 'user', 'assistant', 'tool', or 'function'";
  const rows: { fields: Fields; param: string; expected: string }[] = [
    {
      fields: { temperature: 200 },
      param: "temperature",
      expected: "a value <= 2, but got 200",
    },
    { fields: { n: 1.5 }, param: "n", expected: "an integer, but got 1.5" },
    {
      fields: { repetition_penalty: 0 },
      param: "repetition_penalty",
      expected: "a value > 0, but got 0",
    },
    {
      fields: { max_tokens: 9e6 },
      param: "max_tokens",
      expected: "a value <= 32768, but got 9000000",
    },
    {
      fields: { stop: 7 },
      param: "stop",
      expected: "a string or an array of strings, but got 7",
    },
    {
      fields: { stop: Array(17).fill("secret") },
      param: "stop",
      expected: "at most 16 elements, but got an array of length 17",
    },
    {
      fields: says("bogus", "x"),
      param: "messages[0].role",
      expected: `${roles}, but got 'bogus'`,
    },
    {
      fields: user([["secret"]]),
      param: PART,
      expected: "an object, but got an array of length 1",
    },
  ];
  for (const { fields, param, expected } of rows) {
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
