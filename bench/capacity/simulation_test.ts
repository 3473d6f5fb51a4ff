/** The simulation of edges and workers, with few of each. */
import assert from "node:assert/strict";
import { simulate } from "./simulation.ts";
import { Timeline } from "./timeline.ts";

const SMALL = { edges: 2, workers: 2, streams: 40, answerMs: 500 };

Deno.test("Timeline runs what is planned in the order of its times", async () => {
  const timeline = new Timeline();
  const ran: number[] = [];
  for (const ms of [5, 1, 4, 2, 3, 9]) {
    timeline.after(ms, () => void ran.push(timeline.nowMs));
  }
  timeline.every(4, 0.5, () => void ran.push(-timeline.nowMs));
  await timeline.runTo(7);
  assert.deepEqual(ran, [1, 2, -2, 3, 4, 5, -6]);
  assert.equal(timeline.nowMs, 7);
});

Deno.test("simulate() refuses nothing while slots are free, and half of twice what they can take", async () => {
  const calm = await simulate({ ...SMALL, load: 0.4 });
  assert.ok(calm.requests > 300, `${calm.requests}`);
  assert.equal(calm.refused, 0);
  assert.equal(calm.takenMs.length, calm.requests);
  const full = await simulate({ ...SMALL, load: 2 });
  const share = full.refused / full.requests;
  assert.ok(share > 0.4 && share < 0.6, `${share}`);
});

Deno.test("simulate() lets model servers at their limits send requests back", async () => {
  const limited = { ...SMALL, load: 0.8, serverLimit: 0.5 };
  const { sentBack, refused } = await simulate(limited);
  assert.ok(sentBack > 0 && refused > 0, `${sentBack}, ${refused}`);
});
