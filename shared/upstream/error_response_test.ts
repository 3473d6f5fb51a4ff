/** Error responses of real servers, and the errors that callers get. */
import assert from "node:assert/strict";
import { threadMs } from "../../tests/support/wait_for.ts";
import type { UpstreamError } from "./http/errors.ts";
import { createRedact, errorOfResponse, frameError } from "./error_response.ts";

const KEY = "the-key-of-the-model-server";
const clean = createRedact({
  secrets: [KEY],
  baseUrl: new URL("http://gpu.internal:8000/v1"),
});

function openAi(error: { [name: string]: unknown } = {}): unknown {
  const type = "invalid_request_error";
  return { error: { message: "Too long", type, code: null, ...error } };
}

/** `fault status code param: message` */
function textOf(error: UpstreamError): string {
  const { message, code, param } = error.toBody().error;
  assert.ok(!JSON.stringify(error.toBody()).includes(KEY));
  const where = param ? ` ${param}` : "";
  return `${error.fault} ${error.status} ${code}${where}: ${message}`;
}

const request = (message: string, code = "invalid_request") =>
  `request 400 ${code}: ${message}`;
const unprocessable = (message: string) =>
  `request 422 invalid_request: ${message}`;
const REFUSED = request("The model server refused the request");
const TOO_LONG_CODE = "context_length_exceeded";
const TOO_LONG = request("Too long", TOO_LONG_CODE);
const OVERFLOW = "Requested tokens (700) exceed context window of 512";
const CREDENTIALS =
  "credentials 502 upstream_error: The model server refused the gateway's credentials";
const LIMITED =
  "rate_limited 429 rate_limit_exceeded: The model server has reached its rate limit, try again later";
const BUSY =
  "overloaded 503 overloaded: The model server is busy, try again later";
const UNKNOWN_MODEL =
  "unknown_model 502 upstream_error: The model server does not have this model";
const FAILED = "server_error 502 upstream_error: The model server failed";
const NO_ENDPOINT =
  "no_endpoint 502 upstream_error: The model server does not have this endpoint";
const failed = (message: string) =>
  `server_error 502 upstream_error: ${message}`;

/** Messages with status 500 about requests that are refused every time. */
const PERMANENT = [
  "Unexpected message role.",
  "Conversation roles must alternate user/assistant/user/assistant/...",
  "tool messages are not supported by this template",
  "registry/library/x:latest does not support tools",
  "Failed to parse grammar",
  "invalid JSON schema in format",
];

/** FastAPI's `detail` as Kokoro-FastAPI fills it. */
const kokoro = (error: string) => ({
  detail: { error, message: "No voice x" },
});

