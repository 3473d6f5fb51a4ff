import assert from "node:assert/strict";
import { compareCosts } from "./figures.ts";

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
