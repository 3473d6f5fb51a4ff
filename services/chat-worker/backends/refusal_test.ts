import assert from "node:assert/strict";
import type { ErrorBody } from "@gateway/shared/openai/error";
import type { UpstreamError, UpstreamFault } from "./errors.ts";
import { createRedact } from "./redact.ts";
import { frameError, readRetryAfter, refusalError } from "./refusal.ts";

const KEY = "the-key-of-the-model-server";
const clean = createRedact({
  secrets: [KEY],
  baseUrl: new URL("http://gpu.internal:8000/v1"),
});

function openAi(error: { [name: string]: unknown }): unknown {
  return {
    error: {
      message: "Too long",
      type: "invalid_request_error",
      param: null,
      code: null,
      ...error,
    },
  };
}

interface Expected {
  fault: UpstreamFault;
  status: number;
  error: Partial<ErrorBody["error"]>;
}

const refusedRequest: Expected = {
  fault: "request",
  status: 400,
  error: {
    message: "The model server refused the request",
    type: "invalid_request_error",
    param: null,
    code: "invalid_request",
  },
};
const credentials: Expected = {
  fault: "credentials",
  status: 502,
  error: {
    message: "The model server refused the gateway's credentials",
    code: "upstream_error",
  },
};
const limited: Expected = {
  fault: "rate_limited",
  status: 429,
  error: { type: "requests", code: "rate_limit_exceeded" },
};
const busy: Expected = {
  fault: "overloaded",
  status: 503,
  error: {
    message: "The model server is busy, try again later",
    type: "server_error",
    code: "overloaded",
  },
};
const unknownModel: Expected = {
  fault: "unknown_model",
  status: 502,
  error: {
    message: "The model server does not have this model",
    param: null,
    code: "upstream_error",
  },
};
const failed: Expected = {
  fault: "server_error",
  status: 502,
  error: { message: "The model server failed", code: "upstream_error" },
};

function told(error: Partial<ErrorBody["error"]>): Expected {
  return { ...refusedRequest, error: { ...refusedRequest.error, ...error } };
}

function check(error: UpstreamError, expected: Expected): void {
  assert.equal(error.fault, expected.fault);
  assert.equal(error.status, expected.status);
  const body = error.toBody().error;
  assert.deepEqual({ ...body, ...expected.error }, body);
  assert.ok(!JSON.stringify(body).includes(KEY));
}

