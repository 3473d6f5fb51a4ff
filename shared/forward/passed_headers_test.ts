/** Headers that are forwarded, and those that are not. */
import assert from "node:assert/strict";
import { answerHeaders, requestHeaders } from "./passed_headers.ts";

Deno.test("requestHeaders() passes versions and sessions, and no credential", () => {
  const passed = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "a,b",
    "anthropic-dangerous-direct-browser-access": "true",
    "anthropic-user-profile-id": "u",
    "openai-beta": "x",
    "openai-conversation-id": "c",
    "x-claude-code-session-id": "s",
    "x-codex-turn-metadata": "{}",
    "x-stainless-lang": "js",
    "session-id": "1",
    "thread-id": "2",
    "x-client-request-id": "3",
  };
  const headers = {
    ...passed,
    authorization: "Bearer sk-Cg",
    "x-api-key": "sk-Cg",
    cookie: "a=b",
    host: "gateway",
    connection: "keep-alive",
    "openai-organization": "org",
    "openai-project": "p",
    "anthropic-workspace-id": "w",
    "content-length": "3",
    "x-stainless-long": "x".repeat(3_000),
    "x-stainless-ctl": "a\u0000b",
    "x-forwarded-for": "10.0.0.1",
  };
  assert.deepEqual(requestHeaders(headers), passed);
});

Deno.test("requestHeaders() passes 8 KiB of headers at most", () => {
  const headers = Object.fromEntries(
    Array.from({ length: 20 }, (_, n) => [`x-codex-${n}`, "x".repeat(1_000)]),
  );
  assert.equal(Object.keys(requestHeaders(headers)).length, 8);
});

Deno.test("answerHeaders() passes ids and limits of the server, and nothing of its account", () => {
  const passed = {
    "request-id": "req_1",
    "retry-after": "7",
    "anthropic-ratelimit-tokens-remaining": "9",
    "x-ratelimit-limit-requests": "5",
    "openai-processing-ms": "12",
  };
  const headers = new Map(Object.entries({
    ...passed,
    "set-cookie": "a=b",
    "anthropic-organization-id": "org",
    "openai-organization": "org",
    server: "uvicorn",
    "transfer-encoding": "chunked",
  }));
  assert.deepEqual(answerHeaders(headers), passed);
});
