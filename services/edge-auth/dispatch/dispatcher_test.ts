/**
 * Guarantee: a run ends exactly once, in time, whatever its workers do; a lost
 * offer is repeated once, and never after the client has received a byte. Requests
 * reach workers in the order of their arrival, as soon as there is a free slot.
 */
import assert from "node:assert/strict";
import { BUS_LIMITS, DISPATCH_LIMITS } from "@gateway/shared/limits";
import { BACKEND, Stage, TIMEOUT_MS, USAGE } from "./dispatcher_fixture.ts";

const { acceptMs, queueMax, queueWaitMs } = DISPATCH_LIMITS;
/** Deadlines are checked at each tick. */
const TICKS_MS = 150;

Deno.test("a run that completes", async () => {
  const t = new Stage();
  t.beat("w1");
  t.ask();
  t.data("a\n", 1, { tokens: 1 });
  t.end(2);
  assert.deepEqual(await t.take(), [
    "offer w1 1.1",
    "payload a\n 1",
    "end 1",
    "over complete 1",
    "ack w1 1.1 2",
  ]);
  assert.partialDeepStrictEqual(t.outcomes.get(1), {
    usage: USAGE,
    completionTokens: 2,
    isFinal: true,
    offers: 1,
    workerId: "w1",
    error: null,
  });
});

Deno.test("a rejected run tries two other workers, then waits for newer beats", async () => {
  for (const count of [2, 3, 4]) {
    const t = new Stage();
    const workers = ["w1", "w2", "w3", "w4"].slice(0, count);
    for (const worker of workers) t.beat(worker);
    t.ask();
    for (const worker of workers.slice(0, 3)) t.reject("full", worker);
    assert.equal((await t.take()).length, Math.min(count, 3));
    assert.equal(t.dispatcher.queue.length, 1);
    t.beat("w1");
    const again = `offer w1 1.${Math.min(count, 3) + 1}`;
    assert.deepEqual(await t.take(), [again]);
  }
});

Deno.test("a run that the queue group rejected waits instead of asking the group again", async () => {
  for (const isSilent of [true, false]) {
    const t = new Stage();
    t.ask();
    if (!isSilent) t.reject("draining", "w1");
    await t.tickTo(acceptMs + TICKS_MS);
    assert.deepEqual(await t.take(), ["offer anybody 1.1"]);
    assert.equal(t.dispatcher.queue.length, 1);
  }
});

Deno.test("a worker that does not accept in time is cancelled and skipped; its later frames are stray", async () => {
  const t = new Stage();
  t.beat("w1");
  t.beat("w2");
  t.ask();
  await t.tickTo(acceptMs - 1);
  assert.deepEqual(await t.take(), ["offer w1 1.1"]);
  await t.tickTo(acceptMs);
  assert.deepEqual(await t.take(), [
    "offer w2 1.2",
    "cancel w1 1.1 not_accepted",
  ]);
  t.noResponders({ offerNumber: 1 });
  t.accept("w1", { offerNumber: 1 });
  t.accept("w2");
  t.data("a\n", 1);
  assert.deepEqual(await t.take(), [
    "payload a\n 1",
    "cancel w1 1.1 unknown_stream",
  ]);
});

// After the first byte nothing is repeated: tests/e2e/faults/bus_test.ts.
Deno.test("a cancelled run waits for the worker's final frame, but not for long", async () => {
  for (const isFinal of [true, false]) {
    const t = new Stage();
    t.bus.listens.add("w1");
    t.beat("w1");
    const run = t.ask();
    t.data("a\n", 1, { tokens: 3 });
    run.cancel("client_gone");
    assert.deepEqual((await t.take()).slice(-2), [
      "abandoned 1",
      "cancel w1 1.1 client_gone",
    ]);
    t.data("b\n", 2, { tokens: 4 });
    await t.tickTo(999);
    assert.equal(t.outcomes.size, 0);
    if (isFinal) t.err(0, "of the backend", { tokens: 5 });
    await t.tickTo(1_000);
    assert.partialDeepStrictEqual(t.outcomes.get(1), {
      kind: "cancelled",
      completionTokens: isFinal ? 5 : 3,
      backend: isFinal ? BACKEND : undefined,
      isFinal,
    });
  }
});

