import assert from "node:assert/strict";
import { TurnKeeper } from "./turns.ts";

/** A keeper whose clock and sleeps the test moves. */
function keeperOf() {
  let nowMs = 0;
  const sleeps: (() => void)[] = [];
  const turns = new TurnKeeper({
    now: () => nowMs,
    sleep: (ms) => {
      assert.equal(ms, 0);
      return new Promise((resolve) => sleeps.push(resolve));
    },
  });
  const work = (ms: number) => {
    const startedAt = turns.now();
    nowMs += ms;
    turns.worked(startedAt);
  };
  return { turns, sleeps, work };
}

Deno.test("a turn is due after 2 ms of work, of all answers together", () => {
  const { turns, work } = keeperOf();
  assert.equal(turns.isDue, false);
  work(1.5);
  assert.equal(turns.isDue, false);
  work(0.6);
  assert.equal(turns.isDue, true);
});

Deno.test("while one waits for its turn the others must too, for the same one", async () => {
  const { turns, sleeps, work } = keeperOf();
  work(3);
  const first = turns.turn();
  const second = turns.turn();
  assert.equal(sleeps.length, 1);
  assert.equal(turns.isDue, true);
  sleeps[0]?.();
  await Promise.all([first, second]);
  assert.equal(turns.isDue, false);
});
