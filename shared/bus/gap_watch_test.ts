import assert from "node:assert/strict";
import { STREAM_LIMITS } from "../limits.ts";
import { GapWatch } from "./gap_watch.ts";

const { nakIntervalMs, nakIntervalMaxMs } = STREAM_LIMITS;

/** The times at which a caller that tries every millisecond is let through. */
function askedAt(gap: GapWatch, fromMs: number, untilMs: number): number[] {
  const times = [];
  for (let at = fromMs; at <= untilMs; at++) if (gap.tryAsk(at)) times.push(at);
  return times;
}

Deno.test("GapWatch asks at once, then ever less often while nothing comes", () => {
  const gap = new GapWatch(STREAM_LIMITS);
  const times = askedAt(gap, 0, 5_000);
  const pauses = times.slice(1).map((at, i) => at - (times[i] ?? 0));
  assert.equal(times[0], 0);
  assert.deepEqual(pauses, [50, 100, 200, 400, 800, 1_000, 1_000, 1_000]);
  assert.equal(pauses[0], nakIntervalMs);
  assert.equal(pauses.at(-1), nakIntervalMaxMs);
});

Deno.test("GapWatch leaves a replay that arrives twice the interval", () => {
  const gap = new GapWatch(STREAM_LIMITS);
  gap.note(9);
  askedAt(gap, 0, 3_000);
  gap.advance(3_001);
  assert.equal(gap.isOpen, true);
  assert.equal(askedAt(gap, 3_001, 4_000)[0], 3_001 + 2 * nakIntervalMs);
});

Deno.test("GapWatch is quick again once the gap is closed", () => {
  const gap = new GapWatch(STREAM_LIMITS);
  gap.note(1);
  askedAt(gap, 0, 3_000);
  gap.advance(3_001);
  assert.equal(gap.isOpen, false);
  gap.note(3);
  assert.equal(askedAt(gap, 3_001, 4_000)[0], 3_001 + nakIntervalMs);
});

Deno.test("GapWatch knows a gap from any later number", () => {
  const gap = new GapWatch(STREAM_LIMITS);
  assert.equal(gap.isOpen, false);
  gap.note(0);
  assert.equal(gap.isOpen, false);
  gap.note(2);
  gap.note(1);
  assert.equal(gap.isOpen, true);
  gap.advance(0);
  gap.advance(0);
  assert.equal(gap.expected, 3);
  assert.equal(gap.isOpen, false);
});

Deno.test("hurry() forgets the pace", () => {
  const gap = new GapWatch(STREAM_LIMITS);
  askedAt(gap, 0, 3_000);
  gap.hurry();
  assert.deepEqual(askedAt(gap, 3_001, 3_001 + nakIntervalMs), [
    3_001,
    3_001 + nakIntervalMs,
  ]);
});
