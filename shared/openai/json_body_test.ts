/** JSON bodies from outside, also hostile ones. */
import assert from "node:assert/strict";
import { ApiError } from "./error.ts";
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

const decode = (body: string | Uint8Array) =>
  decodeJson(typeof body === "string" ? encoder.encode(body) : body);
const nested = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;
const keys = (count: number) =>
  `{${Array.from({ length: count }, (_, at) => `"k${at}":1`).join(",")}}`;

/** A list of empty lists; with itself, so many. */
const lists = (count: number) => `[${Array(count - 1).fill("[]").join(",")}]`;

const MIB = 1024 * 1024;
/** Besides the digits: two braces, two colons, a comma, and one for each string. */
const withDigits = (digits: number) =>
  `{"a":"${"x".repeat(3 * MIB)}","b":${"9".repeat(digits)}}`;

Deno.test("guardJson() refuses what is too deep, has too many members or too much outside of strings", () => {
  const accepted = [
    nested(64),
    `{"a":${nested(63)}}`,
    keys(64),
    `{"a":${keys(65_535)}}`,
    `[${keys(100)}]`,
    lists(65_536),
    withDigits(2 * MIB - 8),
    // Invalid JSON is left to the parser.
    "",
    "{",
    "]]]]",
    '"',
    '"\\',
    "{:}",
    "\ufeff{}",
  ];
  for (const text of accepted) guardJson(text);
  const refused = [
    nested(65),
    `{"a":${nested(64)}}`,
    "[{".repeat(33),
    // Closing again does not make room for the depth of elsewhere.
    `[${nested(60)},${nested(64)}]`,
    keys(65),
    `{"a":${keys(65_536)}}`,
    `{"a":"\\"",${keys(100).slice(1)}`,
    lists(65_537),
    `[{},${lists(65_535)}]`,
    withDigits(2 * MIB - 7),
  ];
  for (const text of refused) {
    const { status, message } = refusalOf(() => guardJson(text));
    assert.equal(status, 400);
    assert.match(message, /too complex/);
  }
});

Deno.test("guardJson() counts no brackets and colons inside strings", () => {
  const open = "[".repeat(100);
  const strings = [
    open,
    `\\"${open}`,
    `${"x".repeat(200)}\\"${open}`,
    `${"\\\\".repeat(100)}`,
    ":".repeat(100),
    `${"x".repeat(61)}\\\\\\"${open}${"y".repeat(100)}\\"${open}`,
  ];
  for (const inside of strings) {
    const text = `{"a":"${inside}","${inside}":"\\\\"}`;
    assert.ok(JSON.parse(text));
    guardJson(text);
  }
  // And the string does end: what follows it counts.
  for (const tail of ["", "\\\\", '\\"', "\\\\\\\\", '\\\\\\"']) {
    const text = `{"a":"x${tail}","b":${nested(64)}}`;
    assert.ok(JSON.parse(text));
    refusalOf(() => guardJson(text));
  }
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
  const all = encoder.encode('xx{"a":"b"}yy');
  assert.deepEqual(decodeJson(all.subarray(2, -2)), { a: "b" }, "a view");
});

/**
 * A lone continuation, an overlong slash, a surrogate, beyond U+10FFFF, a cut
 * character.
 */
const NO_UTF8 = ["ff", "80", "c0af", "eda080", "f4908080", "e4bd"]
  .flatMap((hex) => [`22${hex}22`, `22${hex}`])
  .map((hex): Bad => [Uint8Array.fromHex(hex), "it is not valid UTF-8"]);
type Bad = [body: string | Uint8Array, why: string];
const BAD: Bad[] = [
  ...NO_UTF8,
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
  ["// secret\n{}", "it is not valid JSON"],
  ['["secret', "it is not valid JSON at position 8 (line 1 column 9)"],
];

Deno.test("decodeJson() names the place of a fault where the parser does, and never repeats the text", () => {
  for (const [body, why] of BAD) {
    const { code, status, message } = refusalOf(() => decode(body));
    assert.deepEqual([code, status], ["invalid_json", 400]);
    const about = "We could not parse the JSON body of your request";
    assert.equal(message, `${about}: ${why}.`);
  }
});
