// Promise: hostile bodies are refused with a reason, and do not count against limits.
import assert from "node:assert/strict";
import { errorBodySchema } from "@gateway/shared/openai/completion";
import { limiterKey } from "@gateway/shared/keys/record";
import { rawExchange } from "../conformance/context.ts";
import { readState } from "../support/limits/admission_fixture.ts";
import { readStatus } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { TestKey } from "../support/gateway/limited.ts";
import { sleep } from "../support/wait_for.ts";
import {
  encoder,
  headOf,
  HOSTILE,
  keys,
  members,
  MESSAGES,
  MODEL,
  postBody,
} from "./bodies_fixture.ts";

const MESSAGE = `{"role":"user","content":"x"}`;
const withModel = (model: string) => `{"model":"${model}",${MESSAGES}}`;
const withMessages = (messages: string) =>
  `{${MODEL},"messages":[${messages}]}`;
const withContent = (content: string) =>
  withMessages(`{"role":"user","content":${content}}`);
const NUL_ROLE = withMessages('{"role":"us\\u0000er","content":"x"}');
const bytes = (...values: number[]) => new Uint8Array(values);
/** Content of these bytes. */
const around = (...values: number[]) => {
  const [before = "", after = ""] = withContent('"@"').split("@");
  const [head, tail] = [encoder.encode(before), encoder.encode(after)];
  return new Uint8Array([...head, ...values, ...tail]);
};

/**
 * A body and what it is answered with. The bounds of fields are in
 * services/edge-auth/chat/request_refused_test.ts.
 */
interface Row {
  name: string;
  body: BodyInit;
  status: number;
  /** The field that the error must name. */
  param?: string;
}

const ROWS: Row[] = [
  { name: "36 empty", body: "", status: 400 },
  { name: "36 null", body: "null", status: 400 },
  { name: "36 array", body: "[]", status: 400 },
  { name: "36 string", body: '"x"', status: 400 },
  { name: "36 brace", body: "{", status: 400 },
  { name: "36 garbage behind", body: `${members('"n":1')}x`, status: 400 },
  { name: "36 two bodies", body: members('"n":1').repeat(2), status: 400 },
  {
    name: "36 byte order mark",
    body: `\ufeff${members('"n":1')}`,
    status: 200,
  },
  {
    name: "36 mark of UTF-16",
    body: bytes(0xff, 0xfe, 0x7b, 0, 0x7d, 0),
    status: 400,
  },
  { name: "37 0xff", body: around(0xff), status: 400 },
  { name: "37 overlong", body: around(0xc0, 0xaf), status: 400 },
  {
    name: "37 surrogate in UTF-8",
    body: around(0xed, 0xa0, 0x80),
    status: 400,
  },
  { name: "37 cut character", body: around(0xe4, 0xbd), status: 400 },
  { name: "38 lone surrogate", body: withContent('"\\ud800"'), status: 200 },
  { name: "38 swapped", body: withContent('"\\udc00\\ud800"'), status: 200 },
  {
    name: "38 paired surrogates",
    body: withContent('"\\ud83d\\ude00"'),
    status: 200,
  },
  { name: "39 NUL in content", body: withContent('"\\u0000"'), status: 200 },
  {
    name: "39 NUL in model",
    body: withModel("neutral\\u0000"),
    status: 400,
    param: "model",
  },
  {
    name: "39 NUL in role",
    body: NUL_ROLE,
    status: 400,
    param: "messages[0].role",
  },
  { name: "39 raw NUL", body: withContent('"\u0000"'), status: 400 },
  { name: "40 depth bomb", body: HOSTILE.depthBomb, status: 400 },
  { name: "40 object bomb", body: HOSTILE.objectBomb, status: 400 },
  {
    name: "40 65 levels",
    body: members(`"x":${"[".repeat(64)}${"]".repeat(64)}`),
    status: 400,
  },
  {
    name: "40 64 levels",
    body: members(`"x":${"[".repeat(63)}${"]".repeat(63)}`),
    status: 200,
  },
  { name: "41 100,000 keys", body: HOSTILE.manyKeys, status: 400 },
  { name: "41 65 keys", body: members(keys(63)), status: 400 },
  { name: "41 64 keys", body: members(keys(62)), status: 200 },
  {
    name: "41 65,537 keys in all",
    body: members(`"x":{${keys(65_532)}}`),
    status: 400,
  },
  {
    name: "41 65,536 keys in all",
    body: members(`"x":{${keys(65_531)}}`),
    status: 200,
  },
  {
    name: "42 __proto__",
    body: members('"__proto__":{"stream":true}'),
    status: 200,
  },
  {
    name: "42 constructor",
    body: members('"constructor":{"prototype":{"n":9}}'),
    status: 200,
  },
  {
    name: "43 duplicates",
    body: `{"model":"b",${MODEL},${MESSAGES}}`,
    status: 200,
  },
  { name: "43 last unknown", body: members('"model":"b"'), status: 404 },
  {
    name: "44 1e400",
    body: members('"max_tokens":1e400'),
    status: 400,
    param: "max_tokens",
  },
  { name: "44 1.0", body: members('"max_tokens":1.0'), status: 200 },
  {
    name: "45 unsafe seed",
    body: members('"seed":9007199254740993'),
    status: 400,
    param: "seed",
  },
  {
    name: "45 safe seed",
    body: members('"seed":9007199254740991'),
    status: 200,
  },
  {
    name: "46 a megabyte of digits",
    body: HOSTILE.hugeNumber,
    status: 400,
    param: "seed",
  },
  {
    name: "46 of decimals",
    body: members(`"top_p":0.${"9".repeat(1_000_000)}`),
    status: 200,
  },
  { name: "47 top_p NaN", body: members('"top_p":NaN'), status: 400 },
  { name: "47 top_p -0", body: members('"top_p":-0'), status: 200 },
  {
    name: "48 10,000 stops",
    body: members(`"stop":[${Array(10_000).fill('"a"')}]`),
    status: 400,
  },
  {
    name: "48 29,000 messages",
    body: withMessages(`${Array(29_000).fill(MESSAGE)}`),
    status: 400,
  },
  {
    name: "48 a million wrong ones",
    body: withMessages(`${Array(1_000_000).fill(7)}`),
    status: 400,
  },
  { name: "50 wildcard", body: withModel("x.>"), status: 404 },
  { name: "50 star", body: withModel("*"), status: 404 },
  { name: "50 blank", body: withModel("a b"), status: 404 },
  { name: "50 system subject", body: withModel("$SYS.x"), status: 404 },
  {
    name: "50 command",
    body: withModel("\\r\\nPUB a 1\\r\\nx"),
    status: 400,
    param: "model",
  },
  {
    name: "51 long model",
    body: withModel("m".repeat(5_000)),
    status: 400,
    param: "model",
  },
  { name: "52 braces", body: withModel("{x}"), status: 404 },
  {
    name: "52 user",
    body: members(`"user":"{}\\n${"x".repeat(10_000)}"`),
    status: 200,
  },
];