/** A refusal of a server, and the error that it becomes. */
interface Row {
  status: number;
  body?: unknown;
  expected: string;
}
/** A fault of the request, with this code if it is not the usual one. */
const bad = (body: unknown, message: string, code?: string): Row => {
  return { status: 400, body, expected: request(message, code) };
};
const BLIND = "No server for this model can see images";
const NO_TOOL = "The model's tool 'f' was not found";
const LONG_TEXT = { param: "messages[0].content", code: "string_too_long" };
const OVERLONG = "request 422 string_too_long messages[0].content: Too long";
const BAD_N = { message: "Bad n" };
const ofFastApi = [
  { loc: ["body", "messages", 0, "role"], msg: "Input should be 'user'" },
  { loc: ["body", "n"], msg: KEY },
];
const ROLE = "messages.0.role: Input should be 'user'; n: [redacted]";
const GRAMMAR = "invalid JSON schema in format";
const refusals: Row[] = [
  bad(openAi(), "Too long"),
  { status: 422, body: openAi(LONG_TEXT), expected: OVERLONG },
  // Members that are malformed or contain the key.
  bad(openAi({ param: "a b", code: "<script>" }), "Too long"),
  bad(openAi({ code: KEY }), "Too long"),
  bad(
    openAi({ message: `${KEY} at http://gpu.internal:8000/v1` }),
    "[redacted] at [redacted]",
  ),
  { status: 400, body: openAi({ message: "" }), expected: REFUSED },
  bad(openAi({ code: 400 }), "Too long"),
  // vLLM's older shape, Qwen's, a text, FastAPI's two, alone and in Mistral's.
  bad({ object: "error", type: "BadRequestError", ...BAD_N }, "Bad n"),
  bad({ code: "InvalidParameter", ...BAD_N }, "Bad n", "InvalidParameter"),
  bad({ error: "Bad n" }, "Bad n"),
  { status: 422, body: { detail: ofFastApi }, expected: unprocessable(ROLE) },
  {
    status: 422,
    body: { object: "error", message: { detail: ofFastApi } },
    expected: unprocessable(ROLE),
  },
  bad({ detail: "Bad n" }, "Bad n"),
  bad(kokoro("validation_error"), "No voice x", "validation_error"),
  { status: 400, body: kokoro("invalid_model"), expected: UNKNOWN_MODEL },
  { status: 500, body: kokoro("processing_error"), expected: FAILED },
  ...PERMANENT.map((message): Row => {
    return {
      status: 500,
      body: openAi({ message }),
      expected: request(message),
    };
  }),
  { status: 502, body: openAi({ message: GRAMMAR }), expected: FAILED },
  {
    status: 500,
    body: openAi({ message: OVERFLOW }),
    expected: request(OVERFLOW, TOO_LONG_CODE),
  },
  { status: 400, expected: REFUSED },
  { status: 400, body: [], expected: REFUSED },
  { status: 400, body: openAi({ code: TOO_LONG_CODE }), expected: TOO_LONG },
  {
    status: 400,
    body: openAi({ type: "exceed_context_size_error", code: 400 }),
    expected: TOO_LONG,
  },
  // Azure's filter, Groq's call that was no call, Google's array, TGI's shape.
  bad(openAi({ code: "content_filter" }), "Too long", "content_filter"),
  bad(openAi({ code: "tool_use_failed" }), "Too long", "tool_use_failed"),
  bad([openAi({ code: 400, status: "INVALID_ARGUMENT" })], "Too long"),
  { status: 400, body: [openAi(), openAi()], expected: REFUSED },
  {
    status: 422,
    body: { error: "Bad n", error_type: "validation" },
    expected: unprocessable("Bad n"),
  },
  // Groq's rate of tokens that is smaller than the request.
  {
    status: 413,
    body: openAi({ type: "tokens", code: "rate_limit_exceeded" }),
    expected: LIMITED,
  },
  {
    status: 413,
    body: openAi(),
    expected: "request 413 request_too_large: Too long",
  },
  {
    status: 404,
    body: openAi({ code: "model_not_found" }),
    expected: UNKNOWN_MODEL,
  },
  {
    status: 400,
    body: openAi({ code: "ModelNotFound" }),
    expected: UNKNOWN_MODEL,
  },
  { status: 404, body: openAi({ message: BLIND }), expected: request(BLIND) },
  bad(openAi({ message: NO_TOOL }), NO_TOOL),
  // An unknown path is not the caller's fault.
  { status: 404, body: { detail: "Not Found" }, expected: NO_ENDPOINT },
  { status: 405, body: { detail: "Not Allowed" }, expected: NO_ENDPOINT },
  { status: 501, body: "", expected: NO_ENDPOINT },
  {
    status: 404,
    body: openAi({ message: "code=404, message=Not Found" }),
    expected: NO_ENDPOINT,
  },
  {
    status: 404,
    body: openAi({ message: "Not Found" }),
    expected: NO_ENDPOINT,
  },
  { status: 401, body: openAi({ message: KEY }), expected: CREDENTIALS },
  { status: 402, body: openAi(), expected: CREDENTIALS },
  { status: 403, body: openAi(), expected: CREDENTIALS },
  { status: 408, expected: LIMITED },
  { status: 409, expected: LIMITED },
  { status: 425, expected: LIMITED },
  { status: 429, body: openAi({ message: KEY }), expected: LIMITED },
  { status: 204, body: openAi(), expected: FAILED },
  { status: 302, body: openAi(), expected: FAILED },
  { status: 502, body: openAi(), expected: FAILED },
  { status: 507, body: openAi(), expected: FAILED },
  { status: 500, body: openAi({ message: KEY }), expected: FAILED },
  { status: 503, expected: BUSY },
  {
    status: 503,
    body: openAi({ message: `${KEY}: server busy` }),
    expected: BUSY,
  },
  { status: 529, body: openAi(), expected: BUSY },
];

