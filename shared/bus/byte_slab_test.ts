import assert from "node:assert/strict";
import { ByteSlab } from "./byte_slab.ts";

Deno.test("pieces of a ByteSlab are zero and do not overlap; it grows to its bound, and a large piece does not hold a slab", () => {
  const slab = new ByteSlab();
  const pieces = Array.from({ length: 500 }, (_, i) => {
    const piece = slab.take(i % 300);
    assert.equal(piece.length, i % 300);
    assert(piece.every((byte) => byte === 0));
    return piece.fill(i % 255 + 1);
  });
  pieces.forEach((piece, i) =>
    assert(piece.every((byte) => byte === i % 255 + 1), `piece ${i}`)
  );
  const sizes = new Set(pieces.map(({ buffer }) => buffer.byteLength));
  assert.deepEqual([...sizes], [0, 512, 1_024, 2_048, 4_096, 8_192]);
  assert.equal(slab.take(2_049).buffer.byteLength, 2_049);
});
