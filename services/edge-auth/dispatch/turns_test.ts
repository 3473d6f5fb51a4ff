/** What an edge tells of requests that wait, and how it uses slots kept for it. */
import assert from "node:assert/strict";
import { Stage } from "./dispatcher_fixture.ts";

const EARLY_MS = 250;

Deno.test("a slot that is passed on is not used again, one that is kept is used at once", async () => {
  const t = await Stage.running("w1");
  t.ask(2);
  t.turn("passed");
  t.end(1);
  assert.ok(!(await t.take()).join().includes("offer"));
  t.turn("kept");
  assert.deepEqual(await t.take(), ["offer w1 2.1"]);
  // Nothing waits any more.
  t.turn("kept");
  assert.deepEqual(await t.take(), ["return w1 e1"]);
  t.ask(3);
  assert.deepEqual(await t.take(), [], "the slot was another's");
});

Deno.test("a slot is kept of a worker that has just rejected a job, and not of an unknown one", async () => {
  const t = new Stage();
  t.beat("w1");
  t.ask();
  t.reject("full", "w1", { retryAfterMs: 100 });
  assert.deepEqual(await t.take(), ["offer w1 1.1"]);
  t.turn("kept", "w9");
  t.turn("passed", "w9");
  assert.deepEqual(await t.take(), []);
  t.turn("kept");
  assert.deepEqual(await t.take(), ["offer w1 1.2"]);
  t.dispatcher.onTurnMessage(new Uint8Array([1]));
  assert.deepEqual(await t.take(), []);
});

Deno.test("of a model at limits, the place is used by the edge for which it is kept, and by no other", async () => {
  for (const slot of ["kept", "passed"] as const) {
    const t = new Stage();
    t.beat("w1", 2);
    t.ask(1);
    t.accept("w1", { request: 1 });
    t.ask(2);
    t.reject("saturated", "w1", { request: 2, retryAfterMs: 1_000 });
    await t.take();
    t.turn(slot);
    if (slot === "passed") t.end(1);
    const offers = (await t.take()).filter((event) => /^offer/.test(event));
    assert.deepEqual(offers, slot === "kept" ? ["offer w1 2.2"] : []);
  }
});

Deno.test("an edge tells soon that requests have begun to wait, and no more often than its beats", async () => {
  const t = new Stage();
  t.dispatcher.beats.beat();
  t.beat("w1", 0);
  t.ask(1);
  await t.tickTo(EARLY_MS - 1);
  assert.deepEqual(t.beats, [""]);
  await t.tickTo(EARLY_MS + 50);
  assert.deepEqual(t.beats, ["", "m 1"]);
  t.ask(2);
  await t.tickTo(EARLY_MS + 500, () => t.beat("w1", 0));
  assert.deepEqual(t.beats, ["", "m 1"]);
  t.dispatcher.beats.beat();
  assert.deepEqual(t.beats, ["", "m 1", "m 2"]);
  t.dispatcher.beats.tick();
  assert.equal(t.beats.length, 3);
});
