/** Jobs that come together: which start in the turn in which they came. */
import assert from "node:assert/strict";
import { DISPATCH_LIMITS } from "../../limits.ts";
import { JobStarts } from "./job_starts.ts";

/** Starts jobs that take some ms each, and notes what happens to them. */
class Stage {
  readonly events: string[] = [];
  readonly #turns: (() => void)[] = [];
  #nowMs = 0;
  readonly #starts = new JobStarts({
    now: () => this.#nowMs,
    schedule: (run) => void this.#turns.push(run),
  });

  /** A job comes, and takes `tookMs` to start. */
  add(name: string, tookMs: number): void {
    this.#starts.start({
      accept: () => void this.events.push(`accepts ${name}`),
      start: ({ acceptance }) => {
        this.#nowMs += tookMs;
        this.events.push(`starts ${name} ${acceptance}`);
      },
    }, "by the next tick");
  }

  /** The turn of the event loop ends. Returns whether another one follows. */
  endTurn(): boolean {
    for (const run of this.#turns.splice(0)) run();
    return this.#turns.length > 0;
  }
}

Deno.test("jobs that start quickly start at once, and are accepted with their first frame", () => {
  const stage = new Stage();
  for (const name of ["a", "b", "c"]) stage.add(name, 1);
  const all = ["a", "b", "c"].map((name) => `starts ${name} by the next tick`);
  assert.deepEqual(stage.events, all);
  assert.equal(stage.endTurn(), false);
  assert.deepEqual(stage.events, all);
});

Deno.test("what does not fit into a turn is accepted in it, and starts later, in its order", () => {
  const stage = new Stage();
  const slowMs = DISPATCH_LIMITS.startsMs;
  for (const name of ["a", "b", "c"]) stage.add(name, slowMs);
  assert.deepEqual(stage.events.splice(0), [
    "starts a by the next tick",
    "accepts b",
    "accepts c",
  ]);
  assert.equal(stage.endTurn(), true);
  assert.deepEqual(stage.events.splice(0), ["starts b at once"]);
  // One that comes now does not overtake.
  stage.add("d", 1);
  assert.deepEqual(stage.events.splice(0), ["accepts d"]);
  assert.equal(stage.endTurn(), true);
  assert.deepEqual(stage.events.splice(0), ["starts c at once"]);
  assert.equal(stage.endTurn(), true);
  assert.deepEqual(stage.events.splice(0), ["starts d at once"]);
  assert.equal(stage.endTurn(), false);
  stage.add("e", 1);
  assert.deepEqual(stage.events, ["starts e by the next tick"]);
});
