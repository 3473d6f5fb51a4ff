import assert from "node:assert/strict";
import { BUS_TIMING } from "./link_options.ts";
import { createRedial } from "./link_redial.ts";

const TABLE: { atMs: number; random: number; waitMs: number }[] = [
  { atMs: 0, random: 0, waitMs: 50 },
  { atMs: 0, random: 0.5, waitMs: 75 },
  { atMs: 499, random: 0, waitMs: 50 },
  { atMs: 500, random: 0, waitMs: 250 },
  { atMs: 500, random: 0.5, waitMs: 375 },
  { atMs: 60_000, random: 0, waitMs: 250 },
];

for (const { atMs, random, waitMs } of TABLE) {
  Deno.test(`createRedial() waits ${waitMs} ms after ${atMs} ms of an outage, at ${random}`, () => {
    const beganAtMs = 7_000;
    let nowMs = beganAtMs;
    const redial = createRedial({
      timing: BUS_TIMING,
      now: () => nowMs,
      random: () => random,
    });
    redial.waitMs();
    nowMs += atMs;
    assert.equal(redial.waitMs(), waitMs);
  });
}

Deno.test("createRedial() is quick again in the next outage", () => {
  let nowMs = 0;
  const redial = createRedial({
    timing: BUS_TIMING,
    now: () => nowMs,
    random: () => 0,
  });
  redial.waitMs();
  nowMs = BUS_TIMING.reconnectSoonForMs;
  assert.equal(redial.waitMs(), BUS_TIMING.reconnectWaitMs);
  redial.onConnected();
  assert.equal(redial.waitMs(), BUS_TIMING.reconnectSoonMs);
});

const POOLS: { name: string; dialledAt: number[]; next: string }[] = [
  { name: "the only server", dialledAt: [7], next: "0" },
  { name: "the other of two", dialledAt: [7, 3], next: "1" },
  { name: "one that was never dialled", dialledAt: [7, 3, 0], next: "2" },
  { name: "any that was never dialled", dialledAt: [7, 0, 0], next: "12" },
  { name: "none of none", dialledAt: [], next: "" },
];

for (const { name, dialledAt, next } of POOLS) {
  Deno.test(`createRedial() dials ${name}`, () => {
    const servers = dialledAt.map((lastConnect, id) => ({ id, lastConnect }));
    const seen = [0, 0.499, 0.5, 0.999].map((random) => {
      const redial = createRedial({
        timing: BUS_TIMING,
        now: () => 0,
        random: () => random,
      });
      return redial.next(servers)?.id ?? "";
    });
    assert.equal([...new Set(seen)].join(""), next);
  });
}
