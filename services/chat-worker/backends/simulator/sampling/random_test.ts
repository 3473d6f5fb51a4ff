import assert from "node:assert/strict";
import { hash32, integerBetween, randomFrom, shuffled } from "./random.ts";

Deno.test("hash32() gives the values it always gave", () => {
  // Answers to a seed depend on these numbers: a change here is a new simulator version.
  assert.equal(hash32(""), 2872998923);
  assert.equal(hash32("7/0"), 570392071);
  assert.equal(hash32("gateway"), 2184334870);
});

Deno.test("randomFrom() gives the same numbers for the same label, others for another", () => {
  const take = (label: string) => {
    const random = randomFrom(label);
    return Array.from({ length: 5 }, () => random());
  };
  assert.deepEqual(take("7/0"), take("7/0"));
  assert.notDeepEqual(take("7/0"), take("7/1"));
  assert.notDeepEqual(take("7/0"), take("8/0"));
});

Deno.test("randomFrom() is even over [0, 1)", () => {
  const random = randomFrom("even");
  const buckets = new Array<number>(10).fill(0);
  for (let i = 0; i < 20_000; i++) {
    const value = random();
    assert.ok(value >= 0 && value < 1);
    const bucket = Math.floor(value * 10);
    buckets[bucket] = (buckets[bucket] ?? 0) + 1;
  }
  // 2,000 each with a standard deviation of 42: 5 of them are not reached by chance.
  for (const count of buckets) assert.ok(Math.abs(count - 2000) < 210);
});

Deno.test("integerBetween() reaches both ends and nothing beyond", () => {
  const random = randomFrom("ends");
  const seen = new Set(
    Array.from({ length: 200 }, () => integerBetween(random, -1, 2)),
  );
  assert.deepEqual([...seen].sort((one, other) => one - other), [-1, 0, 1, 2]);
});

Deno.test("shuffled() keeps the items and the list", () => {
  const list = [1, 2, 3, 4, 5, 6, 7, 8];
  const order = shuffled(randomFrom("order"), list);
  assert.deepEqual(list, [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.notDeepEqual(order, list);
  assert.deepEqual([...order].sort(), list);
});
