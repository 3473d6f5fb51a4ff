/** Which worker is picked, by what their beats say. */
import assert from "node:assert/strict";
import type { WorkerBeat } from "@gateway/shared/bus/job";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { WorkerTable } from "./workers.ts";

const MODEL = "neutral-3.7-plus";
const WANTED = { model: MODEL, family: "chat" } as const;

type Change = Partial<WorkerBeat>;

function setup() {
  const clock = { ms: 1_000 };
  const table = new WorkerTable({ now: () => clock.ms, random: Math.random });
  const beat = (id: string, change: Change = {}) =>
    table.onBeat(id, {
      version: 2,
      family: "chat",
      slots: 10,
      inFlight: 0,
      draining: false,
      models: [MODEL],
      ...change,
    });
  const pick = (tried: readonly string[] = []) => table.pick(WANTED, tried);
  return { clock, table, beat, pick };
}

Deno.test("pick() skips workers that cannot accept the job; hasWorkerFor() counts those that are busy", () => {
  const cases: [change: Change, isBusy: boolean][] = [
    [{ inFlight: 10 }, true],
    [{ slots: 0 }, true],
    [{ draining: true }, false],
    [{ models: ["other"] }, false],
  ];
  for (const [change, isBusy] of cases) {
    const { table, beat, pick } = setup();
    assert.equal(pick(), null);
    beat("a", change);
    assert.equal(pick(), null, JSON.stringify(change));
    assert.equal(table.hasWorkerFor(WANTED), isBusy);
    beat("b");
    assert.equal(pick(), "b");
    assert.equal(pick(["b"]), null, "tried already");
  }
});

Deno.test("mayRun() is false only if workers of the family are known, and none has the model", () => {
  const { table, beat } = setup();
  assert.equal(table.mayRun(WANTED), true, "nothing is known");
  beat("media", { family: "media", models: ["image"] });
  assert.equal(table.mayRun(WANTED), true);
  beat("old", { models: ["old"] });
  assert.equal(table.mayRun(WANTED), false);
  beat("new", { inFlight: 10 });
  assert.equal(table.mayRun(WANTED), true, "busy");
  beat("new", { draining: true });
  assert.equal(table.mayRun(WANTED), false);
  beat("old", { models: ["old"], listed: { a: [MODEL] } });
  assert.equal(table.mayRun(WANTED), true);
});

Deno.test("a worker whose list has the model as another kind gets none of its requests", () => {
  const { table, beat, pick } = setup();
  beat("speaker", { family: "media" });
  assert.equal(pick(), null);
  assert.equal(table.hasWorkerFor(WANTED), false);
  assert.equal(
    table.pick({ ...WANTED, family: "media" }, []),
    "speaker",
  );
  beat("talker");
  assert.equal(pick(), "talker");
});

Deno.test("pick() prefers the less busy of two, and counts jobs sent since the last beat", () => {
  const { table, beat, pick } = setup();
  beat("busy", { inFlight: 9 });
  beat("idle", { inFlight: 1 });
  for (let i = 0; i < 20; i += 1) assert.equal(pick(), "idle");
  for (let i = 0; i < 9; i += 1) table.onSent("idle");
  assert.equal(pick(), "busy");
  table.onSent("busy");
  assert.equal(pick(), null);
  table.onEnded("idle");
  assert.equal(pick(), "idle");
});

Deno.test("a burst between two beats spreads over all workers", () => {
  const { table, beat, pick } = setup();
  for (let i = 0; i < 8; i += 1) beat(`w${i}`, { slots: 64 });
  const jobs = new Map<string, number>();
  for (let i = 0; i < 256; i += 1) {
    const id = pick() ?? assert.fail();
    table.onSent(id);
    jobs.set(id, (jobs.get(id) ?? 0) + 1);
  }
  assert.equal(jobs.size, 8);
  for (const [id, count] of jobs) {
    assert.ok(count > 24 && count < 40, `${id} got ${count} of 256`);
  }
});

Deno.test("pick() skips a worker that is silent, until the silence starts anew after an outage of the bus", () => {
  const { clock, table, beat, pick } = setup();
  beat("a");
  clock.ms += DISPATCH_LIMITS.workerSkipMs - 1;
  assert.equal(pick(), "a");
  clock.ms += 1;
  assert.equal(pick(), null);
  assert.equal(table.hasWorkerFor(WANTED), true);
  table.onBusRestored();
  assert.equal(pick(), "a");
});