Deno.test("errorOfResponse() goes by the status and the body of a refusal", () => {
  for (const { status, body, expected } of refusals) {
    const error = errorOfResponse({ status, body }, clean);
    assert.equal(textOf(error), expected, `${status} ${JSON.stringify(body)}`);
  }
});

const UNKNOWN_MODELS = [
  "model 'inner' not found",
  'model "inner" not found, try pulling it first',
  "The model `inner` does not exist.",
  "The model `inner` does not exist or you do not have access to it.",
  "The requested model 'inner' is not available",
  "Model not found",
  "Unknown model: inner",
];

Deno.test("the name of an unknown model appears in the log only", () => {
  for (const message of UNKNOWN_MODELS) {
    const body = openAi({ message: `${message} (${KEY})` });
    const error = errorOfResponse({ status: 404, body }, clean);
    assert.equal(textOf(error), UNKNOWN_MODEL);
    const logged = Deno.inspect(error.cause);
    assert.ok(logged.includes(`${message} ([redacted])`), logged);
  }
});

const CONTEXT_TOO_LONG = [
  "This model's maximum context length is 8 tokens. However, you asked for 9.",
  "The decoder prompt (length 9) is longer than the maximum model length of 8.",
  "The input (9 tokens) is longer than the model's context length (8 tokens).",
  "Requested token count exceeds the model's maximum context length of 8.",
  "the request exceeds the available context size. try increasing it",
  "the input length exceeds the context length",
  "The model is loaded with context length of only 8 tokens, not enough.",
  "Input validation error: `inputs` must have less than 8 tokens. Given: 9",
  "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8.",
  "prompt is too long: 9 tokens > 8 maximum",
  "The input token count (9) exceeds the maximum number of tokens allowed (8).",
  "Range of input length should be [1, 8]",
];
const OTHERS = [
  "max_tokens must be at least 1",
  "context_length must be an integer",
  "The name of a tool is longer than 64 characters",
  "Invalid input: messages",
];

Deno.test("a prompt that is too long has its own code", () => {
  const errorText = (message: string) =>
    textOf(errorOfResponse({ status: 400, body: openAi({ message }) }, clean));
  for (const message of CONTEXT_TOO_LONG) {
    assert.equal(errorText(message), request(message, TOO_LONG_CODE));
  }
  for (const message of OTHERS) {
    assert.equal(errorText(message), request(message));
  }
});

/** Errors within an answer that began with status 200. */
const frames: [data: unknown, text: string][] = [
  [
    openAi({ message: `Out of memory on ${KEY}`, type: "server_error" }),
    failed("Out of memory on [redacted]"),
  ],
  [{ error: "CUDA error" }, failed("CUDA error")],
  [{ message: "Gone", code: "x" }, failed("Gone")],
  [{ error: 7 }, FAILED],
  [undefined, FAILED],
  // A status in the code, as a number or a text, or a kind that stands for one.
  [openAi({ code: 400 }), request("Too long")],
  [openAi({ code: "429" }), LIMITED],
  [openAi({ type: "rate_limit_error" }), LIMITED],
  [openAi({ type: "BadRequestError" }), request("Too long")],
  [openAi({ type: "image_generation_user_error" }), request("Too long")],
  [openAi({ type: "overloaded", http_status_code: 429 }), LIMITED],
  [{ error: "Model is overloaded", error_type: "overloaded" }, BUSY],
  [openAi({ code: 503 }), BUSY],
  [openAi({ code: 502, type: "x" }), failed("Too long")],
  [openAi({ code: 404, message: "model 'inner' not found" }), UNKNOWN_MODEL],
  [openAi({ type: "exceed_context_size_error" }), TOO_LONG],
  [openAi({ code: "invalid_api_key" }), CREDENTIALS],
];

Deno.test("frameError() goes by what an error within an answer says", () => {
  for (const [data, expected] of frames) {
    assert.equal(
      textOf(frameError(data, clean)),
      expected,
      JSON.stringify(data),
    );
  }
});

Deno.test("a refusal says how long to wait, by default one second", () => {
  for (const status of [429, 503]) {
    for (const wait of [{}, { retryAfterMs: 9_000 }]) {
      const error = errorOfResponse({ status, body: null, ...wait }, clean);
      assert.equal(error.retryAfterMs, wait.retryAfterMs ?? 1_000);
    }
  }
});

