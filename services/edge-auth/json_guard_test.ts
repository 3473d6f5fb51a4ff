import assert from "node:assert/strict";
import { ApiError } from "@gateway/shared/openai/error";
import { explainBadJson } from "./json_fault.ts";
import { decodeJson, guardJson } from "./json_guard.ts";

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
const guard = (text: string) => guardJson(encoder.encode(text));
const nested = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;
const keys = (count: number) =>
  `{${Array.from({ length: count }, (_, at) => `"k${at}":1`).join(",")}}`;

Deno.test("guardJson() refuses nesting beyond 64 levels", () => {
  guard(nested(64));
  guard(`{"a":${nested(63)}}`);
  assert.equal(
    refusalOf(() => guard(nested(65))).message,
    "The JSON body of your request is nested deeper than 64 levels, at byte 64.",
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
    const error = refusalOf(() => guard(text));
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
  guard(text(max - overhead));
  const error = refusalOf(() => guard(text(max - overhead + 1)));
  assert.deepEqual([error.status, error.code], [400, "invalid_request"]);
});

Deno.test("the fault of a large body is not looked for", () => {
  const small = refusalOf(() => decode(`[${"1,".repeat(1_000)}`));
  assert.match(small.message, /ends too early at position 2001/);
  const large = refusalOf(() => decode(`[${"1,".repeat(200_000)}`));
  assert.match(large.message, /not valid JSON\.$/);
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
    guard(text);
  }
  // And the string does end: what follows it counts.
  for (const lead of [0, 1, 61, 62, 63, 64, 65, 127, 128, 129, 300]) {
    for (const tail of ["", "\\\\", '\\"', "\\\\\\\\", '\\\\\\"']) {
      const text = `{"a":"${"x".repeat(lead)}${tail}","b":${nested(64)}}`;
      assert.ok(JSON.parse(text));
      refusalOf(() => guard(text));
    }
  }
});

Deno.test("guardJson() refuses more than 64 members at the top", () => {
  guard(keys(64));
  guard(`{"a":${keys(1_000)}}`);
  guard(`[${keys(100)}]`);
  const error = refusalOf(() => guard(keys(65)));
  assert.equal(error.code, "object_above_max_properties");
  assert.equal(error.status, 400);
  refusalOf(() => guard(`{"a":"\\"",${keys(100).slice(1)}`));
});

Deno.test("guardJson() leaves what is no JSON to the parser", () => {
  for (const text of ["", "{", "]]]]", '"', '"\\', "{:}", "\ufeff{}"]) {
    guard(text);
  }
});

