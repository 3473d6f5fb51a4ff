/** The order of tags, beside a list that is sorted each time. */
import assert from "node:assert/strict";
import { seededRandom } from "../../../../tests/support/seeded_random.ts";
import { TagHeap } from "./tag_heap.ts";

Deno.test("a heap has the smallest tag first, and of equal ones the value that has waited longest", () => {
  const heap = new TagHeap<string>();
  assert.equal(heap.first, undefined);
  for (const value of ["a", "b", "c"]) heap.set(value, 1);
  heap.set("d", 0);
  heap.set("e", 1, -5);
  const order: string[] = [];
  while (heap.first !== undefined) {
    order.push(heap.first);
    assert.equal(heap.delete(heap.first), true);
  }
  assert.deepEqual(order, ["d", "e", "a", "b", "c"]);
  assert.equal(heap.delete("a"), false);
  assert.equal(heap.size, 0);
});

Deno.test("a heap agrees with a sorted list in 20,000 changes at random", () => {
  const random = seededRandom(7);
  const heap = new TagHeap<number>();
  const list = new Map<number, number>();
  for (let step = 0; step < 20_000; step += 1) {
    const value = Math.floor(random() * 200);
    if (random() < 0.4) {
      assert.equal(heap.delete(value), list.delete(value));
    } else {
      // A value that has gone and comes again is the last of its tag.
      const tag = Math.floor(random() * 20);
      heap.set(value, tag);
      list.set(value, tag);
    }
    assert.equal(heap.size, list.size);
    assert.equal(heap.has(value), list.has(value));
    const [first] = [...list].sort(([, a], [, b]) => a - b);
    assert.equal(heap.first, first?.[0]);
  }
});