const refusals: {
  name: string;
  status: number;
  body: unknown;
  expected: Expected;
}[] = [
  {
    name: "OpenAI's shape",
    status: 400,
    body: openAi({}),
    expected: told({ message: "Too long" }),
  },
  {
    name: "param and code",
    status: 422,
    body: openAi({
      param: "messages[0].content",
      code: "string_above_max_length",
    }),
    expected: told({
      message: "Too long",
      param: "messages[0].content",
      code: "string_above_max_length",
    }),
  },
  {
    name: "param and code that are not clean",
    status: 400,
    body: openAi({ param: "a b", code: "<script>" }),
    expected: told({ message: "Too long" }),
  },
  {
    name: "a code that holds the key",
    status: 400,
    body: openAi({ code: KEY }),
    expected: told({ message: "Too long" }),
  },
  {
    name: "a message that holds the key and the address",
    status: 400,
    body: openAi({ message: `${KEY} at http://gpu.internal:8000/v1` }),
    expected: told({ message: "[redacted] at [redacted]" }),
  },
  {
    name: "an empty message",
    status: 400,
    body: openAi({ message: "" }),
    expected: refusedRequest,
  },
  {
    name: "a numeric code",
    status: 400,
    body: openAi({ code: 400 }),
    expected: told({ message: "Too long" }),
  },
  {
    name: "vLLM's older shape",
    status: 400,
    body: {
      object: "error",
      message: "Bad n",
      type: "BadRequestError",
      param: null,
      code: 400,
    },
    expected: told({ message: "Bad n" }),
  },
  {
    name: "Qwen's native shape",
    status: 400,
    body: { code: "InvalidParameter", message: "Bad n", request_id: "x" },
    expected: told({ message: "Bad n", code: "InvalidParameter" }),
  },
  {
    name: "text for an error",
    status: 400,
    body: { error: "Bad n" },
    expected: told({ message: "Bad n" }),
  },
  {
    name: "FastAPI's shape",
    status: 422,
    body: {
      detail: [
        {
          loc: ["body", "messages", 0, "UserMessage", "role"],
          msg: "Input should be 'user'",
        },
        { loc: ["body", "n"], msg: KEY },
      ],
    },
    expected: told({
      message:
        "messages.0.UserMessage.role: Input should be 'user'; n: [redacted]",
    }),
  },
  {
    name: "FastAPI's other shape",
    status: 400,
    body: { detail: "Bad n" },
    expected: told({ message: "Bad n" }),
  },
  {
    name: "a schema or grammar that it cannot use",
    status: 500,
    body: openAi({ message: `Failed to parse grammar ${KEY}` }),
    expected: told({ message: "Failed to parse grammar [redacted]" }),
  },
  {
    name: "the same by a gateway",
    status: 502,
    body: openAi({ message: "invalid JSON schema in format" }),
    expected: failed,
  },
  {
    name: "a role that the template does not know",
    status: 500,
    body: openAi({ type: "server_error", message: "Unexpected message role." }),
    expected: told({ message: "Unexpected message role." }),
  },
  {
    name: "a template that wants roles in turns",
    status: 500,
    body: openAi({
      message:
        "Conversation roles must alternate user/assistant/user/assistant/...",
    }),
    expected: told({
      message:
        "Conversation roles must alternate user/assistant/user/assistant/...",
    }),
  },
  {
    name: "a tool history that cannot be shown to the model",
    status: 500,
    body: { error: "tool messages are not supported by this template" },
    expected: told({
      message: "tool messages are not supported by this template",
    }),
  },
  {
    name: "tools that the model cannot use",
    status: 500,
    body: { error: "registry/library/x:latest does not support tools" },
    expected: told({
      message: "registry/library/x:latest does not support tools",
    }),
  },
  {
    name: "a context that is too long, as a fault",
    status: 500,
    body: openAi({
      message: "Requested tokens (700) exceed context window of 512",
    }),
    expected: told({
      message: "Requested tokens (700) exceed context window of 512",
      code: "context_length_exceeded",
    }),
  },
  { name: "no JSON", status: 400, body: undefined, expected: refusedRequest },
  { name: "an array", status: 400, body: [], expected: refusedRequest },
  {
    name: "a context that is too long, by code",
    status: 400,
    body: openAi({ code: "context_length_exceeded", param: "messages" }),
    expected: told({
      message: "Too long",
      code: "context_length_exceeded",
      param: "messages",
    }),
  },
  {
    name: "a context that is too long, by type",
    status: 400,
    body: openAi({ type: "exceed_context_size_error", code: 400 }),
    expected: told({ message: "Too long", code: "context_length_exceeded" }),
  },
  {
    name: "Azure's filter",
    status: 400,
    body: openAi({
      code: "content_filter",
      status: 400,
      innererror: { code: "ResponsibleAIPolicyViolation" },
    }),
    expected: told({ message: "Too long", code: "content_filter" }),
  },
  {
    name: "Groq's word for a call that was no call",
    status: 400,
    body: openAi({ code: "tool_use_failed", failed_generation: "<f>" }),
    expected: told({ message: "Too long", code: "tool_use_failed" }),
  },
  {
    name: "Google's array",
    status: 400,
    body: [openAi({ code: 400, status: "INVALID_ARGUMENT" })],
    expected: told({ message: "Too long" }),
  },
  {
    name: "an array of several",
    status: 400,
    body: [openAi({}), openAi({})],
    expected: refusedRequest,
  },
  {
    name: "TGI's shape",
    status: 422,
    body: { error: "Bad n", error_type: "validation" },
    expected: told({ message: "Bad n" }),
  },
  {
    name: "Groq's rate of tokens that is smaller than the request",
    status: 413,
    body: openAi({ type: "tokens", code: "rate_limit_exceeded" }),
    expected: limited,
  },
  {
    name: "a body that is too large",
    status: 413,
    body: openAi({}),
    expected: {
      fault: "request",
      status: 413,
      error: { message: "Too long", code: "request_too_large" },
    },
  },
  {
    name: "an unknown model, by code",
    status: 404,
    body: openAi({ code: "model_not_found" }),
    expected: unknownModel,
  },
  {
    name: "an unknown model, by code",
    status: 400,
    body: openAi({ code: "ModelNotFound" }),
    expected: unknownModel,
  },
  {
    name: "something else that was not found",
    status: 404,
    body: openAi({ message: "No server for this model can see images" }),
    expected: told({ message: "No server for this model can see images" }),
  },
  {
    name: "a word about the model",
    status: 400,
    body: openAi({ message: "The model's tool 'f' was not found" }),
    expected: told({ message: "The model's tool 'f' was not found" }),
  },
  {
    name: "an unknown path",
    status: 404,
    body: { detail: "Not Found" },
    expected: failed,
  },
  {
    name: "a wrong key",
    status: 401,
    body: openAi({ message: KEY }),
    expected: credentials,
  },
  { name: "no credit", status: 402, body: openAi({}), expected: credentials },
  { name: "no right", status: 403, body: openAi({}), expected: credentials },
  {
    name: "a timeout of its own",
    status: 408,
    body: undefined,
    expected: limited,
  },
  { name: "a conflict", status: 409, body: undefined, expected: limited },
  { name: "too early", status: 425, body: undefined, expected: limited },
  {
    name: "a limit",
    status: 429,
    body: openAi({ message: KEY }),
    expected: limited,
  },
  {
    name: "a method that is not allowed",
    status: 405,
    body: openAi({}),
    expected: failed,
  },
  { name: "a redirect", status: 302, body: undefined, expected: failed },
  {
    name: "success of another kind",
    status: 204,
    body: undefined,
    expected: failed,
  },
  {
    name: "a fault",
    status: 500,
    body: openAi({ message: KEY }),
    expected: failed,
  },
  { name: "overload", status: 503, body: undefined, expected: busy },
  {
    name: "overload in words",
    status: 503,
    body: openAi({ message: `${KEY}: server busy` }),
    expected: busy,
  },
  { name: "overload", status: 529, body: openAi({}), expected: busy },
  { name: "a gateway's fault", status: 502, body: undefined, expected: failed },
  { name: "no storage", status: 507, body: openAi({}), expected: failed },
];

