import assert from "node:assert/strict";
import { compareCosts, median, medians, percentile } from "./figures.ts";

Deno.test("percentile() is the value below which the share lies", () => {
  const hundred = Array.from({ length: 100 }, (_, i) => i);
  for (
    const [sorted, share, expected] of [
      [[], 0.5, NaN],
      [[7], 0.99, 7],
      [hundred, 0, 0],
      [hundred, 0.5, 50],
      [hundred, 0.99, 99],
      [hundred, 1, 99],
    ] as const
  ) assert.equal(percentile(sorted, share), expected);
});

Deno.test("median() takes the middle and leaves out what was not measured", () => {
  assert.equal(median([9, 1, 5]), 5);
  assert.equal(median([4, 1, 2, 9]), 3);
  assert.equal(median([NaN, 2, NaN]), 2);
  assert.equal(median([]), NaN);
  assert.deepEqual(medians([[1, 10], [3, 30], [2, 90]]), [2, 30]);
});

Deno.test("compareCosts() fails beyond the tolerance, and where nothing was measured", () => {
  const cost = [0.2, 0.4, 0.3];
  for (
    const [factor, isWorse] of [[0.5, false], [1.09, false], [
      1.11,
      true,
    ]] as const
  ) {
    const after = cost.map((each) => each * factor);
    const verdict = compareCosts(cost, after, 0.1);
    assert.equal(verdict.isWorse, isWorse, `${factor}`);
    assert.ok(Math.abs(verdict.ratio - factor) < 1e-9);
  }
  // One disturbed round of three decides nothing.
  assert.equal(compareCosts(cost, [0.2, 0.9, 0.3], 0.1).isWorse, false);
  assert.equal(compareCosts([], [], 0.1).isWorse, true);
});
