import assert from "node:assert/strict";
import { BUS_TIMING } from "./link_options.ts";
import { createRedialPace } from "./link_redial.ts";

const TABLE: { atMs: number; random: number; waitMs: number }[] = [
  { atMs: 0, random: 0, waitMs: 50 },
  { atMs: 0, random: 0.5, waitMs: 75 },
  { atMs: 499, random: 0, waitMs: 50 },
  { atMs: 500, random: 0, waitMs: 250 },
  { atMs: 500, random: 0.5, waitMs: 375 },
  { atMs: 60_000, random: 0, waitMs: 250 },
];

for (const { atMs, random, waitMs } of TABLE) {
  Deno.test(`createRedialPace() waits ${waitMs} ms after ${atMs} ms of an outage, at ${random}`, () => {
    const beganAtMs = 7_000;
    let nowMs = beganAtMs;
    const pace = createRedialPace({
      timing: BUS_TIMING,
      now: () => nowMs,
      random: () => random,
    });
    pace.waitMs();
    nowMs += atMs;
    assert.equal(pace.waitMs(), waitMs);
  });
}

Deno.test("createRedialPace() is quick again in the next outage", () => {
  let nowMs = 0;
  const pace = createRedialPace({
    timing: BUS_TIMING,
    now: () => nowMs,
    random: () => 0,
  });
  pace.waitMs();
  nowMs = BUS_TIMING.reconnectSoonForMs;
  assert.equal(pace.waitMs(), BUS_TIMING.reconnectWaitMs);
  pace.onConnected();
  assert.equal(pace.waitMs(), BUS_TIMING.reconnectSoonMs);
});