for (const { name, status, body, expected } of refusals) {
  Deno.test(`refusalError() maps ${status} with ${name}`, () => {
    check(refusalError({ status, body }, clean), expected);
  });
}

/** As servers in use say that they do not have a model, with a name that is ours. */
const UNKNOWN_MODELS = [
  "model 'inner' not found",
  'model "inner" not found, try pulling it first',
  "The model `inner` does not exist.",
  "The model `inner` does not exist or you do not have access to it.",
  "The requested model 'inner' is not available",
  "Model not found",
  "Unknown model: inner",
];

for (const message of UNKNOWN_MODELS) {
  Deno.test(`refusalError() takes a model for unknown: ${message}`, () => {
    const body = openAi({ message: `${message} (${KEY})` });
    const error = refusalError({ status: 404, body }, clean);
    check(error, unknownModel);
    assert.ok(!JSON.stringify(error.toBody()).includes("inner"));
    const logged = Deno.inspect(error.cause);
    assert.ok(logged.includes(`${message} ([redacted])`), logged);
  });
}

const lengths: { isTooLong: boolean; messages: string[] }[] = [
  {
    // As servers in use word it, with numbers that are ours.
    isTooLong: true,
    messages: [
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
    ],
  },
  {
    isTooLong: false,
    messages: [
      "max_tokens must be at least 1",
      "context_length must be an integer",
      "The name of a tool is longer than 64 characters",
      "Invalid input: messages",
    ],
  },
];

for (const { isTooLong, messages } of lengths) {
  for (const message of messages) {
    Deno.test(`refusalError() takes a context for ${isTooLong ? "" : "not "}too long: ${message}`, () => {
      const error = refusalError(
        { status: 400, body: openAi({ message }) },
        clean,
      );
      const code = isTooLong ? { code: "context_length_exceeded" } : {};
      check(error, told({ message, ...code }));
    });
  }
}

