/** How fast a queue is served, and what those hear who may not wait. */
import assert from "node:assert/strict";
import { DrainRate } from "./drain_rate.ts";

Deno.test("a drain rate says when those who wait will have been served", () => {
  const rate = new DrainRate();
  assert.equal(rate.perSecond(0), 0);
  assert.equal(rate.waitMs(1_000, 0), 1_000);
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
  // What was served long ago says nothing of now.
  const later = rate.perSecond(90_000);
  assert.ok(later < perSecond / 15, `${later}`);
});
