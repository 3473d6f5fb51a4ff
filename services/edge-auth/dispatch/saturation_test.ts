/** How many requests a worker is offered whose servers are at limits of theirs. */
import assert from "node:assert/strict";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { Stage } from "./dispatcher_fixture.ts";
import { Saturation } from "./saturation.ts";

const { queueWaitMs } = DISPATCH_LIMITS;

/** The offers since the last call, and nothing else. */
async function offersOf(t: Stage): Promise<string[]> {
  return (await t.take()).filter((event) => event.startsWith("offer"));
}

Deno.test("a model at limits is offered again after its wait, at the latest after a quarter of a second", () => {
  const TIMES = [
    { waitMs: 10, againMs: 50 },
    { waitMs: 120, againMs: 120 },
    { waitMs: 30_000, againMs: 250 },
  ];
  for (const { waitMs, againMs } of TIMES) {
    const saturation = new Saturation();
    assert.equal(saturation.isOpen("m", 0), true);
    saturation.onRejected("m", waitMs, 0);
    assert.equal(saturation.isOpen("m", againMs - 1), false, `${waitMs}`);
    assert.equal(saturation.isOpen("m", againMs), true, `${waitMs}`);
    assert.equal(saturation.isOpen("other", 0), true);
    saturation.onOffered("m", againMs);
    assert.equal(saturation.isOpen("m", againMs), false, "one at a time");
  }
});

Deno.test("what a worker has said of its limits is told with its end, and then forgotten", () => {
  const saturation = new Saturation();
  assert.equal(saturation.waitMs("m", 0), 0);
  saturation.onRejected("m", 30_000, 0);
  assert.equal(saturation.waitMs("m", 10_000), 20_000);
  assert.equal(saturation.waitMs("m", 30_000), 0);
  assert.equal(saturation.isOpen("m", 30_000), true);
  saturation.onRejected("m", 10, 40_000);
  assert.equal(saturation.waitMs("m", 40_900), 50, "it was so a moment ago");
  assert.equal(saturation.waitMs("m", 41_000), 0);
});

Deno.test("a request that has ended makes place for one, an accepted one shows that there is more", () => {
  const saturation = new Saturation();
  const offer = () => {
    let offers = 0;
    while (saturation.isOpen("m", 1)) {
      saturation.onOffered("m", 1);
      offers += 1;
    }
    return offers;
  };
  saturation.onRejected("m", 500, 0);
  assert.equal(offer(), 0);
  saturation.onEnded("m");
  assert.equal(offer(), 1);
  saturation.onAccepted("m");
  assert.equal(offer(), 2);
  saturation.onAccepted("m");
  saturation.onRejected("m", 500, 1);
  assert.equal(offer(), 0, "a rejection says that it is enough");
});

Deno.test("a saturated worker is followed by the next worker, then the request waits its turn", async () => {
  const t = new Stage();
  t.beat("w1", 9);
  t.beat("w2", 9);
  t.ask(1);
  t.reject("saturated", "w1", { retryAfterMs: 100 });
  assert.deepEqual(await offersOf(t), ["offer w1 1.1", "offer w2 1.2"]);
  t.reject("saturated", "w2", { retryAfterMs: 100 });
  t.ask(2);
  await t.tickTo(90, () => ["w1", "w2"].forEach((id) => t.beat(id, 9)));
  assert.deepEqual(await offersOf(t), [], "nobody is asked meanwhile");
  await t.tickTo(110);
  const offers = await offersOf(t);
  assert.equal(offers[0], "offer w1 1.3");
  assert.ok(!offers.includes("offer w1 2.1"), "one finds out");
});

Deno.test("requests that wait for a limit follow one another as others end", async () => {
  const t = new Stage();
  t.beat("w1", 9);
  t.ask(1);
  t.accept("w1");
  for (const request of [2, 3]) t.ask(request);
  t.reject("saturated", "w1", { request: 2, retryAfterMs: 2_000 });
  t.reject("saturated", "w1", { request: 3, retryAfterMs: 2_000 });
  await t.take();
  t.end(1, "w1");
  assert.deepEqual(await offersOf(t), ["offer w1 2.2"]);
  t.accept("w1", { request: 2 });
  t.end(1, "w1", { request: 2 });
  assert.deepEqual(await offersOf(t), ["offer w1 3.2"]);
});

const wanted = (model: string) => ({ model, family: "chat" as const });

Deno.test("a worker at limits of one model gets the jobs of its other models", () => {
  const t = new Stage();
  t.beat("w1", 9);
  t.ask(1);
  t.reject("saturated", "w1", { retryAfterMs: 30_000 });
  const { workers } = t.dispatcher;
  assert.equal(workers.pick(wanted("m"), []), null);
  const upload = { ...wanted("m"), isGuess: true };
  assert.equal(workers.pick(upload, []), "w1");
  workers.onBeat("w1", {
    version: 2,
    family: "chat",
    models: ["m", "other"],
    draining: false,
    slots: 9,
    inFlight: 0,
  });
  assert.equal(
    workers.pick(wanted("m"), []),
    null,
    "a beat says nothing of it",
  );
  assert.equal(workers.pick(wanted("other"), []), "w1");
});

