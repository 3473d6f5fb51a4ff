import assert from "node:assert/strict";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { WorkerTable } from "./workers.ts";

const MODEL = "neutral-3.7-plus";
const NOBODY: ReadonlySet<string> = new Set();

function setup(random = Math.random) {
  const clock = { ms: 1_000 };
  const table = new WorkerTable({ now: () => clock.ms, random });
  const beat = (id: string, change: {
    slots?: number;
    inFlight?: number;
    draining?: boolean;
    models?: string[];
  } = {}) =>
    table.onBeat(id, {
      version: 1,
      slots: 10,
      inFlight: 0,
      draining: false,
      models: [MODEL],
      ...change,
    });
  return { clock, table, beat };
}

Deno.test("pick() finds no worker in an empty table", () => {
  assert.equal(setup().table.pick(MODEL, NOBODY), null);
});

Deno.test("pick() passes over workers that cannot take the job", () => {
  const cases: {
    why: string;
    change: Parameters<ReturnType<typeof setup>["beat"]>[1];
  }[] = [
    { why: "full", change: { inFlight: 10 } },
    { why: "draining", change: { draining: true } },
    { why: "another model", change: { models: ["other"] } },
    { why: "no slots at all", change: { slots: 0 } },
  ];
  for (const { why, change } of cases) {
    const { table, beat } = setup();
    beat("a", change);
    assert.equal(table.pick(MODEL, NOBODY), null, why);
    beat("b");
    assert.equal(table.pick(MODEL, NOBODY), "b", why);
  }
});

Deno.test("pick() passes over workers already tried", () => {
  const { table, beat } = setup();
  beat("a");
  beat("b");
  assert.equal(table.pick(MODEL, new Set(["a"])), "b");
  assert.equal(table.pick(MODEL, new Set(["a", "b"])), null);
});

Deno.test("pick() takes the emptier of two", () => {
  const { table, beat } = setup();
  beat("busy", { inFlight: 9 });
  beat("idle", { inFlight: 1 });
  for (let i = 0; i < 20; i += 1) {
    assert.equal(table.pick(MODEL, NOBODY), "idle");
  }
});

Deno.test("pick() counts jobs sent since the last beat", () => {
  const { table, beat } = setup();
  beat("a", { slots: 2 });
  table.onSent("a");
  table.onSent("a");
  assert.equal(table.pick(MODEL, NOBODY), null);
  table.onEnded("a");
  assert.equal(table.pick(MODEL, NOBODY), "a");
});

Deno.test("a burst between two beats spreads over all workers", () => {
  const { table, beat } = setup();
  for (let i = 0; i < 8; i += 1) beat(`w${i}`, { slots: 64 });
  const sent = new Map<string, number>();
  for (let i = 0; i < 256; i += 1) {
    const id = table.pick(MODEL, NOBODY);
    assert.ok(id);
    table.onSent(id);
    sent.set(id, (sent.get(id) ?? 0) + 1);
  }
  assert.equal(sent.size, 8);
  for (const [id, count] of sent) {
    assert.ok(count > 24 && count < 40, `${id} got ${count} of 256`);
  }
});

Deno.test("pick() skips a worker that said it is full, until its beat or the time it named", () => {
  const { clock, table, beat } = setup();
  beat("a");
  table.pause("a", 200);
  assert.equal(table.pick(MODEL, NOBODY), null);
  clock.ms += 199;
  assert.equal(table.pick(MODEL, NOBODY), null);
  clock.ms += 1;
  assert.equal(table.pick(MODEL, NOBODY), "a");
  table.pause("a", 10_000);
  beat("a");
  assert.equal(table.pick(MODEL, NOBODY), "a");
});

Deno.test("a silent worker is probed, then skipped, then lost", () => {
  const { clock, table, beat } = setup();
  const { workerProbeMs, workerSkipMs, workerLostMs } = DISPATCH_LIMITS;
  beat("a");
  const startedAtMs = clock.ms;
  clock.ms = startedAtMs + workerProbeMs - 1;
  assert.deepEqual(table.sweep(), { probe: [], lost: [] });
  clock.ms += 1;
  assert.deepEqual(table.sweep(), { probe: ["a"], lost: [] });
  assert.deepEqual(table.sweep(), { probe: [], lost: [] });
  clock.ms = startedAtMs + workerSkipMs - 1;
  assert.equal(table.pick(MODEL, NOBODY), "a");
  clock.ms += 1;
  assert.equal(table.pick(MODEL, NOBODY), null);
  assert.equal(table.knows(MODEL), true);
  clock.ms = startedAtMs + workerLostMs;
  assert.deepEqual(table.sweep(), { probe: [], lost: ["a"] });
  assert.deepEqual(table.sweep(), { probe: [], lost: [] });
  assert.equal(table.knows(MODEL), false);
});

Deno.test("onBusRestored() does not hold our own deafness against the workers", () => {
  const { clock, table, beat } = setup();
  beat("a");
  clock.ms += 60_000;
  table.onBusRestored();
  assert.deepEqual(table.sweep(), { probe: [], lost: [] });
  assert.equal(table.pick(MODEL, NOBODY), "a");
});

Deno.test("knows() counts full workers but not those that leave", () => {
  const { table, beat } = setup();
  beat("a", { inFlight: 10 });
  assert.equal(table.knows(MODEL), true);
  beat("a", { draining: true });
  assert.equal(table.knows(MODEL), false);
});
