import assert from "node:assert/strict";
import { ApiError } from "@gateway/shared/openai/error";
import { decodeJson, guardJson } from "./json_body.ts";

const encoder = new TextEncoder();

function refusalOf(act: () => unknown): ApiError {
  try {
    act();
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error("accepted");
}

const decode = (text: string) => decodeJson(encoder.encode(text));
const nested = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;
const keys = (count: number) =>
  `{${Array.from({ length: count }, (_, at) => `"k${at}":1`).join(",")}}`;

Deno.test("guardJson() refuses nesting beyond 64 levels", () => {
  guardJson(nested(64));
  guardJson(`{"a":${nested(63)}}`);
  assert.equal(
    refusalOf(() => guardJson(nested(65))).message,
    "The JSON body of your request is nested deeper than 64 levels.",
  );
  for (
    const text of [
      `{"a":${nested(64)}}`,
      '{"a":'.repeat(65),
      "[{".repeat(33),
      // Closing again does not make room for the depth of elsewhere.
      `[${nested(60)},${nested(64)}]`,
    ]
  ) {
    const error = refusalOf(() => guardJson(text));
    assert.equal(error.status, 400);
    assert.equal(error.code, "invalid_json");
  }
});

Deno.test("guardJson() refuses more than 2 MiB outside of strings, however large the strings are", () => {
  const max = 2 * 1024 * 1024;
  // Besides the digits: two braces, two colons, a comma, and one for each string.
  const text = (digits: number) =>
    `{"a":"${"x".repeat(3 * max)}","b":${"9".repeat(digits)}}`;
  const overhead = 8;
  guardJson(text(max - overhead));
  const error = refusalOf(() => guardJson(text(max - overhead + 1)));
  assert.deepEqual([error.status, error.code], [400, "invalid_request"]);
});

Deno.test("guardJson() counts no brackets and colons inside strings", () => {
  const open = "[".repeat(100);
  const rows = [
    `{"a":"${open}"}`,
    `{"a":"\\"${open}"}`,
    `{"a":"\\\\","b":"${open}"}`,
    `{"${open}":1}`,
    `{"a":"${"x".repeat(200)}\\"${open}"}`,
    `{"a":"${"x".repeat(63)}\\"${open}"}`,
    `{"a":"${"x".repeat(200)}\\\\","b":"${open}"}`,
    `{"a":"${"\\\\".repeat(100)}","b":"${open}"}`,
    `{"a":"${"x".repeat(61)}\\\\\\"${open}${"y".repeat(100)}\\"${open}"}`,
    `{"a":"${":".repeat(100)}"}`,
  ];
  for (const text of rows) {
    assert.ok(JSON.parse(text));
    guardJson(text);
  }
  // And the string does end: what follows it counts.
  for (const lead of [0, 1, 61, 62, 63, 64, 65, 127, 128, 129, 300]) {
    for (const tail of ["", "\\\\", '\\"', "\\\\\\\\", '\\\\\\"']) {
      const text = `{"a":"${"x".repeat(lead)}${tail}","b":${nested(64)}}`;
      assert.ok(JSON.parse(text));
      refusalOf(() => guardJson(text));
    }
  }
});

Deno.test("guardJson() refuses more than 64 members at the top", () => {
  guardJson(keys(64));
  guardJson(`{"a":${keys(1_000)}}`);
  guardJson(`[${keys(100)}]`);
  const error = refusalOf(() => guardJson(keys(65)));
  assert.equal(error.code, "object_above_max_properties");
  assert.equal(error.status, 400);
  refusalOf(() => guardJson(`{"a":"\\"",${keys(100).slice(1)}`));
});

Deno.test("guardJson() leaves what is no JSON to the parser", () => {
  for (const text of ["", "{", "]]]]", '"', '"\\', "{:}", "\ufeff{}"]) {
    guardJson(text);
  }
});

Deno.test("guardJson() refuses bombs at once", () => {
  const bombs = ["[".repeat(500_000), '{"a":'.repeat(100_000), keys(100_000)];
  const start = performance.now();
  for (const bomb of bombs) refusalOf(() => guardJson(bomb));
  assert.ok(performance.now() - start < 20);
});

Deno.test("decodeJson() reads UTF-8 with and without a byte order mark", () => {
  const rows: [string, unknown][] = [
    ['{"a":1}', { a: 1 }],
    ['\ufeff{"a":1}', { a: 1 }],
    ['{"a":"héllo 你好 😀"}', { a: "héllo 你好 😀" }],
    [" \n\t[1]\r\n", [1]],
    ['"x"', "x"],
    ["null", null],
    ['{"a":"\\ud800"}', { a: "\ud800" }],
    ['{"a":1,"a":2}', { a: 2 }],
  ];
  for (const [text, value] of rows) assert.deepEqual(decode(text), value);
});

Deno.test("decodeJson() reads a view into a larger buffer", () => {
  const all = encoder.encode('xx{"a":"b"}yy');
  assert.deepEqual(decodeJson(all.subarray(2, -2)), { a: "b" });
});

Deno.test("decodeJson() refuses what is not UTF-8", () => {
  const rows: Record<string, number[]> = {
    "0xff": [0x22, 0xff, 0x22],
    "a lone continuation": [0x22, 0x80, 0x22],
    "an overlong slash": [0x22, 0xc0, 0xaf, 0x22],
    "an encoded surrogate": [0x22, 0xed, 0xa0, 0x80, 0x22],
    "beyond U+10FFFF": [0x22, 0xf4, 0x90, 0x80, 0x80, 0x22],
    "a cut character": [0x22, 0xe4, 0xbd],
  };
  for (const [name, bytes] of Object.entries(rows)) {
    const error = refusalOf(() => decodeJson(new Uint8Array(bytes)));
    assert.equal(error.code, "invalid_json", name);
    assert.match(error.message, /not valid UTF-8\.$/, name);
  }
});

const BAD: [text: string, why: string][] = [
  ["", "it is empty"],
  ["\ufeff \n\t", "it is empty"],
  ["{", "it is not valid JSON at position 1 (line 1 column 2)"],
  ['{"a":', "it ends too early"],
  ['{"a":1,}', "it is not valid JSON at position 7 (line 1 column 8)"],
  [
    '{\n  "a": 1,\n  b: 2\n}',
    "it is not valid JSON at position 14 (line 3 column 3)",
  ],
  ["{} x", "it is not valid JSON at position 3 (line 1 column 4)"],
  ["NaN", "it is not valid JSON"],
  ['"a\\x"', "it is not valid JSON at position 3 (line 1 column 4)"],
  ['"a\nb"', "it is not valid JSON at position 2 (line 1 column 3)"],
  ["// hello\n{}", "it is not valid JSON"],
];

Deno.test("decodeJson() names the place of a fault where the parser does", () => {
  for (const [text, why] of BAD) {
    const { status, message } = refusalOf(() => decode(text));
    assert.equal(status, 400);
    assert.ok(message.endsWith(`of your request: ${why}.`), message);
  }
});

Deno.test("decodeJson() never repeats the text", () => {
  for (const text of ["secret", '{"a":secret}', '{"secret" 1}', '["secret']) {
    assert.ok(!refusalOf(() => decode(text)).message.includes("secret"));
  }
});
