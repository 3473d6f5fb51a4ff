// Promise: a request that dies with its edge is charged what it had reserved, once,
// when its lease has expired; and if its edge was only cut off, what it used instead.
import assert from "node:assert/strict";
import {
  leaseKey,
  type Principal,
  spendKey,
} from "@gateway/shared/keys/record";
import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import {
  DONE,
  type RedisWorld,
  startRedisWorld,
  usageCounted,
} from "../../../tests/support/limits/admission_fixture.ts";
import { letTimePass } from "../../../tests/support/limits/limiter_clock.ts";
import type { Cost } from "./cost.ts";
import type { Grant, Limiter } from "./limiter.ts";
import { edgeLink, loneEdge } from "./lone_edge_fixture.ts";
import { LostRequests } from "./lost_requests.ts";
import type { Rate } from "./rate.ts";
import { LEASE_MS } from "./scripts.ts";

const RATE: Rate = {
  table: "t",
  prices: { input: 1_000_000, output: 2_000_000 },
};
const ASK = {
  scope: "chat",
  model: "m",
  endpoint: "chat",
  wantTokens: 100,
  promptTokens: 40,
  rate: RATE,
} as const;
const RESERVED = {
  requests: 1,
  promptTokens: 40,
  completionTokens: 60,
  cost: 40 + 2 * 60,
};
const USED: Cost = { ...DONE, nanos: 30 + 2 * 70 };

/** A Redis, the edge that is lost, and what another one does about it. */
class Stage {
  /** The cost of each charge, in billionths. */
  readonly charged: number[] = [];

  constructor(
    readonly world: RedisWorld,
    readonly edge: Limiter,
    readonly lost: LostRequests,
  ) {}

  /** Admits a request, and lets its lease expire. */
  async lose(key: Principal, ask: Partial<typeof ASK> = {}): Promise<Grant> {
    const grant = await this.edge.admit(key, { ...ASK, ...ask });
    assert.ok(grant.isAdmitted);
    await this.note(key);
    const ms = LEASE_MS + 1;
    await letTimePass(this.world.link, { principal: key, ms });
    return grant;
  }

  /** Notes that a key has leases. */
  async note(key: Principal): Promise<void> {
    this.lost.note(key);
    await this.lost.writeNotes();
  }

  async counted(key: Principal) {
    const { requests, promptTokens, completionTokens, cost } =
      await usageCounted(this.world, key);
    return { requests, promptTokens, completionTokens, cost };
  }
}

function onStage(body: (stage: Stage) => Promise<void>): () => Promise<void> {
  return async () => {
    await using world = await startRedisWorld();
    await using edge = await loneEdge(world);
    const redis = await edgeLink(world);
    const stage: Stage = new Stage(
      world,
      edge,
      new LostRequests({
        redis,
        now: monotonicNow,
        expectedMs: () => Date.now(),
        log: silentLog,
        onCharged: (_terms, nanos) => stage.charged.push(nanos),
      }),
    );
    await body(stage);
  };
}

Deno.test(
  "a lost request is charged its reservation, once",
  onStage(async (t) => {
    const key = await t.world.addKey();
    const running = await t.edge.admit(key, ASK);
    assert.ok(running.isAdmitted);
    await t.note(key);
    assert.equal(await t.lost.charge(), 0, "it still runs");
    const ms = LEASE_MS + 1;
    await letTimePass(t.world.link, { principal: key, ms });
    const charged = await Promise.all([t.lost.charge(), t.lost.charge()]);
    assert.equal(charged[0] + charged[1], 1);
    assert.equal(await t.lost.charge(), 0);
    assert.deepEqual(await t.counted(key), RESERVED);
    assert.deepEqual(t.charged, [RESERVED.cost]);
    const { lostRequests, lostCost } = await usageCounted(t.world, key);
    assert.deepEqual([lostRequests, lostCost], [1, RESERVED.cost]);
  }),
);

const MANY = 450;

Deno.test(
  "all requests of a key that are lost with their edge are charged at the next look",
  onStage(async (t) => {
    const cost = RESERVED.cost;
    const limits = { budgetTotal: 10 * MANY * cost };
    const key = await t.world.addKey({ limits });
    const ask = { ...ASK, wantNanos: cost };
    const grants = await Promise.all(
      Array.from({ length: MANY }, () => t.edge.admit(key, ask)),
    );
    assert.ok(grants.every(({ isAdmitted }) => isAdmitted));
    await t.note(key);
    const ms = LEASE_MS + 1;
    await letTimePass(t.world.link, { principal: key, ms });
    assert.equal(await t.lost.charge(), MANY);
    assert.equal(await t.lost.charge(), 0);
    const budget = ["HMGET", spendKey(key, "total"), "s", "h"] as const;
    const amounts = await t.world.command(...budget);
    assert.deepEqual(amounts, [String(MANY * cost), "0"]);
  }),
);

Deno.test(
  "an edge that was only cut off settles what was used instead",
  onStage(async (t) => {
    const key = await t.world.addKey();
    const grant = await t.lose(key);
    assert.equal(await t.lost.charge(), 1);
    await t.edge.leases.renew();
    await t.edge.settle(grant, USED);
    const expected = {
      requests: 1,
      promptTokens: 30,
      completionTokens: 70,
      cost: 170,
    };
    assert.deepEqual(await t.counted(key), expected);
    const { lostRequests, lostCost } = await usageCounted(t.world, key);
    assert.deepEqual([lostRequests, lostCost], [0, 0]);
    assert.equal(await t.lost.charge(), 0);
    assert.equal(await t.world.command("EXISTS", leaseKey(key)), 0);
  }),
);

Deno.test(
  "a renewal does not make a request run again that was charged as lost",
  onStage(async (t) => {
    const key = await t.world.addKey();
    const grant = await t.lose(key);
    assert.equal(await t.lost.charge(), 1);
    t.edge.leases.renewSoon();
    assert.equal(await t.edge.leases.renew(), true);
    await t.edge.settle(grant, USED);
    const { requests, cost, lostRequests } = await usageCounted(t.world, key);
    assert.deepEqual([requests, cost, lostRequests], [1, 170, 0]);
  }),
);

Deno.test(
  "what is undone after it was charged as lost costs nothing",
  onStage(async (t) => {
    const key = await t.world.addKey();
    const grant = await t.lose(key);
    assert.equal(await t.lost.charge(), 1);
    await t.edge.settle(grant, null);
    const { promptTokens, cost, lostCost } = await usageCounted(t.world, key);
    assert.deepEqual([promptTokens, cost, lostCost], [0, 0, 0]);
  }),
);

Deno.test(
  "units, and requests without a price, are charged as lost, too",
  onStage(async (t) => {
    const key = await t.world.addKey({ scopes: "image" });
    const grant = await t.edge.admit(key, {
      scope: "image",
      model: "m",
      endpoint: "images",
      wantTokens: 0,
      wantUnits: { unit: "images", count: 3 },
      rate: { table: "t", prices: null },
    });
    assert.ok(grant.isAdmitted);
    await t.note(key);
    const ms = LEASE_MS + 1;
    await letTimePass(t.world.link, { principal: key, ms });
    assert.equal(await t.lost.charge(), 1);
    const { images, requests, cost, unpriced } = await usageCounted(
      t.world,
      key,
    );
    assert.deepEqual([images, requests, cost, unpriced], [3, 1, 0, 1]);
  }),
);
