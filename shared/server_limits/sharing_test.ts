/**
 * Promise: workers that tell each other what they use stay within the limits of a model
 * server, whatever their clocks show and although messages take time.
 */
import assert from "node:assert/strict";
import { amountOf } from "../../tests/support/amount.ts";
import { seededRandom } from "../../tests/support/seeded_random.ts";
import type { CountedRequest } from "./key_use.ts";
import { TELL_MS } from "./others.ts";
import { decodeReport, encodeReport } from "./report.ts";
import type { Bounds, Measure } from "./rule.ts";
import { UseTable } from "./use_table.ts";

const LIMITED = { baseUrl: "http://a/v1", model: "m", variable: "KEY" };
const MINUTE_MS = 60_000;
/** How long after a change a worker tells it, as in `worker/use_sharing.ts`. */
const COALESCE_MS = 20;

interface Event {
  readonly atMs: number;
  run(): void;
}

/** Time that jumps from event to event. */
class Timeline {
  nowMs = 0;
  readonly #events: Event[] = [];

  at(atMs: number, run: () => void): void {
    const index = this.#events.findLastIndex((each) => each.atMs <= atMs);
    this.#events.splice(index + 1, 0, { atMs, run });
  }

  runTo(endMs: number): void {
    for (;;) {
      const [next] = this.#events;
      if (next === undefined || next.atMs > endMs) break;
      this.#events.shift();
      this.nowMs = next.atMs;
      next.run();
    }
    this.nowMs = endMs;
  }
}

/** A worker with a clock of its own. */
class Peer {
  readonly table: UseTable;
  isAlive = true;
  #willTell = false;

  constructor(readonly id: string, readonly world: World) {
    const offsetMs = world.random() * 1_000_000;
    this.table = new UseTable(() => world.time.nowMs + offsetMs);
    this.table.listen(() => this.#tellSoon());
    this.#beat();
  }

  get use() {
    return this.table.useOf(LIMITED);
  }

  tell({ isNew = false } = {}): void {
    if (!this.isAlive) return;
    const uses = this.table.uses();
    this.world.send(
      this,
      encodeReport({
        isNew,
        isLeaving: false,
        uses,
        proved: this.table.proofs.report(),
      }),
    );
  }

  hear(from: string, message: Uint8Array): void {
    const report = decodeReport(message) ?? assert.fail("unreadable");
    if (this.table.hear(from, report) || report.isNew) this.#tellSoon();
  }

  #tellSoon(): void {
    if (this.#willTell) return;
    this.#willTell = true;
    const { time } = this.world;
    time.at(time.nowMs + COALESCE_MS, () => {
      this.#willTell = false;
      this.tell();
    });
  }

  #beat(): void {
    this.tell();
    this.table.tick();
    const { time } = this.world;
    if (this.isAlive) time.at(time.nowMs + TELL_MS, () => this.#beat());
  }
}

interface Demand {
  readonly bounds: Bounds;
  readonly perSecond: number;
  readonly tokens: number;
  readonly lastsMs: number;
}

/** Workers, what they send each other, and the server that counts what it gets. */
class World {
  readonly time = new Timeline();
  readonly random: () => number;
  readonly peers: Peer[] = [];
  readonly starts: number[] = [];
  readonly highest = { inFlight: 0, requests: 0, tokens: 0 };
  readonly demand: Demand;
  inFlight = 0;

  constructor(seed: number, demand: Demand) {
    this.random = seededRandom(seed);
    this.demand = demand;
  }

  join(): Peer {
    const peer = new Peer(`w${this.peers.length}`, this);
    this.peers.push(peer);
    peer.tell({ isNew: true });
    return peer;
  }

  send(from: Peer, message: Uint8Array): void {
    const atMs = this.time.nowMs + 1 + this.random() * 9;
    for (const peer of this.peers) {
      if (peer === from) continue;
      this.time.at(atMs, () => {
        if (peer.isAlive) peer.hear(from.id, message);
      });
    }
  }

  /** Requests come to workers at random, each of which waits for nothing. */
  load(endMs: number): void {
    const { perSecond, bounds } = this.demand;
    const waitMs = -Math.log(1 - this.random()) * 1_000 / perSecond;
    const atMs = this.time.nowMs + waitMs;
    if (atMs > endMs) return;
    this.time.at(atMs, () => {
      const alive = this.peers.filter(({ isAlive }) => isAlive);
      const peer = alive[Math.floor(this.random() * alive.length)];
      if (peer?.use.waitMs(bounds) === 0) this.#run(peer);
      this.load(endMs);
    });
  }