Deno.test("a cancelled run that no worker accepted ends at once and costs nothing", async () => {
  const t = new Stage();
  t.beat("w1");
  t.ask().cancel("client_gone");
  t.reject("full");
  t.beat("w1", 0);
  t.ask(2).cancel("client_gone");
  assert.equal(t.outcomes.get(1)?.dispatchMs, null);
  assert.equal(t.outcomes.get(2)?.dispatchMs, null);
  assert.equal((await t.take()).at(-2), "over cancelled 2");
  // A worker whose beat has not come yet hears of it once it has.
  const unknown = new Stage();
  unknown.ask().cancel("client_gone");
  unknown.accept("w9");
  assert.equal((await unknown.take()).at(-1), "cancel w9 1.1 unknown_stream");
});

Deno.test("a client may shorten the time of its run, never lengthen it", async (t) => {
  const cases = [
    { endsByMs: Infinity, atMs: TIMEOUT_MS },
    { endsByMs: TIMEOUT_MS + 1, atMs: TIMEOUT_MS },
    { endsByMs: 2_500, atMs: 2_500 },
  ];
  for (const { endsByMs, atMs } of cases) {
    await t.step(`by ${endsByMs} ms`, async () => {
      const stage = new Stage();
      stage.beat("w1");
      stage.ask(1, { endsByMs });
      assert.equal(stage.deadlinesMs.get(1), atMs);
      await stage.take();
      stage.clock.ms = atMs - 1;
      stage.dispatcher.tick();
      assert.deepEqual(await stage.take(), []);
      stage.clock.ms = atMs;
      stage.dispatcher.tick();
      assert.equal((await stage.take())[0], "error deadline_exceeded 1");
    });
  }
});

Deno.test("a run that takes too long ends with an error for the client, and nothing follows an end", async () => {
  const t = await Stage.running("w1", "w2");
  t.clock.ms = TIMEOUT_MS;
  t.dispatcher.tick();
  assert.deepEqual(await t.take(), [
    "error deadline_exceeded 1",
    "cancel w1 1.1 deadline",
  ]);
  t.err(0, "of the backend");
  assert.equal(t.outcomes.get(1)?.kind, "failed");
  assert.equal(t.outcomes.get(1)?.backend, BACKEND);
  const run = t.ask(2);
  t.beat("w1");
  t.end(1, "w1", { request: 2 });
  await t.take();
  run.cancel("client_gone");
  run.delivered(1);
  t.noResponders({ request: 2 });
  t.end(1, "w1", { request: 2 });
  await t.tickTo(2 * TIMEOUT_MS);
  const later = await t.take();
  assert.deepEqual(later.filter((event) => event.endsWith(" 2")), []);
  assert.ok(later.includes("ack w1 2.1 1"), "or the worker would repeat it");
});

Deno.test("a waiting request is offered when the pause of a full worker ends, and is never overtaken", async () => {
  const t = new Stage();
  t.beat("w1");
  t.ask(1);
  t.clock.ms = 10;
  t.ask(2);
  t.reject("full", "w1", { retryAfterMs: 100 });
  t.ask(3);
  await t.tickTo(109);
  assert.deepEqual(await t.take(), ["offer w1 1.1"]);
  await t.tickTo(110);
  assert.deepEqual(await t.take(), ["offer w1 1.2"]);
  for (const request of [1, 2, 3]) {
    t.accept("w1", { request });
    t.end(1, "w1", { request });
    const next = request < 3 ? [`offer w1 ${request + 1}.1`] : [];
    const offers = (await t.take()).filter((event) => /^offer/.test(event));
    assert.deepEqual(offers, next);
  }
  t.beat("w1", 0);
  t.ask(4);
  // The worker has room again before anybody has looked at the queue.
  t.dispatcher.workers.onBeat("w1", {
    version: 2,
    family: "chat",
    models: ["m"],
    draining: false,
    slots: 1,
    inFlight: 0,
  });
  t.ask(5);
  assert.ok(!(await t.take()).join().includes("offer"));
  t.beat("w1");
  assert.deepEqual(await t.take(), ["offer w1 4.1"]);
});

