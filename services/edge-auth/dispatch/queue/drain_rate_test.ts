/** How fast a queue is served, and what those hear who may not wait. */
import assert from "node:assert/strict";
import { DrainRate } from "./drain_rate.ts";

Deno.test("a drain rate says when those who wait will have been served", () => {
  const rate = new DrainRate();
  assert.equal(rate.perSecond(0), 0);
  assert.equal(rate.waitMs(1_000, 0), 1_000);
  rate.begin(0);
  // Twenty a second, for a minute.
  for (let atMs = 50; atMs <= 60_000; atMs += 50) rate.add(atMs);
  const perSecond = rate.perSecond(60_000);
  assert.ok(perSecond > 19 && perSecond < 21, `${perSecond}`);
  const cases = [
    { waiting: 1, fromMs: 1_000, toMs: 1_000 },
    { waiting: 100, fromMs: 4_700, toMs: 5_300 },
    { waiting: 100_000, fromMs: 60_000, toMs: 60_000 },
  ];
  for (const { waiting, fromMs, toMs } of cases) {
    const waitMs = rate.waitMs(waiting, 60_000);
    assert.ok(waitMs >= fromMs && waitMs <= toMs, `${waiting}: ${waitMs}`);
  }
  // What was served long ago says nothing of now, while requests wait.
  const later = rate.perSecond(90_000);
  assert.ok(later < perSecond / 15, `${later}`);
});

Deno.test("a drain rate does not fall while nothing waits", () => {
  const rate = new DrainRate();
  rate.begin(0);
  for (let atMs = 100; atMs <= 1_000; atMs += 100) rate.add(atMs);
  rate.end(1_000);
  const perSecond = rate.perSecond(1_000);
  assert.ok(perSecond > 9 && perSecond < 11, `${perSecond}`);
  assert.equal(rate.perSecond(3_600_000), perSecond);
  // An hour later, as many wait as then.
  rate.begin(3_600_000);
  const waitMs = rate.waitMs(50, 3_600_100);
  assert.ok(waitMs > 4_500 && waitMs < 5_600, `${waitMs}`);
});

Deno.test("who finds a queue full of which none was served waits as long as they have", () => {
  const rate = new DrainRate();
  rate.begin(0);
  const cases = [
    { atMs: 500, fromMs: 1_000, toMs: 1_000 },
    { atMs: 4_000, fromMs: 3_000, toMs: 4_000 },
    { atMs: 600_000, fromMs: 9_900, toMs: 10_000 },
  ];
  for (const { atMs, fromMs, toMs } of cases) {
    const waitMs = rate.waitMs(100, atMs);
    assert.ok(waitMs >= fromMs && waitMs <= toMs, `${atMs}: ${waitMs}`);
  }
});
