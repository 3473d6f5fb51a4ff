import assert from "node:assert/strict";
import { createRetryBudget } from "./retry_budget.ts";

const cases: { requests: number; retries: number }[] = [
  { requests: 0, retries: 5 },
  { requests: 1, retries: 5 },
  { requests: 50, retries: 5 },
  { requests: 51, retries: 6 },
  { requests: 1_000, retries: 100 },
];

for (const { requests, retries } of cases) {
  Deno.test(`createRetryBudget() allows ${retries} retries for ${requests} requests in its window`, () => {
    let nowMs = 0;
    const budget = createRetryBudget(() => nowMs);
    for (let i = 0; i < requests; i++) budget.request();
    let taken = 0;
    while (budget.tryTake()) taken++;
    assert.equal(taken, retries);
    nowMs += 11_000;
    assert.equal(budget.tryTake(), true);
  });
}
