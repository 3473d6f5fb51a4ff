import assert from "node:assert/strict";
import { ByteSlab } from "./byte_slab.ts";

Deno.test("pieces of a ByteSlab have their length, are zero, and do not overlap", () => {
  const slab = new ByteSlab(1_024);
  const pieces = [];
  for (let i = 0; i < 500; i++) {
    const piece = slab.take(i % 300);
    assert.equal(piece.length, i % 300);
    assert(piece.every((byte) => byte === 0));
    piece.fill(i % 255 + 1);
    pieces.push(piece);
  }
  pieces.forEach((piece, i) =>
    assert(piece.every((byte) => byte === i % 255 + 1), `piece ${i}`)
  );
});

Deno.test("a ByteSlab begins small and grows to its bound; a large piece does not hold a slab", () => {
  const slab = new ByteSlab(2_048);
  const sizes = new Set<number>();
  for (let i = 0; i < 100; i++) sizes.add(slab.take(100).buffer.byteLength);
  assert.deepEqual([...sizes], [512, 1_024, 2_048]);
  assert.equal(slab.take(513).buffer.byteLength, 513);
});
