// Promise: large bodies that arrive together leave the event loop to others in between.
import assert from "node:assert/strict";
import {
  BODY_TURNS,
  type PacedSource,
  Turns,
  type TurnTimers,
} from "./turns.ts";

const { bytesMax, sourcesMax, postponementsMax } = BODY_TURNS;

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
    /** How many rests have begun; all but the last were put off or are over. */
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

/** Computations that write down their names when they may begin. */
function computations(turns: Turns) {
  const begun: string[] = [];
  return {
    begun,
    start: (name: string, bytes: number) =>
      turns.next(bytes).then(() => void begun.push(name)),
    /** All whose time has come have begun. */
    settle: () => new Promise<void>((resolve) => queueMicrotask(resolve)),
  };
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
  for (const bytes of [1, 1, bytesMax, 1]) turns.took(startSource(), bytes);
  assert.equal(restCount(), 4);
});

Deno.test("Turns: no number of sources puts a rest off for ever", () => {
  const { turns, restCount, endRest } = setup();
  const first = startSource();
  turns.took(first, bytesMax);
  for (let count = 0; count < 2 * postponementsMax; count++) {
    turns.took(startSource(), 1);
  }
  assert.equal(restCount(), 1 + postponementsMax);
  endRest();
  assert.equal(first.isPaused, false);
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

Deno.test("Turns: computations begin at once until a turn is full, then wait", async () => {
  const { turns, endTurn, endRest } = setup();
  const { start, begun, settle } = computations(turns);
  const all = [
    start("first", bytesMax - 1),
    start("second", 1),
    start("third", bytesMax),
    start("fourth", 1),
  ];
  await settle();
  assert.deepEqual(begun, ["first", "second"]);
  endTurn();
  endRest();
  await settle();
  assert.deepEqual(begun, ["first", "second", "third"]);
  endTurn();
  endRest();
  await Promise.all(all);
});

Deno.test("Turns: a rest begins after the computations of its turn, not before", async () => {
  const { turns, endTurn, isResting } = setup();
  turns.took(startSource(), 1);
  assert.ok(isResting());
  await turns.next(1);
  assert.ok(!isResting(), "it would be over when the computation ends");
  endTurn();
  assert.ok(isResting());
});

Deno.test("Turns: sources and computations that wait have their turns in their order", async () => {
  const { turns, endTurn, endRest } = setup();
  const { start, begun, settle } = computations(turns);
  const source = startSource();
  const first = start("first", bytesMax);
  const second = start("second", bytesMax);
  turns.took(source, 1);
  const third = start("third", 1);
  await first;
  endTurn();
  endRest();
  await second;
  assert.ok(source.isPaused);
  endTurn();
  endRest();
  await settle();
  assert.deepEqual(begun, ["first", "second", "third"]);
  assert.equal(source.isPaused, false);
  await third;
});

Deno.test("Turns: no timer is left once they are closed", () => {
  const { turns, isResting } = setup();
  turns.took(startSource(), bytesMax);
  turns.close();
  assert.ok(!isResting());
  turns.took(startSource(), 1);
  assert.ok(!isResting());
});
