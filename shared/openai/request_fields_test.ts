import { testRefusals } from "./request_cases_test.ts";

const user = (content: unknown) => ({ messages: [{ role: "user", content }] });
const image = (url: unknown, detail?: unknown) =>
  user([{
    type: "image_url",
    image_url: detail === undefined ? { url } : { url, detail },
  }]);

// One row a line: the table is read down its columns.
// deno-fmt-ignore
testRefusals([
  // Stop sequences.
  ["integer stop", { stop: 7 }, "invalid_type", "stop",
    "Invalid type for 'stop': expected one of a string or array of strings, but got an integer instead."],
  ["stop of an integer", { stop: [1] }, "invalid_type", "stop[0]",
    "Invalid type for 'stop[0]': expected a string, but got an integer instead."],
  ["empty stop", { stop: "" }, "empty_string", "stop", /empty string/],
  ["empty stop in a list", { stop: ["a", ""] }, "empty_string", "stop[1]", /empty string/],
  ["17 stops", { stop: Array(17).fill("a") }, "array_above_max_length", "stop",
    /maximum length 16, but got an array with length 17/],
  ["10,000 stops", { stop: Array(10_000).fill("a") }, "array_above_max_length", "stop", /length 10000/],
  ["stop of 513 characters", { stop: "a".repeat(513) }, "string_above_max_length", "stop",
    /maximum length 512/],
  ["surrogate in stop", { stop: ["\ud800"] }, "invalid_value", "stop[0]", /surrogate/],
  // The output's format.
  ["string response_format", { response_format: "json" }, "invalid_type", "response_format",
    "Invalid type for 'response_format': expected an object, but got a string instead."],
  ["response_format without type", { response_format: {} }, "missing_required_parameter", "response_format.type",
    "Missing required parameter: 'response_format.type'."],
  ["unknown response_format", { response_format: { type: "xml" } }, "invalid_value", "response_format.type",
    "Invalid value: 'xml'. Supported values are: 'text', 'json_object', and 'json_schema'."],
  ["json_schema without its member", { response_format: { type: "json_schema" } }, "missing_required_parameter", "response_format.json_schema",
    "Missing required parameter: 'response_format.json_schema'."],
  ["json_schema without name", { response_format: { type: "json_schema", json_schema: { schema: {} } } }, "missing_required_parameter", "response_format.json_schema.name",
    "Missing required parameter: 'response_format.json_schema.name'."],
  ["json_schema with a bad name", { response_format: { type: "json_schema", json_schema: { name: "a b" } } }, "invalid_value", "response_format.json_schema.name",
    /pattern/],
  ["json_schema name of 65", { response_format: { type: "json_schema", json_schema: { name: "a".repeat(65) } } }, "string_above_max_length", "response_format.json_schema.name",
    /64/],
  ["json_schema that is no object", { response_format: { type: "json_schema", json_schema: { name: "a", schema: true } } }, "invalid_type", "response_format.json_schema.schema",
    /boolean/],
  // Streams.
  ["string stream", { stream: "true" }, "invalid_type", "stream",
    "Invalid type for 'stream': expected a boolean, but got a string instead."],
  ["integer stream", { stream: 1 }, "invalid_type", "stream", /an integer instead/],
  ["stream_options without stream", { stream_options: {} }, "invalid_value", "stream_options",
    "The 'stream_options' parameter is only allowed when 'stream' is enabled."],
  ["stream_options with stream false", { stream: false, stream_options: { include_usage: null } }, "invalid_value", "stream_options",
    /only allowed/],
  ["array stream_options", { stream: true, stream_options: [] }, "invalid_type", "stream_options",
    /expected an object, but got an array/],
  ["string include_usage", { stream: true, stream_options: { include_usage: "yes" } }, "invalid_type", "stream_options.include_usage",
    /expected a boolean/],
  // What no model server is asked for.
  ["audio among modalities", { modalities: ["text", "audio"] }, "unsupported_parameter", "modalities",
    "Unsupported parameter: 'modalities' is not supported. Answers are always text. Leave it out, or use ['text']."],
  ["modalities that are no list", { modalities: "audio" }, "unsupported_parameter", "modalities", /always text/],
  ["audio", { audio: { voice: "alloy", format: "wav" } }, "unsupported_parameter", "audio", /always text/],
  ["functions", { functions: [{ name: "f" }] }, "unsupported_parameter", "functions", /Use 'tools' instead/],
  ["function_call", { function_call: "auto" }, "unsupported_parameter", "function_call", /Use 'tool_choice' instead/],
  ["top_logprobs without logprobs", { top_logprobs: 3 }, "invalid_value", "top_logprobs",
    "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."],
  ["top_logprobs with logprobs false", { top_logprobs: 3, logprobs: false }, "invalid_value", "top_logprobs", /only allowed/],
  // Text that cannot be sent on.
  ["surrogate in content", user("a\ud800b"), "invalid_value", "messages[0].content",
    "Invalid 'messages[0].content': the text has an unpaired surrogate and is not valid Unicode."],
  ["surrogate in a part", { ...image("data:image/png;base64,\udfff"), model: "seer" }, "invalid_value", "messages[0].content[0].image_url.url",
    /surrogate/],
  ["huge number in a passed field", { top_k: Infinity }, "invalid_value", "top_k", /number out of range/],
  ["surrogate in a passed field", { chat_template_kwargs: { a: "\ud800" } }, "invalid_value", "chat_template_kwargs.a",
    /surrogate/],
]);
