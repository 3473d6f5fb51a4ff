/** Errors in the form of each API. */
import assert from "node:assert/strict";
import { ApiError, type ErrorCode } from "../openai/error.ts";
import {
  anthropicError,
  bodyOfErrorEvent,
  errorEvent,
  signOfLife,
} from "./envelope.ts";

const CONTEXT = { requestId: "req_1", model: "m", created: 1 };

Deno.test("anthropicError() has Anthropic's class for each status", () => {
  const cases: { code: ErrorCode; type: string }[] = [
    { code: "invalid_value", type: "invalid_request_error" },
    { code: "model_not_found", type: "not_found_error" },
    { code: "request_too_large", type: "request_too_large" },
    { code: "rate_limit_exceeded", type: "rate_limit_error" },
    { code: "internal_error", type: "api_error" },
    { code: "overloaded", type: "overloaded_error" },
    { code: "deadline_exceeded", type: "timeout_error" },
  ];
  for (const { code, type } of cases) {
    assert.deepEqual(anthropicError(new ApiError(code, "Why."), "req_1"), {
      type: "error",
      error: { type, message: "Why." },
      request_id: "req_1",
    });
  }
  const unauthorized = new ApiError("unauthorized", "x");
  assert.deepEqual(anthropicError(unauthorized, "r"), unauthorized.toBody());
});

Deno.test("errorEvent() ends a stream in its dialect, with a code that Codex reads", () => {
  const codes: { code: ErrorCode; word: string }[] = [
    { code: "rate_limit_exceeded", word: "rate_limit_exceeded" },
    { code: "worker_lost", word: "server_error" },
    { code: "context_length_exceeded", word: "context_length_exceeded" },
    { code: "invalid_value", word: "invalid_prompt" },
  ];
  for (const { code, word } of codes) {
    const text = errorEvent("responses", new ApiError(code, "Why."), CONTEXT);
    const [name, data = ""] = text.split("\n");
    assert.equal(name, "event: response.failed");
    assert.partialDeepStrictEqual(JSON.parse(data.slice(6)), {
      type: "response.failed",
      response: { status: "failed", error: { code: word, message: "Why." } },
    });
  }
  // Within a stream there is no status, so the body of 401 would say nothing.
  const revoked = new ApiError("key_revoked", "The API key was revoked.");
  const message = errorEvent("messages", revoked, CONTEXT);
  assert.match(message, /^event: error\ndata: .*"permission_error".*\n\n$/);
  const plain = errorEvent("completions", revoked, CONTEXT);
  assert.match(plain, /^data: \{"error":.*\n\n$/);
  const stopped = new ApiError("request_stopped", "The request was stopped.");
  assert.match(
    errorEvent("messages", stopped, CONTEXT),
    /^event: error\ndata: .*"permission_error".*\n\n$/,
  );
  assert.match(signOfLife("messages"), /^event: ping\n/);
});

Deno.test("bodyOfErrorEvent() is what the server would have answered before its stream", () => {
  const anthropic = '{"type":"error","error":{"type":"rate_limit_error"}}';
  const cases = [
    { event: `event: error\ndata: ${anthropic}\n\n`, body: anthropic },
    {
      event: 'data:{"error":{"code":400}}\n\n',
      body: '{"error":{"code":400}}',
    },
    {
      event: 'data: {"type":"response.failed","response":{"id":"r",' +
        '"error":{"code":"rate_limit_exceeded","message":"in 3 s"}}}\n\n',
      body: '{"error":{"code":"rate_limit_exceeded","message":"in 3 s"}}',
    },
    { event: 'data: {"response":{"error":null}}\n\n', body: null },
    { event: 'data: {"error":"busy"}\n\n', body: null },
    { event: "data: {\n\n", body: null },
    { event: "event: error\n\n", body: null },
    { event: "", body: null },
  ];
  for (const { event, body } of cases) {
    assert.equal(bodyOfErrorEvent(event), body, event);
  }
});