Deno.test("API4, ASVS 1.5.3, 2.2.1, 2.2.2: hostile bodies over HTTP", async (t) => {
  await using gateway = await startGateway("limited");
  const { baseUrl } = gateway.edge;
  const post = ({ value }: TestKey, body: BodyInit) =>
    postBody(baseUrl, value, body);
  for (const { name, body, status, param } of ROWS) {
    await t.step(`${name} -> ${status}`, async () => {
      const key = await gateway.addKey({ limits: { requestsPerMinute: 9 } });
      const response = await post(key, body);
      const text = await response.text();
      assert.equal(response.status, status, text.slice(0, 300));
      assert.equal(Reflect.get({}, "stream"), undefined);
      if (status === 200) return;
      const { error } = errorBodySchema.parse(JSON.parse(text));
      if (param !== undefined) assert.equal(error.param, param);
      assert.ok(text.length < 1_000, "the body is not repeated");
      const state = await readState(gateway.world, limiterKey(key));
      assert.equal(state, null, "it costs no quota");
    });
  }

  const key = await gateway.addKey();
  await t.step("33 a body over the limit, chunked", async () => {
    const piece = new Uint8Array(1 << 20).fill(0x20);
    const large = ReadableStream.from(Array(30).fill(piece));
    assert.equal(await readStatus(post(key, large)), 413);
  });

  await t.step("33 a body in 5,000 pieces", async () => {
    const chunks = "1\r\n \r\n".repeat(5_000);
    const head = headOf(key.value, "Transfer-Encoding: chunked");
    const answer = await rawExchange(baseUrl, [head + chunks]);
    assert.match(answer, /^HTTP\/1.1 400 /);
    assert.match(answer, /too many pieces/);
  });

  await t.step("53 clients that leave in mid-body leave nothing", async () => {
    const { hostname, port } = new URL(baseUrl);
    const head = encoder.encode(headOf(key.value, "Content-Length: 1000"));
    for (let count = 0; count < 20; count += 1) {
      const connection = await Deno.connect({ hostname, port: Number(port) });
      await connection.write(head);
      await connection.write(encoder.encode("{"));
      if (count % 2 === 0) await sleep(5);
      connection.close();
    }
    assert.equal(await gateway.leases(key), 0);
    const other = await gateway.addKey();
    assert.equal(await gateway.status(other), 200);
  });
});
