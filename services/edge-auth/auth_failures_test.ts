import assert from "node:assert/strict";
import {
  BAD_BODY_LIMITS,
  badBodyWeight,
  createFailureLimiter,
} from "./auth_failures.ts";

const LIMITS = { failuresMax: 20, windowMs: 60_000, entriesMax: 10_000 };

function limiter(limits = LIMITS) {
  const clock = { nowMs: 0 };
  return { clock, limiter: createFailureLimiter(limits, () => clock.nowMs) };
}

Deno.test("20 failures pass, the 21st must wait for the end of the window", () => {
  const { clock, limiter: failures } = limiter();
  for (let i = 1; i <= 20; i++) {
    assert.equal(failures.waitMs("a"), 0, `before failure ${i}`);
    assert.equal(failures.fail("a"), 0, `failure ${i}`);
    clock.nowMs += 100;
  }
  assert.equal(failures.waitMs("a"), 58_000);
  assert.equal(failures.fail("a"), 58_000);
  assert.equal(failures.waitMs("b"), 0, "other addresses are not affected");
  assert.equal(failures.fail("b"), 0);
});

Deno.test("a window ends when it ends, and the next one starts with a failure", () => {
  const { clock, limiter: failures } = limiter();
  for (let i = 0; i < 25; i++) failures.fail("a");
  clock.nowMs = 59_999;
  assert.equal(failures.waitMs("a"), 1);
  clock.nowMs = 60_000;
  assert.equal(failures.waitMs("a"), 0);
  clock.nowMs = 100_000;
  for (let i = 0; i < 21; i++) failures.fail("a");
  assert.equal(failures.waitMs("a"), 60_000);
});

Deno.test("memory is bounded, and the busiest names are kept", () => {
  const { limiter: failures } = limiter({
    failuresMax: 2,
    windowMs: 1_000,
    entriesMax: 3,
  });
  for (let i = 0; i < 100; i++) {
    failures.fail("busy");
    failures.fail(`once${i}`);
  }
  assert.ok(failures.waitMs("busy") > 0);
});

Deno.test("bad bodies count by size, small ones as 4 KiB", () => {
  const bodies = (bytes: number) => {
    const { limiter: failures } = limiter(BAD_BODY_LIMITS);
    let count = 0;
    while (failures.waitMs("key") === 0) {
      failures.fail("key", badBodyWeight(bytes));
      count += 1;
    }
    return count;
  };
  assert.equal(bodies(1024 * 1024), 50);
  assert.equal(bodies(20 * 1024 * 1024), 3);
  assert.equal(bodies(4 * 1024), 12_800);
  assert.equal(bodies(0), 12_800);
});
