/** Percentiles of times. */
import assert from "node:assert/strict";
import { seededRandom } from "../../tests/support/seeded_random.ts";
import {
  cellOf,
  CELLS,
  FIRST_TOKEN_MS,
  percentilesOf,
  TOKENS_PER_SECOND,
} from "./log_histogram.ts";

/** A percentile is off by at most one cell. */
const ERROR_MAX = Math.SQRT2;

const countsOf = (values: readonly number[]) => {
  const counts = new Uint32Array(CELLS);
  for (const value of values) {
    const cell = cellOf(value, FIRST_TOKEN_MS);
    counts[cell] = (counts[cell] ?? 0) + 1;
  }
  return counts;
};

Deno.test("a histogram of nothing has no percentiles", () => {
  assert.equal(percentilesOf(new Uint32Array(CELLS), FIRST_TOKEN_MS), null);
});

for (
  const { value, cell } of [
    { value: 0, cell: 0 },
    { value: -1, cell: 0 },
    { value: 10, cell: 0 },
    { value: 10.1, cell: 1 },
    { value: 20, cell: 2 },
    { value: 20.1, cell: 3 },
    { value: 1e9, cell: CELLS - 1 },
    { value: Infinity, cell: CELLS - 1 },
  ]
) {
  Deno.test(`a time of ${value} ms counts in cell ${cell}`, () => {
    assert.equal(cellOf(value, FIRST_TOKEN_MS), cell);
  });
}

Deno.test("percentiles are those of the values, within the width of a cell", () => {
  for (const seed of [1, 2, 3]) {
    const random = seededRandom(seed);
    const values = Array.from(
      { length: 500 },
      () => 12 * Math.exp(8 * random()),
    ).sort((a, b) => a - b);
    const found = percentilesOf(countsOf(values), FIRST_TOKEN_MS);
    for (
      const { shown, exact } of [
        { shown: found?.p50, exact: values[249] },
        { shown: found?.p95, exact: values[474] },
      ]
    ) {
      assert.ok(shown !== undefined && exact !== undefined);
      const ratio = shown / exact;
      assert.ok(ratio < ERROR_MAX && ratio > 1 / ERROR_MAX, `${ratio}`);
    }
  }
});

Deno.test("sums of histograms have the percentiles of all values together", () => {
  const [fast, slow] = [Array(90).fill(50), Array(10).fill(5_000)];
  const sums = countsOf(fast).map((count, cell) =>
    count + (countsOf(slow)[cell] ?? 0)
  );
  assert.deepEqual(
    percentilesOf(sums, FIRST_TOKEN_MS),
    percentilesOf(countsOf([...fast, ...slow]), FIRST_TOKEN_MS),
  );
});

Deno.test("rates count from half a token per second to thousands", () => {
  assert.equal(cellOf(0.5, TOKENS_PER_SECOND), 0);
  assert.equal(cellOf(16_384, TOKENS_PER_SECOND), 30);
});
