import assert from "node:assert/strict";
import { type Pace, Pacer } from "./pacing.ts";
import { randomFrom } from "./sampling/random.ts";
import { fakeTime } from "./test_support.ts";

const { signal } = new AbortController();

function pacerOf(pace: Partial<Pace>, time = fakeTime()): Pacer {
  return new Pacer({
    pace: { firstTokenMs: 0, tokensPerSecond: 0, jitter: 0, ...pace },
    now: time.now,
    sleep: time.sleep,
    random: randomFrom("pace"),
  });
}

Deno.test("without a pace the first step is alone and the others are many, at once", async () => {
  const time = fakeTime();
  const startMs = time.now();
  const pacer = pacerOf({}, time);
  assert.equal(await pacer.due(16, signal), 1);
  assert.equal(await pacer.due(16, signal), 16);
  assert.equal(await pacer.due(5, signal), 5);
  assert.equal(time.now(), startMs);
});

Deno.test("the first token comes after its time", async () => {
  const time = fakeTime();
  const startMs = time.now();
  const pacer = pacerOf({ firstTokenMs: 120 }, time);
  assert.equal(await pacer.due(16, signal), 1);
  assert.equal(time.now() - startMs, 120);
  assert.equal(await pacer.due(16, signal), 16);
  assert.equal(time.now() - startMs, 120);
});

Deno.test("1,000 tokens at 50 a second take 20 s, however late each sleep ends", async () => {
  const time = fakeTime();
  time.overshootMs = 1.7;
  const startMs = time.now();
  const pacer = pacerOf({ tokensPerSecond: 50 }, time);
  let steps = 0;
  while (steps < 1001) steps += await pacer.due(1, signal);
  const tookMs = time.now() - startMs;
  assert.ok(Math.abs(tookMs - 20_000) <= 2, `${tookMs} ms`);
});

Deno.test("a reader who was away gets what is due, up to the bound", async () => {
  const time = fakeTime();
  const pacer = pacerOf({ tokensPerSecond: 100 }, time);
  assert.equal(await pacer.due(16, signal), 1);
  await time.sleep(75);
  assert.equal(await pacer.due(4, signal), 4);
  assert.equal(await pacer.due(16, signal), 3);
  const beforeMs = time.now();
  assert.equal(await pacer.due(16, signal), 1);
  assert.equal(time.now() - beforeMs, 5);
});

Deno.test("jitter moves each token by its share and not the average", async () => {
  const time = fakeTime();
  const startMs = time.now();
  const pacer = pacerOf({ tokensPerSecond: 100, jitter: 0.5 }, time);
  const gaps: number[] = [];
  await pacer.due(1, signal);
  for (let step = 0; step < 1000; step++) {
    const beforeMs = time.now();
    await pacer.due(1, signal);
    gaps.push(time.now() - beforeMs);
  }
  assert.ok(gaps.every((gap) => gap >= 4.999 && gap <= 15.001));
  assert.ok(new Set(gaps.map(Math.round)).size > 5);
  assert.ok(Math.abs(time.now() - startMs - 10_000) < 500);
});

Deno.test("an abort ends the wait", async () => {
  const time = fakeTime();
  const controller = new AbortController();
  controller.abort();
  const startMs = time.now();
  await pacerOf({ firstTokenMs: 60_000 }, time).due(1, controller.signal);
  assert.equal(time.now(), startMs);
});
