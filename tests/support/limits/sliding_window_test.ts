import assert from "node:assert/strict";
import { type Passed, worstBurst, worstWindow } from "./sliding_window.ts";

/** `count` of them, the first at `fromMs`, then one every `everyMs`. */
function series(count: number, fromMs: number, everyMs: number): Passed[] {
  return Array.from(
    { length: count },
    (_, index) => ({ atMs: fromMs + index * everyMs, cost: 1 }),
  );
}

Deno.test("worstBurst() finds the window with the most beyond the refill", async (t) => {
  const table: { name: string; passed: Passed[]; expected: number }[] = [
    { name: "nothing", passed: [], expected: 0 },
    { name: "one", passed: series(1, 5, 0), expected: 1 },
    { name: "a burst", passed: series(60, 5, 0), expected: 60 },
    { name: "as fast as it refills", passed: series(99, 5, 100), expected: 1 },
    { name: "half as fast", passed: series(99, 5, 200), expected: 1 },
    // Of 11 in a second, 10 are refill and the first is there at once.
    {
      name: "a burst, then as it refills",
      passed: [...series(60, 0, 0), ...series(600, 100, 100)],
      expected: 60,
    },
    {
      name: "one too early, in the middle of a run",
      passed: [
        ...series(60, 0, 0),
        ...series(300, 100, 100),
        ...series(300, 30_000, 100),
      ],
      expected: 61,
    },
    {
      name: "a second burst after a pause that refilled half of it",
      passed: [...series(60, 0, 0), ...series(60, 3_000, 0)],
      expected: 90,
    },
    {
      name: "out of order",
      passed: [...series(60, 3_000, 0), ...series(60, 0, 0)],
      expected: 90,
    },
    {
      name: "given back in between",
      passed: [
        { atMs: 0, cost: 50 },
        { atMs: 0, cost: -50 },
        { atMs: 0, cost: 50 },
      ],
      expected: 50,
    },
  ];
  for (const { name, passed, expected } of table) {
    await t.step(name, () => {
      const found = worstBurst(passed, 600);
      assert.ok(Math.abs(found - expected) < 1e-9, `${found}`);
    });
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