const frames: { name: string; data: unknown; expected: Expected }[] = [
  {
    name: "an error object",
    data: {
      error: { message: `Out of memory on ${KEY}`, type: "server_error" },
    },
    expected: {
      ...failed,
      error: { message: "Out of memory on [redacted]", type: "server_error" },
    },
  },
  {
    name: "text",
    data: { error: "CUDA error" },
    expected: { ...failed, error: { message: "CUDA error" } },
  },
  {
    name: "a flat error",
    data: { message: "Gone", code: "x" },
    expected: { ...failed, error: { message: "Gone" } },
  },
  { name: "nothing that is known", data: { error: 7 }, expected: failed },
  { name: "no JSON", data: undefined, expected: failed },
  {
    name: "a status in the code",
    data: openAi({ code: 400 }),
    expected: told({ message: "Too long" }),
  },
  {
    name: "a status in words",
    data: openAi({ code: "429" }),
    expected: limited,
  },
  {
    name: "a limit by name",
    data: openAi({ type: "rate_limit_error" }),
    expected: limited,
  },
  {
    name: "a kind of request error",
    data: openAi({ type: "BadRequestError" }),
    expected: told({ message: "Too long" }),
  },
  {
    name: "a status of TGI",
    data: openAi({ type: "overloaded", http_status_code: 429 }),
    expected: limited,
  },
  {
    name: "TGI's word for overload",
    data: { error: "Model is overloaded", error_type: "overloaded" },
    expected: busy,
  },
  {
    name: "overload by number",
    data: openAi({ code: 503 }),
    expected: busy,
  },
  {
    name: "another fault by number",
    data: openAi({ code: 502, type: "x" }),
    expected: { ...failed, error: { message: "Too long" } },
  },
  {
    name: "an unknown model",
    data: openAi({ code: 404, message: "model 'inner' not found" }),
    expected: unknownModel,
  },
  {
    name: "a context that llama.cpp finds too long",
    data: openAi({ type: "exceed_context_size_error" }),
    expected: told({ message: "Too long", code: "context_length_exceeded" }),
  },
  {
    name: "refused credentials",
    data: openAi({ code: "invalid_api_key" }),
    expected: credentials,
  },
];

for (const { name, data, expected } of frames) {
  Deno.test(`frameError() maps ${name}`, () =>
    check(frameError(data, clean), expected));
}

const NOW = Date.parse("2026-11-20T11:00:00Z");
const waits: {
  after: string | null;
  afterMs?: string;
  ms: number | undefined;
}[] = [
  { after: null, ms: undefined },
  { after: "7", ms: 7_000 },
  { after: "1.5", ms: 1_500 },
  { after: "0", ms: 1_000 },
  { after: "60", ms: 60_000 },
  { after: "61", ms: 60_000 },
  { after: "-5", ms: undefined },
  { after: "soon", ms: undefined },
  { after: "Fri, 20 Nov 2026 11:00:09 GMT", ms: 9_000 },
  { after: "Fri, 20 Nov 2026 10:00:00 GMT", ms: 1_000 },
  { after: "7", afterMs: "2500.4", ms: 2_501 },
  { after: "7", afterMs: "x", ms: 7_000 },
  { after: null, afterMs: "1", ms: 1_000 },
];

for (const { after, afterMs = null, ms } of waits) {
  Deno.test(`readRetryAfter() reads ${after} and ${afterMs} as ${ms} ms`, () => {
    assert.equal(readRetryAfter(after, afterMs, () => NOW), ms);
  });
}

for (const status of [429, 503]) {
  Deno.test(`refusalError() tells the wait of a ${status}, one second if none is given`, () => {
    for (const retryAfterMs of [undefined, 9_000]) {
      const wait = retryAfterMs === undefined ? {} : { retryAfterMs };
      const error = refusalError({ status, body: null, ...wait }, clean);
      assert.equal(error.retryAfterMs, retryAfterMs ?? 1_000);
    }
  });
}

const HOSTED_KEY = "abcd1234-of-the-model-server";
const redact = createRedact({
  secrets: [HOSTED_KEY, "", "team-secret-header"],
  baseUrl: new URL("https://gpu-7.internal.example:8443/v1"),
});