Deno.test("guardJson() refuses bombs at once", () => {
  const bombs = ["[".repeat(500_000), '{"a":'.repeat(100_000), keys(100_000)]
    .map((text) => encoder.encode(text));
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

Deno.test("decodeJson() refuses what is not UTF-8 and names the byte", () => {
  const rows: [name: string, bytes: number[], at: number][] = [
    ["0xff", [0x22, 0xff, 0x22], 1],
    ["a lone continuation", [0x22, 0x80, 0x22], 1],
    ["an overlong slash", [0x22, 0xc0, 0xaf, 0x22], 1],
    ["an encoded surrogate", [0x22, 0xed, 0xa0, 0x80, 0x22], 1],
    ["beyond U+10FFFF", [0x22, 0xf4, 0x90, 0x80, 0x80, 0x22], 1],
    ["a cut character", [0x22, 0xe4, 0xbd], 1],
    ["a fault after good text", [0xef, 0xbf, 0xbd, 0xc3, 0xa9, 0xfe], 5],
  ];
  for (const [name, bytes, at] of rows) {
    const error = refusalOf(() => decodeJson(new Uint8Array(bytes)));
    assert.equal(error.status, 400, name);
    assert.equal(error.code, "invalid_json", name);
    assert.match(
      error.message,
      new RegExp(`not valid UTF-8 at byte ${at}\\.$`),
    );
  }
});

const EARLY = "it ends too early";
const UNEXPECTED = "unexpected character";

const BAD: [text: string, why: string, at: number][] = [
  ["{", EARLY, 1],
  ["[", EARLY, 1],
  ['{"a"', EARLY, 4],
  ['{"a":', EARLY, 5],
  ['{"a":1', EARLY, 6],
  ['{"a":1,', EARLY, 7],
  ['{"a":1,}', UNEXPECTED, 7],
  ["[1,]", UNEXPECTED, 3],
  ["[1 2]", UNEXPECTED, 3],
  ["[1}", UNEXPECTED, 2],
  ['{"a":1]', UNEXPECTED, 6],
  ["]", UNEXPECTED, 0],
  ["[:]", UNEXPECTED, 1],
  ["{,}", UNEXPECTED, 1],
  ["{a:1}", UNEXPECTED, 1],
  ["{'a':1}", UNEXPECTED, 1],
  ["{} x", UNEXPECTED, 3],
  ["{}{}", UNEXPECTED, 2],
  ["{}\u0000", UNEXPECTED, 2],
  ["tru", EARLY, 3],
  ["trux", UNEXPECTED, 3],
  ["nul1", UNEXPECTED, 3],
  ["NaN", UNEXPECTED, 0],
  ["Infinity", UNEXPECTED, 0],
  ["undefined", UNEXPECTED, 0],
  ["-", EARLY, 1],
  ["-x", UNEXPECTED, 1],
  ["+1", UNEXPECTED, 0],
  ["01", UNEXPECTED, 1],
  ["1.", EARLY, 2],
  ["1.x", UNEXPECTED, 2],
  ["1e", EARLY, 2],
  ["1e+", EARLY, 3],
  [".5", UNEXPECTED, 0],
  ["0x10", UNEXPECTED, 1],
  ['"abc', EARLY, 4],
  ['"a\\', EARLY, 3],
  ['"a\\x"', "bad escape in a string", 3],
  ['"\\u12g4"', "bad escape in a string", 2],
  ['"\\u12', "bad escape in a string", 2],
  ['"a\nb"', "control character in a string", 2],
  ['{"a\u0000":1}', "control character in a string", 3],
  ["// hello\n{}", UNEXPECTED, 0],
];

Deno.test("decodeJson() names the place of a fault", () => {
  for (const [text, why, at] of BAD) {
    assert.throws(() => JSON.parse(text), SyntaxError, text);
    const error = refusalOf(() => decode(text));
    assert.equal(error.status, 400);
    assert.ok(
      error.message.includes(`request: ${why} at position ${at} (line`),
      `${JSON.stringify(text)}: ${error.message}`,
    );
  }
});

Deno.test("decodeJson() counts lines and columns from 1", () => {
  assert.equal(
    refusalOf(() => decode('{\n  "a": 1,\n  b: 2\n}')).message,
    "We could not parse the JSON body of your request: unexpected character " +
      "at position 14 (line 3, column 3).",
  );
});

Deno.test("decodeJson() calls an empty body empty", () => {
  for (const text of ["", " ", "\n\t", "\ufeff"]) {
    assert.match(refusalOf(() => decode(text)).message, /: it is empty\.$/);
  }
});

Deno.test("decodeJson() never repeats the text", () => {
  for (const text of ["secret", '{"a":secret}', '{"secret" 1}', '["secret']) {
    assert.ok(!refusalOf(() => decode(text)).message.includes("secret"));
  }
});

Deno.test("explainBadJson() agrees with JSON.parse on every cut and change", () => {
  const good = '{"a":[1,-2.5e+3,true,false,null,"x\\u00e9\\n"],"b":{},"c":[]} ';
  const spare = '"\\{}[]:,0-.eEut \n\u0001';
  const texts = [good];
  for (let at = 0; at <= good.length; at++) {
    texts.push(good.slice(0, at));
    for (const char of spare) {
      texts.push(good.slice(0, at) + char + good.slice(at));
      texts.push(good.slice(0, at) + char + good.slice(at + 1));
    }
  }
  for (const text of texts) {
    let isGood = true;
    try {
      JSON.parse(text);
    } catch {
      isGood = false;
    }
    assert.equal(
      explainBadJson(text) === "it is not valid JSON",
      isGood,
      JSON.stringify(text),
    );
  }
});

Deno.test("explainBadJson() reads a deep text without recursion", () => {
  assert.match(explainBadJson("[".repeat(1_000_000)), /position 1000000/);
});