Deno.test("a limit that lasts longer than a request may wait is told at once, with its end", async () => {
  const t = new Stage();
  t.beat("w1", 9);
  t.ask(1);
  t.reject("saturated", "w1", { retryAfterMs: 30_000 });
  t.ask(2);
  for (const request of [1, 2]) {
    const error = t.outcomes.get(request)?.error;
    assert.equal(error?.code, "upstream_rate_limited");
    assert.equal(error?.retryAfterMs, 30_000);
  }
  t.beat("w2", 9);
  t.ask(3);
  assert.equal(t.outcomes.get(3), undefined, "another worker may have room");
  assert.ok((await offersOf(t)).includes("offer w2 3.1"));
});

Deno.test("a request that a limit kept waiting for too long says so, not that workers are busy", async () => {
  const t = new Stage();
  t.beat("w1", 9);
  t.ask(1);
  const rejectAll = () => {
    t.beat("w1", 9);
    t.reject("saturated", "w1", { retryAfterMs: 50 });
  };
  rejectAll();
  await t.tickTo(queueWaitMs + 50, rejectAll);
  const error = t.outcomes.get(1)?.error;
  assert.equal(error?.code, "upstream_rate_limited");
  assert.ok((await offersOf(t)).length > 10, "it was tried again and again");
});

Deno.test("a request that an accepted job finds at limits after all is queued again", async () => {
  const t = await Stage.running("w1");
  t.reject("saturated", "w1", { retryAfterMs: 100 });
  await t.tickTo(110, () => t.beat("w1", 9));
  assert.deepEqual(await offersOf(t), ["offer w1 1.2"]);
  t.accept("w1");
  t.end(1);
  assert.equal(t.outcomes.get(1)?.kind, "complete");
});

Deno.test("a model that is disabled while requests wait for it refuses them", async () => {
  const t = new Stage();
  t.beat("w1", 9);
  for (const request of [1, 2]) t.ask(request);
  for (const request of [1, 2]) {
    t.reject("saturated", "w1", { request, retryAfterMs: 500 });
  }
  t.disabled.add("m");
  await t.tickTo(50);
  for (const request of [1, 2]) {
    assert.equal(t.outcomes.get(request)?.error?.code, "model_not_found");
  }
  assert.equal(t.dispatcher.queue.length, 0);
});

/** Workers that each run at most a number of requests, which all take the same time. */
class LimitedWorkers {
  readonly stage = new Stage();
  rejections = 0;
  #ended = 0;
  #requestCount = 0;
  readonly #running: { request: number; worker: string; endsAtMs: number }[] =
    [];

  constructor(
    readonly ids: readonly string[],
    readonly how: { each: number; lastsMs: number; atOnce: number },
  ) {}

  /** Runs requests, and returns how long all of them take, in ms. */
  async run(requests: number): Promise<number> {
    const { stage, how } = this;
    while (this.#ended < requests) {
      for (const id of this.ids) stage.beat(id, 1_000);
      while (
        this.#requestCount < requests &&
        this.#requestCount - this.#ended < how.atOnce
      ) stage.ask(++this.#requestCount);
      await stage.tickTo(stage.clock.ms + 5);
      for (const event of await stage.take()) this.#on(event);
      this.#end();
    }
    return stage.clock.ms;
  }

  #on(event: string): void {
    const [, worker = "", number = ""] = /^offer (\w+) (\d+)\./.exec(event) ??
      [];
    if (worker === "") return;
    const { stage, how } = this;
    const request = Number(number);
    const own = this.#running.filter((each) => each.worker === worker);
    if (own.length >= how.each) {
      this.rejections += 1;
      stage.reject("saturated", worker, { request, retryAfterMs: 50 });
    } else {
      const endsAtMs = stage.clock.ms + how.lastsMs;
      this.#running.push({ request, worker, endsAtMs });
      stage.accept(worker, { request });
    }
  }

  #end(): void {
    const { stage } = this;
    for (const run of [...this.#running]) {
      if (run.endsAtMs > stage.clock.ms) continue;
      this.#running.splice(this.#running.indexOf(run), 1);
      stage.end(1, run.worker, { request: run.request });
      const { kind } = stage.outcomes.get(run.request) ?? {};
      assert.equal(kind, "complete");
      this.#ended += 1;
    }
  }
}

Deno.test("a limit that many requests wait for is used to the full, at about one rejection each", async () => {
  const how = { each: 10, lastsMs: 100, atOnce: 50 };
  const t = new LimitedWorkers(["w1", "w2"], how);
  const tookMs = await t.run(200);
  assert.ok(tookMs < 1.35 * 200 / 20 * 100, `${tookMs} ms`);
  assert.ok(t.rejections < 1.5 * 200, `${t.rejections} rejections`);
});
