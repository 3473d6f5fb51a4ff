// Promise: large bodies that arrive together leave the event loop to others in between.
import assert from "node:assert/strict";
import {
  BODY_TURNS,
  type PacedSource,
  Turns,
  type TurnTimers,
} from "./turns.ts";

const { bytesMax, sourcesMax } = BODY_TURNS;

/** Turns that go on when the test says so. */
function setup() {
  const calls: { afterTurn?: () => void; afterRest?: () => void } = {};
  let restCount = 0;
  const timers: TurnTimers = {
    afterTurn(run) {
      calls.afterTurn = run;
    },
    afterRest(run) {
      restCount += 1;
      calls.afterRest = run;
      return () => delete calls.afterRest;
    },
  };
  return {
    turns: new Turns(timers),
    /** How many rests have begun; all but the last were cancelled or are over. */
    restCount: () => restCount,
    endTurn: () => take(calls, "afterTurn")(),
    endRest: () => take(calls, "afterRest")(),
    isResting: () => calls.afterRest !== undefined,
  };
}

function take<Name extends string>(
  calls: { [name in Name]?: () => void },
  name: Name,
): () => void {
  const call = calls[name];
  assert.ok(call, name);
  delete calls[name];
  return call;
}

/** A source that knows whether it is paused. */
function startSource() {
  const source = {
    isPaused: false,
    pause(): void {
      source.isPaused = true;
    },
    resume(): void {
      source.isPaused = false;
    },
  };
  return source satisfies PacedSource;
}

for (
  const { what, bytes, isPaused } of [
    { what: "a byte less than", bytes: bytesMax - 1, isPaused: false },
    { what: "exactly", bytes: bytesMax, isPaused: true },
    { what: "a byte more than", bytes: bytesMax + 1, isPaused: true },
  ]
) {
  const does = isPaused ? "waits for the next turn" : "goes on";
  Deno.test(`Turns: a source that took ${what} a turn's bytes ${does}`, () => {
    const { turns, endRest } = setup();
    const source = startSource();
    turns.took(source, bytes);
    assert.equal(source.isPaused, isPaused);
    endRest();
    assert.equal(source.isPaused, false);
  });
}

Deno.test("Turns: bytes of all sources count together, and each turn begins at none", () => {
  const { turns, endRest } = setup();
  const [first, second] = [startSource(), startSource()];
  turns.took(first, bytesMax - 1);
  turns.took(second, 1);
  assert.deepEqual([first.isPaused, second.isPaused], [false, true]);
  endRest();
  turns.took(first, bytesMax - 1);
  assert.deepEqual([first.isPaused, second.isPaused], [false, false]);
});

Deno.test("Turns: the rest begins after the last source of a turn", () => {
  const { turns, restCount } = setup();
  turns.took(startSource(), 1);
  turns.took(startSource(), 1);
  assert.equal(restCount(), 1);
  turns.took(startSource(), bytesMax);
  turns.took(startSource(), 1);
  assert.equal(restCount(), 3);
});

Deno.test("Turns: only some of many sources go on in one turn, in their order", () => {
  const { turns, endTurn, endRest } = setup();
  const sources = Array.from({ length: 2 * sourcesMax + 1 }, startSource);
  for (const source of sources) turns.took(source, bytesMax);
  const going = () => sources.filter(({ isPaused }) => !isPaused);
  for (const count of [sourcesMax, 2 * sourcesMax, sources.length]) {
    endRest();
    assert.deepEqual(going(), sources.slice(0, count));
    endTurn();
  }
});

Deno.test("Turns: each computation has a turn alone, in the order of the calls", async () => {
  const { turns, endTurn, endRest, isResting } = setup();
  const seen: string[] = [];
  const source = startSource();
  const compute = (name: string) =>
    turns.next().then(() => void seen.push(name));
  const all = [compute("first"), compute("second")];
  turns.took(source, bytesMax);
  all.push(compute("third"));
  await all[0];
  assert.deepEqual(seen, ["first"]);
  endTurn();
  assert.ok(isResting());
  endRest();
  await all[1];
  assert.deepEqual(seen, ["first", "second"]);
  assert.ok(source.isPaused);
  endTurn();
  endRest();
  assert.equal(source.isPaused, false);
  assert.deepEqual(seen, ["first", "second"]);
  endTurn();
  endRest();
  await all[2];
});

Deno.test("Turns: once nothing waits, the next computation does not wait either", async () => {
  const { turns, endTurn, endRest, isResting } = setup();
  await turns.next();
  endTurn();
  endRest();
  assert.ok(!isResting());
  await turns.next();
});

Deno.test("Turns: no timer is left once they are closed", () => {
  const { turns, endTurn, isResting } = setup();
  turns.took(startSource(), bytesMax);
  turns.close();
  assert.ok(!isResting());
  void turns.next();
  turns.took(startSource(), 1);
  assert.ok(!isResting());
  assert.throws(endTurn);
});
