/** Errors as text for the log, without secrets. */
import assert from "node:assert/strict";
import {
  clip,
  didYouMean,
  formatPath,
  nameOfType,
  valueAt,
} from "./error_text.ts";

Deno.test("clip() makes caller text fit for a message", () => {
  const rows: [string, string][] = [
    ["bogus", "bogus"],
    ["", ""],
    ["a\u0000b\r\nc\u001b[31m", "abc[31m"],
    ["safe\u202egnp.exe", "safegnp.exe"],
    ["\ufeffa\u2028b", "ab"],
    ["你好", "你好"],
    ["\ud800", "\ufffd"],
    ["x".repeat(64), "x".repeat(64)],
    ["x".repeat(65), `${"x".repeat(64)}…`],
    ["x".repeat(1_000_000), `${"x".repeat(64)}…`],
    [`${"x".repeat(63)}😀`, `${"x".repeat(63)}\ufffd…`],
  ];
  for (const [text, expected] of rows) assert.equal(clip(text), expected);
  assert.equal(clip("abcdef", 3), "abc…");
});

Deno.test("formatPath() writes paths as OpenAI does and stops at caller text", () => {
  const rows: [PropertyKey[], string][] = [
    [[], ""],
    [["n"], "n"],
    [["messages", 0, "content"], "messages[0].content"],
    [["tools", 12, "function", "name"], "tools[12].function.name"],
    [["a", "b c", "d"], "a"],
    [["a", "x".repeat(65)], "a"],
    [["a", Symbol("s")], "a"],
    [["", "a"], ""],
  ];
  for (const [path, expected] of rows) assert.equal(formatPath(path), expected);
  assert.ok(formatPath(Array(1_000).fill("member")).length <= 200);
});

Deno.test("nameOfType() names each kind of JSON value", () => {
  const rows: [unknown, string][] = [
    [null, "null"],
    [[], "an array"],
    [{}, "an object"],
    ["", "a string"],
    [true, "a boolean"],
    [1, "an integer"],
    [1.5, "a decimal number"],
    [undefined, "nothing"],
  ];
  for (const [value, expected] of rows) {
    assert.equal(nameOfType(value), expected);
  }
});

Deno.test("didYouMean() names the nearest word, if one is near", () => {
  const words = ["vllm", "llama.cpp", "Neutral-3.7-plus", "connect_ms"];
  const rows: [word: string, named: string | null][] = [
    ["vlm", "vllm"],
    ["VLLM", "vllm"],
    ["llama-cpp", "llama.cpp"],
    ["neutral-3.7", "Neutral-3.7-plus"],
    ["nuetral-3.7-plus", "Neutral-3.7-plus"],
    ["nuetral-3.7-pluss", null],
    ["connect", "connect_ms"],
    ["gpt-5", null],
    ["", null],
    ["x".repeat(10_000), null],
  ];
  for (const [word, text] of rows) {
    const expected = text === null ? "" : `, did you mean '${text}'?`;
    assert.equal(didYouMean(word, words), expected, word.slice(0, 30));
  }
  assert.equal(didYouMean("vllm", []), "");
});

Deno.test("valueAt() follows own members only", () => {
  const root = { a: [{ b: 1 }] };
  assert.equal(valueAt(root, ["a", 0, "b"]), 1);
  assert.equal(valueAt(root, []), root);
  for (const path of [["x"], ["a", 1], ["a", 0, "b", "c"], ["toString"]]) {
    assert.equal(valueAt(root, path), undefined);
  }
});