Deno.test("a request that waits too long, or finds the queue full, fails, and hears which of these it was", async () => {
  const t = new Stage();
  t.beat("w1", 0);
  const last = queueMax + 1;
  for (let request = 1; request <= last; request += 1) t.ask(request);
  assert.deepEqual(await t.take(), [
    `error queue_full ${last}`,
    `over failed ${last}`,
  ]);
  await t.tickTo(queueWaitMs - 1, () => t.beat("w1", 0));
  assert.equal(t.outcomes.size, 1);
  await t.tickTo(queueWaitMs);
  assert.equal(t.outcomes.get(1)?.error?.code, "overloaded");
  t.ask(last + 1);
  assert.equal(t.outcomes.has(last + 1), false, "there is room again");
});

Deno.test("a notice stops the requests of its key and no others; later requests are decided by the admission", async () => {
  const t = new Stage();
  for (const request of [1, 2]) {
    t.beat(`w${request}`);
    t.ask(request);
  }
  await t.take();
  const tell = (notice: unknown) => {
    const text = typeof notice === "string" ? notice : JSON.stringify(notice);
    t.dispatcher.onKeyMessage(new TextEncoder().encode(text));
  };
  const keyId = "key_1";
  for (const other of ["", "{", "null", { keyId }, { keyId, action: "go" }]) {
    tell(other);
  }
  assert.deepEqual(await t.take(), []);
  t.clock.ms = 5;
  tell({ keyId, ownerId: "own_a", action: "stop" });
  assert.deepEqual(await t.take(), [
    "error key_revoked 1",
    "cancel w1 1.1 key_revoked",
  ]);
  assert.equal(t.dispatcher.isStoppedSince(keyId, 4), true);
  assert.equal(t.dispatcher.isStoppedSince(keyId, 6), false);
  assert.equal(t.dispatcher.isStoppedSince("key_2", 4), false);
});

Deno.test("a large request follows in pieces, and moves to another worker if they are not acknowledged", async () => {
  const t = new Stage();
  t.beat("w1");
  t.beat("w2");
  const large = "x".repeat(BUS_LIMITS.jobBytesMax);
  t.ask(1, { content: large });
  assert.deepEqual(await t.take(), ["offer w1 1.1"]);
  t.accept("w1");
  const pieces = [...await t.take(), ...await t.take()];
  assert.deepEqual(pieces.slice(0, 3), ["piece w1", "piece w1", "piece w1"]);
  assert.ok(pieces.includes("offer w2 1.2"));
  t.bus.answers.add("w2");
  t.accept("w2");
  // The request itself, and the message that ends it.
  const all = [...await t.take(), ...await t.take()];
  assert.deepEqual(all, new Array(4).fill("piece w2"));
  // When the client has left, that is no failure.
  const run = t.ask(2, { content: large });
  t.accept("w1", { request: 2 });
  await Promise.resolve();
  run.cancel("client_gone");
  assert.ok((await t.take()).includes("piece w1"));
  const events = t.log.lines.map(({ event }) => event);
  assert.deepEqual(events, ["body_upload_failed", "attempt_repeated"]);
});

Deno.test("control records for one worker are sent together, and nothing is kept for it", async () => {
  const t = new Stage();
  t.beat("w1", 3);
  t.beat("w2", 0);
  for (const request of [1, 2, 3]) {
    t.ask(request);
    t.end(1, "w1", { request });
  }
  assert.equal(t.dispatcher.bus.receiversWaiting, 1);
  await t.take();
  assert.equal(t.bus.controlMessages, 1);
  assert.equal(t.dispatcher.bus.receiversWaiting, 0);
});

Deno.test("a model that only this edge knows yet waits for a worker that has it, then gets no_worker", async () => {
  const t = new Stage();
  t.ask();
  // The queue group was asked: its workers have another list of models.
  t.reject("unknown_model", "w1");
  await t.take();
  t.beat("w1");
  assert.deepEqual(await t.take(), ["offer w1 1.2"]);
  const late = new Stage();
  late.ask();
  late.reject("unknown_model", "w1");
  await late.tickTo(queueWaitMs + TICKS_MS);
  assert.equal(late.outcomes.get(1)?.error?.code, "no_worker");
});

Deno.test("a worker that lacks a model is not paused for the others", async () => {
  const t = new Stage();
  t.beat("w1", 2);
  t.ask(1);
  t.reject("unknown_model", "w1");
  await t.take();
  await t.tickTo(TICKS_MS / 2);
  assert.ok((await t.take()).includes("offer w1 1.2"));
});
