/**
 * Guarantee: a lost worker is noticed in time, but not while the bus itself fails; what
 * it ran is repeated by another one, and by no third.
 */
import assert from "node:assert/strict";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { Stage } from "./dispatcher_fixture.ts";

const { acceptMs, queueWaitMs, workerLostMs, workerMissingMs, workerProbeMs } =
  DISPATCH_LIMITS;
/** Deadlines are checked at each tick. */
const TICKS_MS = 150;

Deno.test("a run whose workers fall silent is not offered to a third", async () => {
  const workers = ["w1", "w2", "w3"];
  const ways: Record<string, (t: Stage, worker: string) => Promise<void>> = {
    "no answer to the offer": (t) => t.tickTo(t.clock.ms + acceptMs),
    "gave up": (t, worker) => {
      t.accept(worker);
      t.err(0, "of the backend");
      return Promise.resolve();
    },
    "lost while running": (t, worker) => {
      t.accept(worker);
      t.bus.listens.delete(worker);
      const lostMs = workerProbeMs + workerMissingMs + TICKS_MS;
      return t.tickTo(t.clock.ms + lostMs, () => {
        for (const other of t.bus.listens) t.beat(other);
      });
    },
  };
  for (const [firstWay, first] of Object.entries(ways)) {
    for (const [secondWay, second] of Object.entries(ways)) {
      const t = new Stage();
      for (const worker of workers) t.bus.listens.add(worker);
      for (const worker of workers) t.beat(worker);
      t.ask();
      await first(t, "w1");
      await second(t, "w2");
      const name = `${firstWay}, then ${secondWay}`;
      assert.equal(t.outcomes.get(1)?.offers, 2, name);
      assert.equal(t.outcomes.get(1)?.kind, "failed", name);
    }
  }
});

Deno.test("a run that no worker has accepted before all of them were lost is unserved, not lost", async () => {
  for (const workers of [["w1"], ["w1", "w2"]]) {
    const t = new Stage();
    for (const worker of workers) t.beat(worker);
    t.ask();
    await t.tickTo(2 * workerLostMs + TICKS_MS);
    const { offers, error } = t.outcomes.get(1) ?? {};
    assert.deepEqual([offers, error?.status], [2, 503]);
  }
});

Deno.test("an offer that an outage of the bus leaves unanswered is not held against its worker", async () => {
  const t = new Stage();
  t.beat("w1");
  t.ask();
  t.bus.silentSinceMs = -1;
  await t.tickTo(workerProbeMs - 50);
  assert.deepEqual(await t.take(), ["offer w1 1.1"]);
  for (let round = 2; round <= 4; round += 1) {
    t.bus.silentSinceMs = null;
    t.bus.flowingSinceMs = t.clock.ms;
    await t.tickTo(t.clock.ms + TICKS_MS);
    assert.match((await t.take()).join(), /cancel w. 1\.. not_accepted/);
    assert.equal(t.dispatcher.queue.length, 1);
    t.beat("w1");
    assert.deepEqual(await t.take(), [`offer w1 1.${round}`]);
    await t.tickTo(t.clock.ms + acceptMs - 50);
  }
  assert.equal(t.outcomes.size, 0);
});

Deno.test("a job without a subscriber fails at once; one whose worker is missing goes to the next, or waits", async () => {
  const t = new Stage();
  t.ask();
  t.noResponders();
  assert.deepEqual(await t.take(), [
    "offer anybody 1.1",
    "error no_worker 1",
    "over failed 1",
  ]);
  t.beat("w1");
  t.beat("w2");
  t.ask(2);
  t.noResponders({ request: 2 });
  t.noResponders({ request: 2 });
  const events = await t.take();
  assert.deepEqual(events.filter((event) => event !== "probe w1"), [
    "offer w1 2.1",
    "offer w2 2.2",
    "cancel w1 2.1 not_accepted",
    "cancel w2 2.2 not_accepted",
  ]);
  assert.equal(t.dispatcher.queue.length, 1);
  t.beat("w2");
  assert.deepEqual(await t.take(), ["offer w2 2.3"]);
});

