import assert from "node:assert/strict";
import { SequenceRing } from "./sequence_ring.ts";

Deno.test("SequenceRing numbers values from 1 and finds them by number", () => {
  const ring = new SequenceRing<string>(2);
  assert.equal(ring.next, 1);
  for (const value of ["a", "b", "c"]) ring.push(value);
  assert.equal(ring.size, 3);
  assert.equal(ring.get(0), undefined);
  assert.equal(ring.get(1), "a");
  assert.equal(ring.get(3), "c");
  assert.equal(ring.get(4), undefined);
  assert.equal(ring.shift(), "a");
  assert.equal(ring.get(1), undefined);
  assert.equal(ring.first, 2);
});

Deno.test("SequenceRing keeps its values while it turns and grows", () => {
  const ring = new SequenceRing<number>(2);
  for (let i = 1; i <= 1_000; i++) {
    ring.push(i);
    if (i % 3 === 0) assert.equal(ring.shift(), i / 3);
  }
  for (let i = ring.first; i < ring.next; i++) assert.equal(ring.get(i), i);
  assert.equal(ring.size, 1_000 - 333);
});

Deno.test("SequenceRing is empty after clear() and counts on", () => {
  const ring = new SequenceRing<number>();
  ring.push(1);
  ring.push(2);
  ring.clear();
  assert.equal(ring.size, 0);
  assert.equal(ring.shift(), undefined);
  assert.equal(ring.get(1), undefined);
  ring.push(3);
  assert.equal(ring.get(3), 3);
});