const cases: { name: string; text: string; clean: string }[] = [
  {
    name: "ordinary text",
    text: "max_tokens is too large: 5000",
    clean: "max_tokens is too large: 5000",
  },
  {
    name: "the key",
    text: `Key ${HOSTED_KEY} expired, ${HOSTED_KEY}!`,
    clean: "Key [redacted] expired, [redacted]!",
  },
  {
    name: "a header value",
    text: "got team-secret-header",
    clean: "got [redacted]",
  },
  {
    name: "the host",
    text: "gpu-7.internal.example is down",
    clean: "[redacted] is down",
  },
  {
    name: "any URL",
    text: "see http://10.0.0.1:9000/a?b=c, or ws://x/y",
    clean: "see [redacted] or [redacted]",
  },
  {
    name: "an address",
    text: "from 192.168.1.20:8000.",
    clean: "from [redacted].",
  },
  {
    name: "a bearer credential",
    text: "Authorization: Bearer abc.def",
    clean: "Authorization: [redacted]",
  },
  {
    name: "a key of another vendor",
    text: "Incorrect API key: sk-proj-abcDEF123",
    clean: "Incorrect API key: [redacted]",
  },
  {
    name: "a masked key",
    text: "Incorrect API key: sk-ab**********wxyz.",
    clean: "Incorrect API key: [redacted]",
  },
  {
    name: "line ends and controls",
    text: "a\r\nb\u0000c\u001b[31m",
    clean: "a b c [31m",
  },
  {
    name: "paths of files",
    text:
      "Cannot open /models/qwen/q4.gguf or '/w.gguf' (C:\\m\\a.bin, ~/x/y): src/llama.cpp:77, app.py:3",
    clean:
      "Cannot open [redacted] or '[redacted]' ([redacted] [redacted]): [redacted], [redacted]",
  },
  {
    name: "what only looks like a path",
    text: "text/plain and/or 4/5, see /v1/models, </s>, response_format.type",
    clean: "text/plain and/or 4/5, see /v1/models, </s>, response_format.type",
  },
  {
    name: "a stack trace of Python",
    text: 'Traceback (most recent call last):\n  File "/srv/app.py", line 3, ' +
      'in run\n    go(secret)\n  File "x.py", line 9, in go\nValueError: no',
    clean: "ValueError: no",
  },
  {
    name: "a stack trace of JavaScript",
    text: "Error: no\n    at run (/srv/app.js:3:1)\n    at async main:9",
    clean: "Error: no",
  },
  {
    name: "a stack trace of Go",
    text:
      "panic: no\n\ngoroutine 1 [running]:\nmain.go()\n\t/srv/main.go:3 +0x1",
    clean: "panic: no main.go()",
  },
  { name: "half a character", text: "a\ud83db", clean: "a\ufffdb" },
  { name: "blanks around", text: "  a  ", clean: "a" },
  {
    name: "words that look like keys",
    text: "task-list, disk_usage, key_name",
    clean: "task-list, disk_usage, key_name",
  },
];

for (const { name, text, clean } of cases) {
  Deno.test(`redact() handles ${name}`, () =>
    assert.equal(redact(text), clean));
}

for (
  const [chars, length] of [[499, 499], [500, 500], [501, 500], [
    100_000,
    500,
  ]] as const
) {
  Deno.test(`redact() leaves ${length} of ${chars} characters`, () => {
    const clean = redact("x".repeat(chars));
    assert.equal(clean.length, length);
    assert.equal(clean.endsWith("…"), chars > 500);
  });
}

Deno.test("API10: redact() leaves no part of a secret that lies across the cut", () => {
  const clean = redact("x".repeat(500 - HOSTED_KEY.length / 2) + HOSTED_KEY);
  assert.ok(!clean.includes(HOSTED_KEY.slice(0, 4)), clean);
});

Deno.test("redact() tells the caller's name of the model, not the server's", () => {
  const redactName = createRedact({
    secrets: [],
    baseUrl: new URL("http://ollama:11434/v1"),
    model: { theirs: "smol+lm2", ours: "neutral" },
  });
  assert.equal(
    redactName("registry.ollama.ai/library/smol+lm2:latest has no tools."),
    "neutral has no tools.",
  );
  assert.equal(redactName("The model `smol+lm2`."), "The model `neutral`.");
});
