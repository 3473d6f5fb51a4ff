import assert from "node:assert/strict";
import { createRequestEncoder } from "./request_encoder.ts";

const url = new URL("http://gpu:8000/v1/chat/completions?api-version=1");
const call = { requestId: "r1", signal: new AbortController().signal };
const TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

function encode(
  options: { apiKey?: string; headers?: { [name: string]: string } },
  body: string,
  more: { requestId?: string; traceparent?: string } = {},
): string[] {
  const encodeRequest = createRequestEncoder(url, {
    method: "POST",
    accept: "text/event-stream, application/json",
    contentType: "application/json",
    apiKey: options.apiKey ?? null,
    headers: options.headers ?? {},
  });
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

const heads: [
  name: string,
  options: Parameters<typeof encode>[0],
  more: Parameters<typeof encode>[2],
  lines: string[],
][] = [
  ["a head and the body", {}, {}, ["x-request-id: r1"]],
  [
    "credential, configured headers and trace",
    { apiKey: "k", headers: { "X-Team": "a b" } },
    { traceparent: TRACEPARENT },
    ["x-request-id: r1", `traceparent: ${TRACEPARENT}`],
  ],
  ...["a\r\nx: y", "a b", "", "é"].map((
    id,
  ): [string, object, object, string[]] => [
    `no id and no trace for ${JSON.stringify(id)}`,
    {},
    { requestId: id, traceparent: id },
    [],
  ]),
];

for (const [name, options, more, lines] of heads) {
  Deno.test(`createRequestEncoder() writes ${name}`, () => {
    const { apiKey } = options;
    assert.deepEqual(encode(options, '"é😀"', more), [
      ...FIXED,
      ...(apiKey === undefined
        ? []
        : [`authorization: Bearer ${apiKey}`, "x-team: a b"]),
      "content-length: 8",
      ...lines,
      "",
      '"é😀"',
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

Deno.test("createRequestEncoder() writes a request without a body", () => {
  const encodeRequest = createRequestEncoder(url, {
    method: "GET",
    accept: "*/*",
    contentType: null,
    apiKey: null,
    headers: {},
  });
  assert.deepEqual(
    new TextDecoder().decode(encodeRequest("", call)).split("\r\n"),
    [
      "GET /v1/chat/completions?api-version=1 HTTP/1.1",
      "host: gpu:8000",
      "accept: */*",
      "accept-encoding: identity",
      "content-length: 0",
      "x-request-id: r1",
      "",
      "",
    ],
  );
});
