/** The deadlines of an attempt. */
import assert from "node:assert/strict";
import { Deadlines } from "../../process/deadlines.ts";
import { AttemptDeadlines } from "./attempt_deadlines.ts";

function start(signal = new AbortController().signal) {
  const clock = { ms: 0 };
  const now = () => clock.ms;
  const watched = new Deadlines(now, 0);
  watched.closeWhenIdle();
  const deadlines = new AttemptDeadlines({
    deadlines: watched,
    now,
    callSignal: signal,
    totalMs: 60_000,
  });
  const assertExpired = (which: string) =>
    assert.throws(() => deadlines.throwIfEnded(), {
      code: "upstream_timeout",
      cause: new Error(`Deadline passed: ${which}`),
    });
  return { clock, watched, deadlines, assertExpired };
}

Deno.test("AttemptDeadlines does not end while its phase is armed again in time", async () => {
  const { clock, deadlines, assertExpired } = start();
  const ended = Promise.withResolvers<void>();
  deadlines.onEnd(() => ended.resolve());
  deadlines.arm("betweenTokens", 40);
  while (clock.ms < 120) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    clock.ms += 5;
    deadlines.throwIfEnded();
    deadlines.arm("betweenTokens", 40);
  }
  clock.ms += 40;
  await ended.promise;
  assertExpired("betweenTokens");
  deadlines.dispose();
});

Deno.test("AttemptDeadlines does not end after it was disposed of", () => {
  const controller = new AbortController();
  const { deadlines, watched } = start(controller.signal);
  deadlines.arm("connect", 1);
  assert.equal(watched.size, 1);
  deadlines.dispose();
  controller.abort();
  // Nothing watches it any more, whatever it arms.
  deadlines.arm("connect", 1);
  assert.equal(watched.size, 0);
  deadlines.throwIfEnded();
});

Deno.test("throwIfEnded() throws once the total has passed, even if no timer could run", () => {
  const { clock, deadlines, assertExpired } = start();
  deadlines.arm("betweenTokens", 100_000);
  clock.ms = 59_999;
  deadlines.throwIfEnded();
  clock.ms = 60_000;
  assertExpired("total");
  deadlines.dispose();
});
