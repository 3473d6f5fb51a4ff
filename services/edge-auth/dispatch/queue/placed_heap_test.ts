/** The order of a heap, beside a list that is sorted each time. */
import assert from "node:assert/strict";
import { seededRandom } from "../../../../tests/support/seeded_random.ts";
import { type HeapOrder, NO_PLACE, PlacedHeap } from "./placed_heap.ts";

interface Ranked {
  rank: number;
  place: number;
}

const byRank = (): HeapOrder<"place", Ranked> => ({
  place: "place",
  isBefore: (a, b) => a.rank < b.rank,
  work: { comparisons: 0 },
});

const ranked = (rank: number): Ranked => ({ rank, place: NO_PLACE });

Deno.test("a heap has the value first that comes before all others", () => {
  const heap = new PlacedHeap(byRank());
  assert.equal(heap.first, undefined);
  for (const rank of [3, 1, 4, 1.5, 9, 2, 6]) heap.set(ranked(rank));
  const ranks: number[] = [];
  while (heap.first !== undefined) {
    const { first } = heap;
    ranks.push(first.rank);
    heap.delete(first);
    assert.equal(first.place, NO_PLACE);
  }
  assert.deepEqual(ranks, [1, 1.5, 2, 3, 4, 6, 9]);
  assert.equal(heap.size, 0);
});

Deno.test("a heap agrees with a sorted list in 20,000 changes at random", () => {
  const random = seededRandom(7);
  const heap = new PlacedHeap(byRank());
  const values = Array.from({ length: 200 }, () => ranked(0));
  const list = new Set<Ranked>();
  for (let step = 0; step < 20_000; step += 1) {
    const value = values[Math.floor(random() * values.length)];
    assert.ok(value);
    if (list.has(value) && random() < 0.5) {
      heap.delete(value);
      list.delete(value);
    } else {
      // No two are the same, so that one of them is the first.
      value.rank = random();
      heap.set(value);
      list.add(value);
    }
    assert.equal(heap.size, list.size);
    const [first] = [...list].sort((a, b) => a.rank - b.rank);
    assert.equal(heap.first, first);
    const places = [...list].map(({ place }) => place).sort((a, b) => a - b);
    assert.ok(places.every((place, at) => place === at));
  }
});