  #run(peer: Peer): void {
    const request = peer.use.take();
    const { tokens, lastsMs } = this.demand;
    this.inFlight += 1;
    const { starts, highest } = this;
    starts.push(this.time.nowMs);
    while (this.time.nowMs - (starts[0] ?? 0) >= MINUTE_MS) starts.shift();
    const recent = starts.length;
    highest.inFlight = Math.max(highest.inFlight, this.inFlight);
    highest.requests = Math.max(highest.requests, recent);
    highest.tokens = Math.max(highest.tokens, recent * tokens);
    const endMs = this.time.nowMs + lastsMs * (0.5 + this.random());
    this.time.at(endMs, () => this.#end(peer, request));
  }

  #end(peer: Peer, request: CountedRequest): void {
    this.inFlight -= 1;
    peer.use.end(request, this.demand.tokens);
  }
}

const CASES: readonly { measure: Measure; demand: Demand }[] = [
  {
    measure: "requests",
    demand: {
      bounds: { requests: 100 },
      perSecond: 100,
      tokens: 10,
      lastsMs: 500,
    },
  },
  {
    measure: "tokens",
    demand: {
      bounds: { tokens: 50_000 },
      perSecond: 100,
      tokens: 400,
      lastsMs: 500,
    },
  },
  {
    measure: "inFlight",
    demand: {
      bounds: { inFlight: 20 },
      perSecond: 200,
      tokens: 10,
      lastsMs: 2_000,
    },
  },
];

for (const { measure, demand } of CASES) {
  Deno.test(`three workers together stay within 110 % of a limit of ${measure}, and use 90 % of it`, () => {
    const seeds = amountOf({ usual: 3, full: 200 });
    for (let seed = 1; seed <= seeds; seed += 1) {
      const world = new World(seed, demand);
      for (const _ of [1, 2, 3]) world.join();
      world.time.runTo(100);
      world.load(90_000);
      world.time.runTo(90_000);
      const limit = demand.bounds[measure] ?? 0;
      const share = world.highest[measure] / limit;
      assert.ok(share <= 1.1, `seed ${seed}: ${share}`);
      assert.ok(share >= 0.9, `seed ${seed}: ${share}`);
    }
  });
}

Deno.test("what a dead worker ran is free again, and what it has sent counts for the rest of the minute", () => {
  const demand = {
    bounds: { inFlight: 6, requests: 100 },
    perSecond: 1,
    tokens: 1,
    lastsMs: 1,
  };
  const world = new World(1, demand);
  const [one, two] = [world.join(), world.join()];
  world.time.runTo(500);
  for (const _ of [1, 2, 3]) one.use.take();
  world.time.runTo(1_000);
  for (const _ of [1, 2, 3]) two.use.take();
  world.time.runTo(1_500);
  assert.ok(two.use.waitMs({ inFlight: 6 }) > 0);
  one.isAlive = false;
  world.time.runTo(4_000);
  assert.equal(two.use.waitMs({ inFlight: 6 }), 0);
  assert.ok(two.use.waitMs({ requests: 6 }) > 50_000);
  world.time.runTo(63_000);
  assert.equal(two.use.waitMs({ requests: 1 }), 0);
});

Deno.test("a worker that starts learns at once what the others use, and what cools", () => {
  const world = new World(1, {
    bounds: {},
    perSecond: 1,
    tokens: 1,
    lastsMs: 1,
  });
  const one = world.join();
  world.time.runTo(10_000);
  for (const _ of [1, 2, 3]) one.use.take();
  one.use.refused(5_000);
  world.time.runTo(11_000);
  const two = world.join();
  world.time.runTo(11_050);
  const coolingMs = two.use.waitMs({});
  assert.ok(coolingMs > 3_900 && coolingMs <= 4_000, `${coolingMs}`);
  world.time.runTo(15_100);
  assert.equal(two.use.waitMs({ requests: 4 }), 0);
  assert.ok(two.use.waitMs({ requests: 3 }) > 50_000);
});

Deno.test("after a refusal one request tries each worker's way, and the others follow its answer", () => {
  const world = new World(1, {
    bounds: {},
    perSecond: 1,
    tokens: 1,
    lastsMs: 1,
  });
  const [one, two] = [world.join(), world.join()];
  world.time.runTo(100);
  one.use.refused(null);
  world.time.runTo(200);
  for (const { use } of [one, two]) assert.ok(use.waitMs({}) > 800);
  world.time.runTo(1_200);
  for (const { use } of [one, two]) {
    assert.equal(use.waitMs({}), 0);
    const probe = use.take();
    assert.ok(use.waitMs({}) > 0, "the probe runs");
    use.end(probe, null);
    assert.equal(use.waitMs({}), 0, "it was not answered: another may try");
    use.take();
    use.answered();
    assert.equal(use.waitMs({}), 0);
  }
});
