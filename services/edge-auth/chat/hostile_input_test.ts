import assert from "node:assert/strict";
import { ApiError } from "@gateway/shared/openai/error";
import { parseChatRequest } from "./request.ts";
import { errorBodySchema } from "../../../tests/support/answer_schemas.ts";
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { decodeJson } from "../http/json_body.ts";

/**
 * Guarantee: whatever bytes a caller sends as a body, the outcome is a checked
 * request or an ApiError of status 400 or 404, soon. The numbers are those of
 * the project's list of bad inputs.
 */

const catalog = catalogFromSimulator("http://127.0.0.1:9/v1");
const encoder = new TextEncoder();

function parseBytes(bytes: Uint8Array) {
  return parseChatRequest(decodeJson(bytes), catalog);
}

/** A good body with `members` in front, as text. */
function body(members: string): string {
  return `{${members},"messages":[{"role":"user","content":"x"}]}`;
}

const MODEL = '"model":"neutral-3.7-plus"';
const withModel = (members: string) => body(`${MODEL},${members}`);
const withContent = (content: string) =>
  `{${MODEL},"messages":[{"role":"user","content":${content}}]}`;

type Row = [
  name: string,
  sent: string | Uint8Array,
  status: number,
  param?: string,
];

const bytes = (...values: number[]) => new Uint8Array(values);
const around = (...values: number[]) => {
  const [before = "", after = ""] = withContent('"@"').split("@");
  return new Uint8Array([
    ...encoder.encode(before),
    ...values,
    ...encoder.encode(after),
  ]);
};
const manyKeys = Array.from({ length: 100_000 }, (_, at) => `"k${at}":1`)
  .join();
/** This many members in objects of ten. */
function keysInside(count: number): string {
  return Array.from(
    { length: Math.ceil(count / 10) },
    (_, at) =>
      `{${
        Array.from(
          { length: Math.min(10, count - at * 10) },
          (_, key) => `"${key}":1`,
        ).join()
      }}`,
  ).join();
}

