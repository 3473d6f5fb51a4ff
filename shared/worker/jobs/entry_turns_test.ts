/** The pauses between entries of kept answers end together. */
import assert from "node:assert/strict";
import { KEPT_LIMITS } from "../../kept/limits.ts";
import { EntryTurns } from "./entry_turns.ts";

function start() {
  const timers: { run: () => void; waitMs: number }[] = [];
  const turns = new EntryTurns((run, waitMs) => timers.push({ run, waitMs }));
  return { timers, turns };
}

Deno.test("the pauses of all answers end at once, with one timer", () => {
  const { timers, turns } = start();
  const ended: string[] = [];
  turns.after(() => {
    ended.push("a");
    turns.after(() => ended.push("a again"), 2);
  }, 2);
  turns.after(() => ended.push("b"), 2);
  assert.equal(timers.length, 1);
  timers.shift()?.run();
  assert.deepEqual(ended, ["a", "b"]);
  assert.equal(timers.length, 1);
  timers.shift()?.run();
  assert.deepEqual(ended, ["a", "b", "a again"]);
  assert.equal(timers.length, 0, "a timer runs for nobody");
});

const { entryMs, entryMsMax, entryMsPerJob } = KEPT_LIMITS;
const PAUSES: { jobs: number; waitMs: number }[] = [
  { jobs: 1, waitMs: entryMs },
  { jobs: entryMs / entryMsPerJob, waitMs: entryMs },
  { jobs: entryMs / entryMsPerJob + 1, waitMs: entryMs + entryMsPerJob },
  { jobs: entryMsMax / entryMsPerJob, waitMs: entryMsMax },
  { jobs: 10_000, waitMs: entryMsMax },
];

Deno.test("a pause is longer if the worker runs many jobs, up to a bound", () => {
  for (const { jobs, waitMs } of PAUSES) {
    const { timers, turns } = start();
    turns.after(() => {}, jobs);
    assert.equal(timers[0]?.waitMs, waitMs, `${jobs} jobs`);
  }
});
