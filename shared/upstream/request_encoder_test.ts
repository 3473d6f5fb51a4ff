import assert from "node:assert/strict";
import {
  createRequestEncoder,
  type RequestOptions,
} from "./request_encoder.ts";

const TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

function encode(
  options: Partial<RequestOptions>,
  body = "",
  call: { requestId?: string; traceparent?: string } = {},
): string[] {
  const url = new URL("http://gpu:8000/v1/x?api-version=1");
  const encodeRequest = createRequestEncoder(url, {
    ...{ method: "GET", accept: "*/*", contentType: null, apiKey: null },
    headers: {},
    ...options,
  });
  const bytes = encodeRequest(body, { requestId: "r1", ...call });
  return new TextDecoder().decode(bytes).split("\r\n");
}

const HOST = ["host: gpu:8000", "accept: */*", "accept-encoding: identity"];

Deno.test("createRequestEncoder() writes head, credential, configured headers, trace and body", () => {
  const post: Partial<RequestOptions> = {
    ...{ method: "POST", contentType: "application/json", apiKey: "k" },
    headers: { "X-Team": "a b" },
  };
  assert.deepEqual(encode(post, '"é😀"', { traceparent: TRACEPARENT }), [
    "POST /v1/x?api-version=1 HTTP/1.1",
    ...HOST,
    "content-type: application/json",
    "authorization: Bearer k",
    "x-team: a b",
    "content-length: 8",
    "x-request-id: r1",
    `traceparent: ${TRACEPARENT}`,
    "",
    '"é😀"',
  ]);
  const start = ["GET /v1/x?api-version=1 HTTP/1.1", ...HOST];
  const rest = ["content-length: 0", "x-request-id: r1", "", ""];
  assert.deepEqual(encode({}), [...start, ...rest]);
  for (const id of ["a\r\nx: y", "a b", "", "é"]) {
    const call = { requestId: id, traceparent: id };
    assert.deepEqual(encode({}, "", call), [
      ...[...start, "content-length: 0", "", ""],
    ]);
  }
});

Deno.test("createRequestEncoder() refuses a key that no header can have, and does not say it", () => {
  for (const apiKey of ["secret\r\nx: y", "sécret"]) {
    assert.throws(() => encode({ apiKey }), /^(?!.*cret).*visible ASCII/s);
  }
});
