import assert from "node:assert/strict";
import { LineAssembler } from "./line_assembler.ts";

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
