import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/clock";
import { createDeadlines } from "./deadlines.ts";

const TICK_MS = 5;
const PATIENCE_MS = 2_000;

/** Waits until `isTrue`, for two seconds at most. */
async function until(isTrue: () => boolean): Promise<void> {
  const giveUpAt = performance.now() + PATIENCE_MS;
  while (!isTrue()) {
    assert.ok(performance.now() < giveUpAt, "in time");
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

Deno.test("createDeadlines() calls what has expired, once, and nothing else", async () => {
  let time = 0;
  using deadlines = createDeadlines(() => time, TICK_MS);
  const called: string[] = [];
  deadlines.add(100, () => called.push("early"));
  deadlines.add(200, () => called.push("late"));
  const removed = deadlines.add(100, () => called.push("removed"));
  const moved = deadlines.add(100, () => called.push("moved"));
  deadlines.remove(removed);
  moved.at = 300;

  let ticks = 0;
  const count = () => {
    ticks++;
    deadlines.add(0, count);
  };
  deadlines.add(0, count);
  await until(() => ticks > 2);
  assert.deepEqual(called, []);

  time = 100;
  await until(() => called.length > 0);
  assert.deepEqual(called, ["early"]);
  time = 299;
  await until(() => called.length > 1);
  time = 300;
  await until(() => called.length > 2);
  assert.deepEqual(called, ["early", "late", "moved"]);
});

Deno.test("createDeadlines() obeys a removal by another that expires", async () => {
  using deadlines = createDeadlines(monotonicNow, TICK_MS);
  const called: string[] = [];
  deadlines.add(0, () => {
    called.push("first");
    deadlines.remove(second);
  });
  const second = deadlines.add(0, () => called.push("second"));
  await until(() => called.length > 0);
  assert.deepEqual(called, ["first"]);
});

Deno.test("createDeadlines() stops its timer when nothing is left", async () => {
  // The sanitizer fails this test when a timer is still running at its end.
  const deadlines = createDeadlines(monotonicNow, TICK_MS);
  let called = 0;
  deadlines.add(0, () => called++);
  await until(() => called === 1);
  deadlines.add(0, () => called++);
  await until(() => called === 2);
});

Deno.test("createDeadlines() leaves no timer when it is disposed of", () => {
  const deadlines = createDeadlines(monotonicNow, 60_000);
  deadlines.add(0, () => assert.fail("never"));
  deadlines[Symbol.dispose]();
});