const ROWS: Row[] = [
  ["36 empty", "", 400],
  ["36 null", "null", 400],
  ["36 array", "[]", 400],
  ["36 string", '"x"', 400],
  ["36 number", "1", 400],
  ["36 open brace", "{", 400],
  ["36 trailing garbage", `${body(MODEL)}x`, 400],
  ["36 two bodies", body(MODEL) + body(MODEL), 400],
  ["36 byte order mark", `\ufeff${body(MODEL)}`, 200],
  ["36 mark of UTF-16", bytes(0xff, 0xfe, 0x7b, 0, 0x7d, 0), 400],
  ["37 0xff", around(0xff), 400],
  ["37 overlong", around(0xc0, 0xaf), 400],
  ["37 surrogate in UTF-8", around(0xed, 0xa0, 0x80), 400],
  ["37 cut character", around(0xe4, 0xbd), 400],
  ["38 lone surrogate", withContent('"\\ud800"'), 400, "messages[0].content"],
  [
    "38 low surrogate first",
    withContent('"\\udc00\\ud800"'),
    400,
    "messages[0].content",
  ],
  ["38 paired surrogates", withContent('"\\ud83d\\ude00"'), 200],
  ["39 NUL in content", withContent('"\\u0000"'), 200],
  ["39 NUL in model", body('"model":"neutral\\u0000"'), 400, "model"],
  [
    "39 NUL in role",
    `{${MODEL},"messages":[{"role":"us\\u0000er","content":"x"}]}`,
    400,
    "messages[0].role",
  ],
  ["39 raw NUL", withContent('"\u0000"'), 400],
  ["40 depth bomb", "[".repeat(500_000), 400],
  ["40 depth bomb of objects", '{"a":'.repeat(500_000), 400],
  ["40 65 levels", withModel(`"x":${"[".repeat(64)}${"]".repeat(64)}`), 400],
  ["40 64 levels", withModel(`"x":${"[".repeat(63)}${"]".repeat(63)}`), 200],
  ["41 100,000 keys", `{${manyKeys}}`, 400],
  ["41 65 keys", withModel(manyKeys.slice(0, manyKeys.indexOf(',"k63"'))), 400],
  ["41 64 keys", withModel(manyKeys.slice(0, manyKeys.indexOf(',"k62"'))), 200],
  ["41 65,537 keys inside", withModel(`"x":[${keysInside(65_532)}]`), 400],
  ["41 65,536 keys inside", withModel(`"x":[${keysInside(65_531)}]`), 200],
  ["42 __proto__", withModel('"__proto__":{"stream":1}'), 200],
  ["42 constructor", withModel('"constructor":{"prototype":{"n":9}}'), 200],
  ["43 duplicate model", body(`"model":"b",${MODEL}`), 200],
  ["43 duplicate model, last unknown", body(`${MODEL},"model":"b"`), 404],
  ["44 max_tokens 1e400", withModel('"max_tokens":1e400'), 400, "max_tokens"],
  ["44 max_tokens -1", withModel('"max_tokens":-1'), 400, "max_tokens"],
  ["44 max_tokens 0", withModel('"max_tokens":0'), 400, "max_tokens"],
  ["44 max_tokens 1.5", withModel('"max_tokens":1.5'), 400, "max_tokens"],
  ["44 max_tokens text", withModel('"max_tokens":"5"'), 400, "max_tokens"],
  [
    "44 max_tokens unsafe",
    withModel('"max_tokens":9007199254740993'),
    400,
    "max_tokens",
  ],
  ["44 max_tokens 1.0", withModel('"max_tokens":1.0'), 200],
  ["45 seed unsafe", withModel('"seed":9007199254740993'), 400, "seed"],
  ["45 seed safe", withModel('"seed":9007199254740991'), 200],
  [
    "46 a megabyte of digits",
    withModel(`"seed":${"9".repeat(1_000_000)}`),
    400,
    "seed",
  ],
  [
    "46 a megabyte of decimals",
    withModel(`"top_p":0.${"9".repeat(1_000_000)}`),
    200,
  ],
  ["47 top_p 1.1", withModel('"top_p":1.1'), 400, "top_p"],
  ["47 top_p -0.1", withModel('"top_p":-0.1'), 400, "top_p"],
  ["47 top_p NaN", withModel('"top_p":NaN'), 400],
  ["47 top_p -0", withModel('"top_p":-0'), 200],
  [
    "47 presence_penalty 3",
    withModel('"presence_penalty":3'),
    400,
    "presence_penalty",
  ],
  ["48 n of a million", withModel('"n":1000000'), 400, "n"],
  [
    "48 10,000 stops",
    withModel(`"stop":[${Array(10_000).fill('"a"')}]`),
    400,
    "stop",
  ],
  [
    "48 29,000 messages",
    `{${MODEL},"messages":[${
      Array(29_000).fill('{"role":"user","content":"x"}')
    }]}`,
    400,
    "messages",
  ],
  [
    "48 a million wrong messages",
    `{${MODEL},"messages":[${Array(1_000_000).fill(7)}]}`,
    400,
    "messages",
  ],
  [
    "49 developer",
    `{${MODEL},"messages":[{"role":"developer","content":"x"}]}`,
    200,
  ],
  ["49 parts", withContent('[{"type":"text","text":"x"}]'), 200],
  ["49 null content", withContent("null"), 400, "messages[0].content"],
  ["50 wildcard subject", body('"model":"x.>"'), 404],
  ["50 star", body('"model":"*"'), 404],
  ["50 blank", body('"model":"a b"'), 404],
  [
    "50 a command of the bus",
    body('"model":"\\r\\nPUB evil 1\\r\\nx"'),
    400,
    "model",
  ],
  ["50 system subject", body('"model":"$SYS.x"'), 404],
  [
    "51 model of 5,000 characters",
    body(`"model":"${"m".repeat(5_000)}"`),
    400,
    "model",
  ],
  ["52 braces in model", body('"model":"{x}"'), 404],
  ["52 10 kB of user", withModel(`"user":"{}\\n${"x".repeat(10_000)}"`), 200],
];

Deno.test("bombs are refused before anything is parsed", () => {
  for (
    const [bomb, what] of [["[", /complex/], ['{"a":', /complex/]] as const
  ) {
    assert.throws(
      () => decodeJson(encoder.encode(bomb.repeat(500_000))),
      { message: what },
    );
  }
  assert.throws(() => decodeJson(encoder.encode(`{${manyKeys}}`)), {
    message: /too complex/,
  });
});

/** Generous: the slowest takes 20 ms on two shared cores. */
const SOON_MS = 1_000;

for (const [name, sent, status, param] of ROWS) {
  Deno.test(`body ${name} -> ${status}`, () => {
    const input = typeof sent === "string" ? encoder.encode(sent) : sent;
    const start = performance.now();
    let outcome = 200;
    try {
      const request = parseBytes(input);
      assert.equal(Reflect.get({}, "stream"), undefined);
      assert.equal(request.stream, false);
    } catch (error) {
      assert.ok(error instanceof ApiError, String(error));
      errorBodySchema.parse(error.toBody());
      outcome = error.status;
      if (param !== undefined) assert.equal(error.param, param);
    }
    assert.equal(outcome, status);
    assert.ok(performance.now() - start < SOON_MS);
  });
}
