import assert from "node:assert/strict";
import { createRequestEncoder } from "./request_head.ts";

const url = new URL("http://gpu:8000/v1/chat/completions?api-version=1");
const call = { requestId: "r1", signal: new AbortController().signal };
const TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

function encode(
  options: { apiKey?: string; headers?: { [name: string]: string } },
  body: string,
  more: { requestId?: string; traceparent?: string } = {},
): string[] {
  const encodeRequest = createRequestEncoder(
    url,
    options.apiKey ?? null,
    options.headers ?? {},
  );
  const bytes = encodeRequest(body, { ...call, ...more });
  return new TextDecoder().decode(bytes).split("\r\n");
}

const FIXED = [
  "POST /v1/chat/completions?api-version=1 HTTP/1.1",
  "host: gpu:8000",
  "accept: text/event-stream, application/json",
  "accept-encoding: identity",
  "content-type: application/json",
];

Deno.test("createRequestEncoder() writes a head and the body", () => {
  assert.deepEqual(encode({}, "{}"), [
    ...FIXED,
    "content-length: 2",
    "x-request-id: r1",
    "",
    "{}",
  ]);
});

Deno.test("createRequestEncoder() writes credential, configured headers and trace", () => {
  assert.deepEqual(
    encode(
      { apiKey: "k", headers: { "X-Team": "a b", "api-key": "z" } },
      '"é😀"',
      { traceparent: TRACEPARENT },
    ),
    [
      ...FIXED,
      "authorization: Bearer k",
      "x-team: a b",
      "api-key: z",
      "content-length: 8",
      "x-request-id: r1",
      `traceparent: ${TRACEPARENT}`,
      "",
      '"é😀"',
    ],
  );
});

for (const evil of ["a\r\nx: y", "a b", "", "é"]) {
  Deno.test(`createRequestEncoder() leaves out the request id ${JSON.stringify(evil)} and such a trace`, () => {
    assert.deepEqual(encode({}, "{}", { requestId: evil, traceparent: evil }), [
      ...FIXED,
      "content-length: 2",
      "",
      "{}",
    ]);
  });
}

for (const apiKey of ["secret\r\nx: y", "sécret"]) {
  Deno.test(`createRequestEncoder() refuses the key ${JSON.stringify(apiKey)}, and does not say it`, () => {
    assert.throws(() => encode({ apiKey }, "{}"), (error) => {
      assert.ok(error instanceof Error);
      assert.ok(!error.message.includes("cret"), error.message);
      return true;
    });
  });
}
