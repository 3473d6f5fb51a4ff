import assert from "node:assert/strict";
import { createSlidingCounter } from "./sliding_counter.ts";

const cases: {
  name: string;
  start?: number;
  atMs: number[];
  askedAtMs: number;
  sum: number;
}[] = [
  { name: "nothing", atMs: [], askedAtMs: 0, sum: 0 },
  { name: "events at once", atMs: [0, 0, 0], askedAtMs: 0, sum: 3 },
  {
    name: "events within the window",
    atMs: [0, 500, 899],
    askedAtMs: 999,
    sum: 3,
  },
  {
    name: "not the events of before the window",
    atMs: [0, 150, 900],
    askedAtMs: 1_000,
    sum: 2,
  },
  {
    name: "nothing after a long silence",
    atMs: [0, 1, 2],
    askedAtMs: 1_000_000,
    sum: 0,
  },
  {
    name: "the same whenever the clock began",
    start: 12_345_678.9,
    atMs: [0, 500],
    askedAtMs: 600,
    sum: 2,
  },
];

for (const { name, start = 0, atMs, askedAtMs, sum } of cases) {
  Deno.test(`createSlidingCounter() counts ${name}`, () => {
    let nowMs = start;
    const counter = createSlidingCounter(1_000, () => nowMs);
    for (const at of atMs) {
      nowMs = start + at;
      counter.add();
    }
    nowMs = start + askedAtMs;
    assert.equal(counter.sum, sum);
  });
}

Deno.test("createSlidingCounter() agrees with a count of all events, to a tenth of the window", () => {
  let nowMs = 0;
  const counter = createSlidingCounter(1_000, () => nowMs);
  const events: number[] = [];
  // A fixed sequence of uneven steps.
  for (let i = 0; i < 5_000; i++) {
    nowMs += (i * 7_919) % 97;
    if (i % 3 !== 0) {
      counter.add();
      events.push(nowMs);
    }
    const within = (ms: number) =>
      events.filter((at) => at > nowMs - ms).length;
    assert.ok(counter.sum >= within(900), `${counter.sum} at ${nowMs}`);
    assert.ok(counter.sum <= within(1_000.001), `${counter.sum} at ${nowMs}`);
  }
});

Deno.test("createSlidingCounter() forgets all at reset()", () => {
  const counter = createSlidingCounter(1_000, () => 0);
  counter.add();
  counter.reset();
  assert.equal(counter.sum, 0);
  counter.add();
  assert.equal(counter.sum, 1);
});