const HOSTED_KEY = "abcd1234-of-the-model-server";
const redact = createRedact({
  secrets: [HOSTED_KEY, "", "team-secret-header"],
  baseUrl: new URL("https://gpu-7.internal.example:8443/v1"),
});

const texts: [text: string, clean: string][] = [
  ["max_tokens is too large: 5000", "max_tokens is too large: 5000"],
  [
    `Key ${HOSTED_KEY} expired, ${HOSTED_KEY}!`,
    "Key [redacted] expired, [redacted]!",
  ],
  ["got team-secret-header", "got [redacted]"],
  ["gpu-7.internal.example is down", "[redacted] is down"],
  [
    "see http://10.0.0.1:9000/a?b=c, or ws://x/y",
    "see [redacted] or [redacted]",
  ],
  ["from 192.168.1.20:8000.", "from [redacted]."],
  ["Authorization: Bearer abc.def", "Authorization: [redacted]"],
  // Keys of other vendors, masked ones too.
  ["Incorrect API key: sk-proj-abcDEF123", "Incorrect API key: [redacted]"],
  ["Incorrect API key: sk-ab**********wxyz.", "Incorrect API key: [redacted]"],
  ["a\r\nb\u0000c\u001b[31m", "a b c [31m"],
  [
    "Cannot open /models/qwen/q4.gguf or '/w.gguf' (C:\\m\\a.bin, ~/x/y): src/llama.cpp:77, app.py:3",
    "Cannot open [redacted] or '[redacted]' ([redacted] [redacted]): [redacted], [redacted]",
  ],
  // What only looks like a path or a key.
  [
    "text/plain and/or 4/5, see /v1/models, </s>, response_format.type",
    "text/plain and/or 4/5, see /v1/models, </s>, response_format.type",
  ],
  ["task-list, disk_usage, key_name", "task-list, disk_usage, key_name"],
  // Stack traces of Python, JavaScript and Go.
  [
    'Traceback (most recent call last):\n  File "/srv/app.py", line 3, ' +
    'in run\n    go(secret)\n  File "x.py", line 9, in go\nValueError: no',
    "ValueError: no",
  ],
  ["Error: no\n    at run (/srv/app.js:3:1)\n    at async main:9", "Error: no"],
  [
    "panic: no\n\ngoroutine 1 [running]:\nmain.go()\n\t/srv/main.go:3 +0x1",
    "panic: no main.go()",
  ],
  ["a\ud83db", "a\ufffdb"],
  ["  a  ", "a"],
];

Deno.test("redact() hides secrets, addresses, paths and traces, and nothing else", () => {
  for (const [text, expected] of texts) assert.equal(redact(text), expected);
});

/** How long the CPU may compute, for a message of up to 18 MB. */
const MS_MAX = 1_000;

const model = { theirs: "smol+lm2", ours: "neutral" };
const rename = createRedact({ secrets: [], baseUrl: new URL("a://b"), model });

Deno.test("API10: redact() clips at 500 characters, leaves no part of a secret, and is quick", () => {
  for (const piece of ["a", "a.", "a-", "-/-/-/-/", "input token count "]) {
    const body = openAi({ message: piece.repeat(2 ** 20) });
    const before = threadMs();
    errorOfResponse({ status: 500, body }, rename);
    const tookMs = threadMs() - before;
    assert.ok(tookMs < MS_MAX, `${piece}: ${tookMs} ms`);
  }
  for (const chars of [499, 500, 501, 100_000]) {
    const text = redact("x".repeat(chars));
    assert.equal(text.length, Math.min(chars, 500));
    assert.equal(text.endsWith("…"), chars > 500);
  }
  const text = redact("x".repeat(500 - HOSTED_KEY.length / 2) + HOSTED_KEY);
  assert.ok(!text.includes(HOSTED_KEY.slice(0, 4)), text);
});

Deno.test("redact() replaces the server's name of the model by the caller's", () => {
  assert.equal(rename("r.ai/library/smol+lm2:latest fails."), "neutral fails.");
  assert.equal(rename("The model `smol+lm2`."), "The model `neutral`.");
});
