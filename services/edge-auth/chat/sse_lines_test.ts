/** How lines of an answer become events. */
import assert from "node:assert/strict";
import { LineAssembler, sseFrame } from "./sse_lines.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const TEXT = 'first\n{"a":"é😀"}\n\nthe last, somewhat longer line\n';

Deno.test("LineAssembler gives whole lines however the stream is cut", () => {
  const bytes = encoder.encode(TEXT);
  for (let size = 1; size <= bytes.length; size++) {
    const assembler = new LineAssembler(100);
    let text = "";
    for (let at = 0; at < bytes.length; at += size) {
      const payload = bytes.slice(at, at + size);
      const lines = assembler.push(payload);
      assert.ok(lines !== null);
      assert.ok(lines.length === 0 || lines.at(-1) === 0x0a, "whole lines");
      text += decoder.decode(lines);
      // Its owner uses it again.
      payload.fill(0x7a);
    }
    assert.equal(text, TEXT, `pieces of ${size}`);
    assert.equal(assembler.push(encoder.encode("\n"))?.length, 1);
  }
});

Deno.test("LineAssembler returns a payload of whole lines without a copy", () => {
  const payload = encoder.encode("a\nb\n");
  assert.equal(new LineAssembler(100).push(payload), payload);
});

Deno.test("LineAssembler refuses a line that exceeds its bound", () => {
  const rows: [pieces: string[], isRefused: boolean][] = [
    [["a\n123", "45678", "\nb"], false],
    [["1234567\n1234567\n12345678"], false],
    [["123456789"], true],
    [["1234", "56789"], true],
    [["a\n1234", "5678", "9"], true],
    [["123", "4\n123456789"], true],
  ];
  for (const [pieces, isRefused] of rows) {
    const assembler = new LineAssembler(8);
    const results = pieces.map((text) => assembler.push(encoder.encode(text)));
    assert.equal(results.includes(null), isRefused, pieces.join("|"));
  }
});

Deno.test("sseFrame() makes one event of every line", () => {
  const long = Array.from({ length: 40 }, (_, at) => "x".repeat(at * 37));
  const rows: [lines: string, events: string][] = [
    ["", ""],
    ["\n", "data: \n\n"],
    ['{"a":1}\n{"b":22}\n', 'data: {"a":1}\n\ndata: {"b":22}\n\n'],
    ["a\n\né😀\n", "data: a\n\ndata: \n\ndata: é😀\n\n"],
    ["a\nunfinished", "data: a\n\n"],
    [`${long.join("\n")}\n`, long.map((line) => `data: ${line}\n\n`).join("")],
  ];
  for (const [lines, events] of rows) {
    assert.equal(decoder.decode(sseFrame(encoder.encode(lines))), events);
  }
});
