/**
 * Guarantee: a worker that is gone is found in time, and none is taken for gone
 * while the bus is the one that fails.
 */
import assert from "node:assert/strict";
import { BEAT_VERSION, encodeWorkerBeat } from "@gateway/shared/bus/job";
import { BusTimeoutError, NoRespondersError } from "@gateway/shared/bus/link";
import {
  chatControlSubject,
  workerBeatSubject,
} from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { WorkerLiveness, WorkerTable } from "./workers.ts";

const TICK_MS = 25;
/** Silent and missing workers are looked for this often. */
const SWEEP_MS = 100;

function setup() {
  const clock = { ms: 0 };
  const now = () => clock.ms;
  const workers = new WorkerTable({ now, random: () => 0 });
  const lost: string[] = [];
  const probed: string[] = [];
  const bus = {
    isConnected: true,
    flowingSinceMs: 0,
    listens: false,
    answers: false,
  };
  const liveness = new WorkerLiveness({
    bus: {
      get isConnected() {
        return bus.isConnected;
      },
      get flowingSinceMs() {
        return bus.flowingSinceMs;
      },
      get heardAtMs() {
        return clock.ms;
      },
      request: (subject) => {
        probed.push(subject);
        if (bus.answers) {
          return Promise.resolve({ subject, data: new Uint8Array() });
        }
        return Promise.reject(
          bus.listens
            ? new BusTimeoutError("no answer")
            : new NoRespondersError(subject),
        );
      },
    },
    workers,
    now,
    onLost: (workerId) => void lost.push(workerId),
    onRoom: () => {},
  });
  const beat = () =>
    liveness.onBeatMessage(
      workerBeatSubject("w1"),
      encodeWorkerBeat({
        version: BEAT_VERSION,
        slots: 1,
        inFlight: 0,
        draining: false,
        models: ["m"],
      }),
    );
  const pass = async (ms: number) => {
    const untilMs = clock.ms + ms;
    while (clock.ms < untilMs) {
      clock.ms += TICK_MS;
      liveness.tick();
      await Promise.resolve();
      await Promise.resolve();
    }
  };
  beat();
  return { clock, bus, workers, liveness, lost, probed, beat, pass };
}

Deno.test("a silent worker is asked, and lost when nobody listens for long enough", async () => {
  const t = setup();
  await t.pass(DISPATCH_LIMITS.workerProbeMs - TICK_MS);
  assert.deepEqual(t.probed, []);
  await t.pass(TICK_MS);
  assert.deepEqual(t.probed, [chatControlSubject("w1")]);
  // It gets no jobs from now on, and those it has are not given up yet.
  assert.equal(t.workers.knows("m"), false);
  assert.equal(t.liveness.isAnyMissing, true);
  await t.pass(DISPATCH_LIMITS.workerMissingMs - TICK_MS);
  assert.deepEqual(t.lost, []);
  await t.pass(SWEEP_MS);
  assert.deepEqual(t.lost, ["w1"]);
  assert.equal(t.liveness.isAnyMissing, false);
});

Deno.test("a worker that is back in a moment is not lost", async () => {
  for (const sign of ["beat", "answer"] as const) {
    const t = setup();
    t.liveness.probe("w1");
    await t.pass(TICK_MS);
    assert.equal(t.liveness.isAnyMissing, true);
    if (sign === "beat") t.beat();
    t.bus.answers = true;
    await t.pass(DISPATCH_LIMITS.workerMissingMs);
    assert.equal(t.liveness.isAnyMissing, false);
    t.bus.answers = false;
    // Missing once more, it has as long as before.
    t.liveness.probe("w1");
    await t.pass(DISPATCH_LIMITS.workerMissingMs - SWEEP_MS);
    assert.deepEqual(t.lost, []);
    await t.pass(2 * SWEEP_MS);
    assert.deepEqual(t.lost, ["w1"]);
  }
});

Deno.test("a silent worker that is there but does not answer is lost by its silence", async () => {
  const t = setup();
  t.bus.listens = true;
  await t.pass(DISPATCH_LIMITS.workerLostMs - TICK_MS);
  assert.ok(t.probed.length > 0);
  assert.deepEqual(t.lost, []);
  await t.pass(150);
  assert.deepEqual(t.lost, ["w1"]);
});

Deno.test("a worker may come back to the bus later than the edge", async () => {
  const t = setup();
  t.clock.ms += 3 * DISPATCH_LIMITS.workerLostMs;
  t.bus.flowingSinceMs = t.clock.ms;
  t.liveness.onBusRestored();
  assert.equal(t.liveness.isRejoining, true);
  t.liveness.probe("w1");
  await t.pass(DISPATCH_LIMITS.workerLostMs - 100);
  assert.deepEqual(t.probed, []);
  assert.deepEqual(t.lost, []);
  t.beat();
  await t.pass(100);
  assert.equal(t.liveness.isRejoining, false);
  await t.pass(
    DISPATCH_LIMITS.workerProbeMs + DISPATCH_LIMITS.workerMissingMs + 100,
  );
  assert.deepEqual(t.lost, ["w1"]);
});

Deno.test("beats that cannot be read are no beats", () => {
  const t = setup();
  for (const text of ["", "{", '{"version":99}']) {
    t.liveness.onBeatMessage(
      workerBeatSubject("w2"),
      new TextEncoder().encode(text),
    );
  }
  assert.equal(t.workers.totals().workers, 1);
});
