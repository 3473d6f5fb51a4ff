/** Memory of arrays that are done with is freed at once. */
import assert from "node:assert/strict";
import { freeBytes } from "./free_bytes.ts";

const LARGE = 1_000_000;

Deno.test("freeBytes() frees a large array that has its memory for itself", () => {
  const bytes = new Uint8Array(LARGE);
  freeBytes(bytes);
  assert.equal(bytes.length, 0);
  assert.equal(bytes.buffer.byteLength, 0);
});

Deno.test("freeBytes() leaves small arrays and parts of larger ones as they are", () => {
  const large = new Uint8Array(LARGE);
  const shared = new Uint8Array(new SharedArrayBuffer(LARGE));
  for (const bytes of [large.subarray(1), new Uint8Array(100), shared]) {
    const { length } = bytes;
    freeBytes(bytes);
    assert.equal(bytes.length, length);
  }
});
