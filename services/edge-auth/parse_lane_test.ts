import assert from "node:assert/strict";
import { ApiError } from "@gateway/shared/openai/error";
import { createParseLane, type ParseLane } from "./parse_lane.ts";

/** A lane on a clock that stands still unless a parse or a rest moves it. */
function laneOnClock(waitingMax = 10) {
  const timers: { atMs: number; callback: () => void }[] = [];
  const clock = { nowMs: 0 };
  const lane: ParseLane = createParseLane({
    now: () => clock.nowMs,
    schedule: (callback, ms) =>
      timers.push({ atMs: clock.nowMs + ms, callback }),
    waitingMax,
  });
  /** Lets time pass until nothing is due any more. */
  const pass = () => {
    for (;;) {
      const timer = timers.shift();
      if (timer === undefined) return;
      clock.nowMs = Math.max(clock.nowMs, timer.atMs);
      timer.callback();
    }
  };
  return { lane, clock, pass };
}

Deno.test("bodies are parsed one after the other, with a rest four times as long", async () => {
  const { lane, clock, pass } = laneOnClock();
  const begun: number[] = [];
  const parse = (tookMs: number) => () => {
    begun.push(clock.nowMs);
    clock.nowMs += tookMs;
    return tookMs;
  };
  const parsed = [lane.run(parse(20)), lane.run(parse(5)), lane.run(parse(1))];
  assert.deepEqual(begun, [], "never within the turn of the request");
  pass();
  assert.deepEqual(await Promise.all(parsed), [20, 5, 1]);
  assert.deepEqual(begun, [0, 100, 125]);
  // A rest holds for who comes during it, too; afterwards the lane is free.
  const late = lane.run(parse(1));
  pass();
  await late;
  assert.deepEqual(begun, [0, 100, 125, 130]);
});

Deno.test("what parsing throws reaches the one whose body it was, and the lane goes on", async () => {
  const { lane, pass } = laneOnClock();
  const bad = lane.run(() => {
    throw new ApiError("invalid_json", "no");
  });
  const good = lane.run(() => "parsed");
  pass();
  await assert.rejects(bad, { code: "invalid_json" });
  assert.equal(await good, "parsed");
});

Deno.test("a lane in which too many wait refuses one more, and takes the next when there is room", async () => {
  const { lane, pass } = laneOnClock(2);
  const waiting = [lane.run(() => 1), lane.run(() => 2)];
  await assert.rejects(
    lane.run(() => 3),
    { code: "rate_limit_exceeded", retryAfterMs: 1_000 },
  );
  pass();
  assert.deepEqual(await Promise.all(waiting), [1, 2]);
  const next = lane.run(() => 4);
  pass();
  assert.equal(await next, 4);
});
