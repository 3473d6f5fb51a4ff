import assert from "node:assert/strict";
import { type Passed, worstBurst, worstWindow } from "./sliding_window.ts";

/** `count` of them, the first at `fromMs`, then one every `everyMs`. */
function series(count: number, fromMs: number, everyMs: number): Passed[] {
  return Array.from(
    { length: count },
    (_, index) => ({ atMs: fromMs + index * everyMs, cost: 1 }),
  );
}

Deno.test("worstBurst() finds the window with the most beyond the refill", () => {
  const burst = series(60, 0, 0);
  const back = [50, -50, 50].map((cost) => ({ atMs: 0, cost }));
  const table: [name: string, passed: Passed[], expected: number][] = [
    ["nothing", [], 0],
    ["one", series(1, 5, 0), 1],
    ["a burst", burst, 60],
    ["as fast as it refills", series(99, 5, 100), 1],
    ["half as fast", series(99, 5, 200), 1],
    // Of 11 in a second, 10 are refill and the first is there at once.
    ["a burst and the refill", [...burst, ...series(600, 100, 100)], 60],
    [
      "one too early, in the middle of a run",
      [...burst, ...series(300, 100, 100), ...series(300, 30_000, 100)],
      61,
    ],
    ["a second burst, half refilled", [...burst, ...series(60, 3_000, 0)], 90],
    ["out of order", [...series(60, 3_000, 0), ...burst], 90],
    ["given back in between", back, 50],
  ];
  for (const [name, passed, expected] of table) {
    const found = worstBurst(passed, 600);
    assert.ok(Math.abs(found - expected) < 1e-9, `${name}: ${found}`);
  }
});

Deno.test("worstWindow() counts what lies within the length, ends included", () => {
  const passed = [0, 30_000, 60_000, 60_001, 90_000, 200_000]
    .map((atMs) => ({ atMs, cost: 2 }));
  assert.equal(worstWindow(passed, 60_000), 8);
  assert.equal(worstWindow(passed, 59_999), 6);
  assert.equal(worstWindow(passed, 0), 2);
  assert.equal(worstWindow(passed, 200_000), 12);
  assert.equal(worstWindow([], 60_000), 0);
});
