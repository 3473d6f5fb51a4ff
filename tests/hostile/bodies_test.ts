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
 * A body, the status, and the field that the error must name. The bounds of fields are
 * in tests/conformance/requests.ts and services/edge-auth/chat/request_test.ts.
 */
const ROWS: [string, BodyInit, number, string?][] = [
  ["36 empty", "", 400],
  ["36 null", "null", 400],
  ["36 array", "[]", 400],
  ["36 string", '"x"', 400],
  ["36 brace", "{", 400],
  ["36 garbage behind", `${members('"n":1')}x`, 400],
  ["36 two bodies", members('"n":1').repeat(2), 400],
  ["36 byte order mark", `\ufeff${members('"n":1')}`, 200],
  ["36 mark of UTF-16", bytes(0xff, 0xfe, 0x7b, 0, 0x7d, 0), 400],
  ["37 0xff", around(0xff), 400],
  ["37 overlong", around(0xc0, 0xaf), 400],
  ["37 surrogate in UTF-8", around(0xed, 0xa0, 0x80), 400],
  ["37 cut character", around(0xe4, 0xbd), 400],
  ["38 lone surrogate", withContent('"\\ud800"'), 200],
  ["38 swapped", withContent('"\\udc00\\ud800"'), 200],
  ["38 paired surrogates", withContent('"\\ud83d\\ude00"'), 200],
  ["39 NUL in content", withContent('"\\u0000"'), 200],
  ["39 NUL in model", withModel("neutral\\u0000"), 400, "model"],
  ["39 NUL in role", NUL_ROLE, 400, "messages[0].role"],
  ["39 raw NUL", withContent('"\u0000"'), 400],
  ["40 depth bomb", HOSTILE.depthBomb, 400],
  ["40 object bomb", HOSTILE.objectBomb, 400],
  ["40 65 levels", members(`"x":${"[".repeat(64)}${"]".repeat(64)}`), 400],
  ["40 64 levels", members(`"x":${"[".repeat(63)}${"]".repeat(63)}`), 200],
  ["41 100,000 keys", HOSTILE.manyKeys, 400],
  ["41 65 keys", members(keys(63)), 400],
  ["41 64 keys", members(keys(62)), 200],
  ["41 65,537 keys in all", members(`"x":{${keys(65_532)}}`), 400],
  ["41 65,536 keys in all", members(`"x":{${keys(65_531)}}`), 200],
  ["42 __proto__", members('"__proto__":{"stream":true}'), 200],
  ["42 constructor", members('"constructor":{"prototype":{"n":9}}'), 200],
  ["43 duplicates", `{"model":"b",${MODEL},${MESSAGES}}`, 200],
  ["43 last unknown", members('"model":"b"'), 404],
  ["44 1e400", members('"max_tokens":1e400'), 400, "max_tokens"],
  ["44 1.0", members('"max_tokens":1.0'), 200],
  ["45 unsafe seed", members('"seed":9007199254740993'), 400, "seed"],
  ["45 safe seed", members('"seed":9007199254740991'), 200],
  ["46 a megabyte of digits", HOSTILE.hugeNumber, 400, "seed"],
  ["46 of decimals", members(`"top_p":0.${"9".repeat(1_000_000)}`), 200],
  ["47 top_p NaN", members('"top_p":NaN'), 400],
  ["47 top_p -0", members('"top_p":-0'), 200],
  ["48 10,000 stops", members(`"stop":[${Array(10_000).fill('"a"')}]`), 400],
  ["48 29,000 messages", withMessages(`${Array(29_000).fill(MESSAGE)}`), 400],
  ["48 a million wrong ones", withMessages(`${Array(1_000_000).fill(7)}`), 400],
  ["50 wildcard", withModel("x.>"), 404],
  ["50 star", withModel("*"), 404],
  ["50 blank", withModel("a b"), 404],
  ["50 system subject", withModel("$SYS.x"), 404],
  ["50 command", withModel("\\r\\nPUB a 1\\r\\nx"), 400, "model"],
  ["51 long model", withModel("m".repeat(5_000)), 400, "model"],
  ["52 braces", withModel("{x}"), 404],
  ["52 user", members(`"user":"{}\\n${"x".repeat(10_000)}"`), 200],
];

Deno.test("API4, ASVS 1.5.3, 2.2.1, 2.2.2: hostile bodies over HTTP", async (t) => {
  await using gateway = await startGateway("limited");
  const { baseUrl } = gateway.edge;
  const post = ({ value }: TestKey, body: BodyInit) =>
    postBody(baseUrl, value, body);
  for (const [name, body, status, param] of ROWS) {
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
