import assert from "node:assert/strict";
import { ByteSlab } from "./byte_slab.ts";
import { sseFrame } from "./sse_frame.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

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
