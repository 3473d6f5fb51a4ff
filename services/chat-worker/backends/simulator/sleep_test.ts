import assert from "node:assert/strict";
import { timerSleep } from "./sleep.ts";

/** Far longer than any of these tests may take. */
const LONG_MS = 60_000;

Deno.test("timerSleep() waits its time", async () => {
  const startMs = performance.now();
  await timerSleep(20);
  assert.ok(performance.now() - startMs >= 19);
});

Deno.test("timerSleep() ends at once when the signal aborts, before or while it sleeps", async () => {
  const controller = new AbortController();
  const startMs = performance.now();
  const sleeping = timerSleep(LONG_MS, controller.signal);
  controller.abort();
  await sleeping;
  await timerSleep(LONG_MS, controller.signal);
  assert.ok(performance.now() - startMs < LONG_MS / 2);
});

Deno.test("timerSleep() leaves nothing on a signal that outlives it", async () => {
  const { signal } = new AbortController();
  let removed = 0;
  const remove = signal.removeEventListener.bind(signal);
  signal.removeEventListener = (
    type: string,
    listener: EventListenerOrEventListenerObject,
  ) => {
    removed += 1;
    remove(type, listener);
  };
  await timerSleep(1, signal);
  assert.equal(removed, 1);
});

Deno.test("timerSleep(0) lets a timer that is due run", async () => {
  let hasRun = false;
  const timer = setTimeout(() => hasRun = true, 0);
  const startMs = performance.now();
  while (!hasRun && performance.now() - startMs < LONG_MS) await timerSleep(0);
  clearTimeout(timer);
  assert.ok(hasRun);
});

Deno.test("timerSleep() takes a wait longer than a timer can", async () => {
  const controller = new AbortController();
  let isOver = false;
  const sleeping = timerSleep(2 ** 40, controller.signal).then(() => {
    isOver = true;
  });
  await timerSleep(20);
  assert.equal(isOver, false);
  controller.abort();
  await sleeping;
});
