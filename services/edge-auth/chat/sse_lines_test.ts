import assert from "node:assert/strict";
import { ByteSlab } from "@gateway/shared/bus/byte_slab";
import { LineAssembler, sseFrame } from "./sse_lines.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const TEXT = 'first\n{"a":"é😀"}\n\nthe last, somewhat longer line\n';

/** Everything the assembler gives back for these pieces. Each must be whole lines. */
function assemble(assembler: LineAssembler, pieces: Uint8Array[]): string {
  let text = "";
  for (const piece of pieces) {
    const lines = assembler.push(piece);
    assert(lines !== null);
    assert(lines.length === 0 || lines.at(-1) === 0x0a, "whole lines");
    text += decoder.decode(lines);
  }
  return text;
}

Deno.test("LineAssembler gives whole lines however the stream is cut", () => {
  const bytes = encoder.encode(TEXT);
  for (let size = 1; size <= bytes.length; size++) {
    const pieces = [];
    for (let at = 0; at < bytes.length; at += size) {
      pieces.push(bytes.slice(at, at + size));
    }
    const assembler = new LineAssembler(100);
    assert.equal(assemble(assembler, pieces), TEXT, `pieces of ${size}`);
    assert.equal(assembler.unfinishedBytes, 0);
  }
});

Deno.test("LineAssembler returns a payload of whole lines without a copy", () => {
  const assembler = new LineAssembler(100);
  const payload = encoder.encode("a\nb\n");
  assert.equal(assembler.push(payload), payload);
});

Deno.test("LineAssembler keeps nothing of a payload that its owner reuses", () => {
  const assembler = new LineAssembler(100);
  const payload = encoder.encode("a\nbc");
  assembler.push(payload);
  payload.fill(0x7a);
  assert.equal(assemble(assembler, [encoder.encode("d\n")]), "bcd\n");
});

Deno.test("LineAssembler says how much of a line has no end yet", () => {
  const assembler = new LineAssembler(100);
  assert.equal(assemble(assembler, [encoder.encode("a\nbcd")]), "a\n");
  assert.equal(assembler.unfinishedBytes, 3);
});

Deno.test("LineAssembler refuses a line beyond its bound", () => {
  const table: [name: string, pieces: string[], isRefused: boolean][] = [
    ["at the bound", ["1234567\n"], false],
    ["at the bound, in pieces", ["a\n123", "4567", "\nb"], false],
    ["many lines at the bound", ["1234567\n1234567\n1234567\n123"], false],
    ["above, whole", ["12345678\n"], true],
    ["above, behind a good one", ["a\n12345678\n"], true],
    ["above, without an end", ["123456789"], true],
    ["above, in pieces", ["1234", "5678\n"], true],
    ["above, begun before", ["a\n1234", "5678", "9"], true],
    ["above, behind one that was begun", ["123", "4\n123456789"], true],
  ];
  for (const [name, pieces, isRefused] of table) {
    const assembler = new LineAssembler(8);
    const results = pieces.map((piece) =>
      assembler.push(encoder.encode(piece))
    );
    assert.equal(results.includes(null), isRefused, name);
  }
});

function framed(lines: string): string {
  return decoder.decode(sseFrame(encoder.encode(lines), new ByteSlab()));
}

Deno.test("sseFrame() makes one event of every line", () => {
  const table: [lines: string, events: string][] = [
    ["", ""],
    ["\n", "data: \n\n"],
    ["a\n", "data: a\n\n"],
    ['{"a":1}\n{"b":22}\n', 'data: {"a":1}\n\ndata: {"b":22}\n\n'],
    ["a\n\nb\n", "data: a\n\ndata: \n\ndata: b\n\n"],
    ["é\n😀\n", "data: é\n\ndata: 😀\n\n"],
    ["a\nunfinished", "data: a\n\n"],
  ];
  for (const [lines, events] of table) {
    assert.equal(framed(lines), events, JSON.stringify(lines));
  }
});

Deno.test("sseFrame() equals a plain replacement for lines of any length", () => {
  for (let lines = 1; lines <= 40; lines++) {
    const text = Array.from(
      { length: lines },
      (_, i) => "x".repeat((i * 37) % 400),
    ).join("\n") + "\n";
    const expected = text.replace(/(.*)\n/g, "data: $1\n\n");
    assert.equal(framed(text), expected);
  }
});

Deno.test("sseFrame() leaves earlier events and its input alone", () => {
  const slab = new ByteSlab();
  const lines = encoder.encode("a\nb\n");
  const first = sseFrame(lines, slab);
  sseFrame(encoder.encode("c\nd\n"), slab);
  assert.equal(decoder.decode(first), "data: a\n\ndata: b\n\n");
  assert.equal(decoder.decode(lines), "a\nb\n");
});