Deno.test("a fault of the worker is repeated elsewhere, one of the backend is not", async () => {
  const ours = await Stage.running("w1", "w2");
  ours.err(1, "of the worker");
  assert.ok((await ours.take()).includes("offer w2 1.2"));
  const theirs = await Stage.running("w1", "w2");
  theirs.err(1, "of the backend");
  assert.deepEqual((await theirs.take()).slice(0, 2), [
    "error upstream_error 1",
    "over failed 1",
  ]);
});

Deno.test("a silent worker is probed, and lost if it has no subscriber for long enough", async () => {
  const t = await Stage.running("w1");
  await t.tickTo(workerProbeMs - 1);
  assert.deepEqual(await t.take(), []);
  await t.tickTo(workerProbeMs);
  assert.deepEqual(await t.take(), ["probe w1"]);
  // It gets no jobs from now on, and those it has are not given up yet.
  assert.equal(t.dispatcher.workers.totals().workers, 0);
  await t.tickTo(workerProbeMs + workerMissingMs - 1);
  assert.ok(!(await t.take()).includes("restart 1"));
  await t.tickTo(workerProbeMs + workerMissingMs + TICKS_MS);
  assert.ok((await t.take()).includes("restart 1"));
});

Deno.test("a worker that is back in a moment is not lost; one that is subscribed but silent is", async () => {
  const back = await Stage.running("w1");
  back.dispatcher.workers.onMissing("w1");
  await back.tickTo(workerMissingMs / 2);
  back.bus.answers.add("w1");
  await back.tickTo(workerProbeMs + workerMissingMs + TICKS_MS);
  assert.equal(back.dispatcher.workers.totals().workers, 1);
  back.beat("w1");
  assert.ok(!(await back.take()).includes("restart 1"));

  const frozen = await Stage.running("w1");
  frozen.bus.listens.add("w1");
  frozen.beat("w2", 1, "draining"); // It has stopped, as it was told to.
  await frozen.tickTo(workerLostMs - 1);
  assert.ok(!(await frozen.take()).includes("restart 1"));
  await frozen.tickTo(workerLostMs + TICKS_MS);
  assert.ok((await frozen.take()).includes("restart 1"));
  const lost = frozen.log.lines.map(({ fields }) => fields.workerId);
  assert.deepEqual(lost, ["w1", "w1"]);
});

Deno.test("no worker is lost during an outage of the bus, and a worker may reconnect later than the edge", async () => {
  const t = await Stage.running("w1");
  await t.tickTo(100);
  t.bus.flowingSinceMs = null;
  await t.tickTo(2 * workerLostMs);
  assert.ok(!(await t.take()).includes("restart 1"));
  t.bus.flowingSinceMs = t.clock.ms;
  const restoredMs = t.clock.ms;
  await t.tickTo(restoredMs + workerLostMs - 50);
  assert.ok(!(await t.take()).includes("restart 1"));
  await t.tickTo(restoredMs + workerLostMs + TICKS_MS);
  assert.ok((await t.take()).includes("restart 1"), "lost, and repeated");
});

Deno.test("a request that waits when its last worker is lost waits for the next one, as long as it may", async () => {
  for (const isBack of [true, false]) {
    const t = await Stage.running("w1");
    t.ask(2);
    await t.tickTo(workerProbeMs + workerMissingMs + TICKS_MS);
    const events = await t.take();
    const offered = events.filter((event) => /^offer anybody 2/.test(event));
    assert.deepEqual(offered, ["offer anybody 2.1"], events.join());
    t.noResponders({ request: 2 });
    assert.equal(t.dispatcher.queue.length > 0, true);
    await t.take();
    if (isBack) t.beat("w2", 2);
    else await t.tickTo(queueWaitMs + TICKS_MS);
    const later = await t.take();
    const expected = isBack ? "offer w2 2.2" : "error no_worker 2";
    assert.ok(later.includes(expected), later.join());
    assert.ok(!later.includes("offer anybody 2.2"), "nobody was there before");
  }
});
