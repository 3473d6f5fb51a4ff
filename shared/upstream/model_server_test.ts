/** Requests to a model server. */
import { Buffer } from "node:buffer";
import assert from "node:assert/strict";
import { backendAt } from "../../tests/support/model_servers/scripted_server.ts";
import { VERSION } from "../version.ts";
import { ModelServer, type RequestOptions } from "./model_server.ts";

const TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

interface SentRequest extends RequestOptions {
  apiKey?: string;
  body?: string;
  context?: { requestId?: string; traceparent?: string };
}

function encode(
  { apiKey, body = "", context, headers = {}, ...options }: SentRequest,
): string[] {
  const config = backendAt("http://gpu:8000/v1", { headers });
  const server = new ModelServer({
    config,
    apiKey: apiKey ?? null,
    publicModel: "m",
    now: () => 0,
  });
  const encodeRequest = server.encoder("/x?api-version=1", options);
  const pieces = encodeRequest(body, { requestId: "r1", ...context });
  return Buffer.concat(pieces).toString().split("\r\n");
}

const host = (accept: string) => [
  "host: gpu:8000",
  `accept: ${accept}`,
  `user-agent: chat-completion-gateway/${VERSION}`,
  "accept-encoding: identity",
];

Deno.test("ModelServer writes head, credential, configured headers, trace and body", () => {
  const post = { apiKey: "k", headers: { "X-Team": "a b" }, body: '"é😀"' };
  const context = { traceparent: TRACEPARENT };
  assert.deepEqual(encode({ ...post, context }), [
    "POST /v1/x?api-version=1 HTTP/1.1",
    ...host("application/json"),
    "content-type: application/json",
    "authorization: Bearer k",
    "x-team: a b",
    "content-length: 8",
    "x-request-id: r1",
    `traceparent: ${TRACEPARENT}`,
    "",
    '"é😀"',
  ]);
  const get = { method: "GET", accept: "*/*" } as const;
  assert.deepEqual(encode(get), [
    "GET /v1/x?api-version=1 HTTP/1.1",
    ...host("*/*"),
    "content-length: 0",
    "x-request-id: r1",
    "",
    "",
  ]);
});

Deno.test("ModelServer refuses a key that no header can have, and does not show it", () => {
  for (const apiKey of ["secret\r\nx: y", "sécret"]) {
    assert.throws(() => encode({ apiKey }), /^(?!.*cret).*visible ASCII/s);
  }
});
