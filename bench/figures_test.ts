// Promise: figures are computed as the tables say, and a lost figure never passes.
import assert from "node:assert/strict";
import {
  compareCosts,
  isSettled,
  median,
  medians,
  percentile,
} from "./figures.ts";

Deno.test("percentile() is the value below which the share lies, median() the middle of what was measured", () => {
  const hundred = Array.from({ length: 100 }, (_, i) => i);
  const found = [0, 0.5, 0.99, 1].map((share) => percentile(hundred, share));
  assert.deepEqual(found, [0, 50, 99, 99]);
  assert.deepEqual([percentile([], 0.5), percentile([7], 0.99)], [NaN, 7]);
  const middles = [[9, 1, 5], [4, 1, 2, 9], [NaN, 2, NaN], []].map(median);
  assert.deepEqual(middles, [5, 3, 2, NaN]);
  assert.deepEqual(medians([[1, 10], [3, 30], [2, 90]]), [2, 30]);
});

Deno.test("compareCosts() fails beyond the tolerance, and where nothing was measured", () => {
  const cost = [0.2, 0.4, 0.3];
  for (const [factor, isWorse] of [[0.5, false], [1.09, false], [1.11, true]]) {
    const after = cost.map((each) => each * Number(factor));
    const verdict = compareCosts(cost, after, 0.1);
    assert.equal(verdict.isWorse, isWorse, `${factor}`);
    assert.ok(Math.abs(verdict.ratio - Number(factor)) < 1e-9);
  }
  // One disturbed round of three decides nothing.
  assert.equal(compareCosts(cost, [0.2, 0.9, 0.3], 0.1).isWorse, false);
  assert.equal(compareCosts([], [], 0.1).isWorse, true);
});

Deno.test("isSettled() waits until three rounds in a row are no cheaper", () => {
  const cases = [
    { name: "nothing was measured", costs: [], isSettledNow: false },
    { name: "too few rounds", costs: [10, 10, 10], isSettledNow: false },
    { name: "no change", costs: [10, 10, 10, 10], isSettledNow: true },
    { name: "3 % cheaper", costs: [10, 10, 9.7, 10], isSettledNow: true },
    { name: "4 % cheaper", costs: [10, 10, 9.6, 10], isSettledNow: false },
    {
      name: "three rounds after the last that was cheaper",
      costs: [20, 12, 9, 9, 9.5, 9],
      isSettledNow: true,
    },
    {
      name: "two rounds after it",
      costs: [20, 12, 9, 9, 9.5],
      isSettledNow: false,
    },
  ];
  for (const { name, costs, isSettledNow } of cases) {
    assert.equal(isSettled(costs), isSettledNow, name);
  }
});
