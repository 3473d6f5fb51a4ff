// Promise: what a request holds of budgets is counted once, wherever it is written: in
// its lease, or beside it where the lease would be wrong.
import assert from "node:assert/strict";
import {
  holdKey,
  KEY_FIELDS,
  leaseKey,
  type Principal,
  spendKey,
} from "@gateway/shared/keys/record";
import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import type { Ask, Limiter } from "../../services/edge-auth/limits/limiter.ts";
import {
  edgeLink,
  loneEdge,
} from "../../services/edge-auth/limits/lone_edge_fixture.ts";
import { LostRequests } from "../../services/edge-auth/limits/lost_requests.ts";
import { LEASE_MS, RENEW } from "../../services/edge-auth/limits/scripts.ts";
import {
  type RedisWorld,
  startRedisWorld,
  usageCounted,
} from "../support/limits/admission_fixture.ts";
import { admitterOf, costOfNanos } from "../support/limits/admitted.ts";
import { letTimePass } from "../support/limits/limiter_clock.ts";

const ASK: Ask = {
  scope: "chat",
  model: "m",
  endpoint: "chat",
  wantTokens: 0,
  rate: { table: "t", prices: { request: 10 } },
  wantNanos: 10,
};
const HOUR_MS = 3_600_000;

const admitted = admitterOf(ASK);

/** What is spent and held of the budget in total. */
async function booked(world: RedisWorld, key: Principal) {
  const name = spendKey(key, "total");
  const amounts = await world.command("HMGET", name, "s", "h");
  assert.ok(Array.isArray(amounts));
  return amounts.map((each) => Number(each ?? 0));
}

/** A key with a budget of 100, which an edge knows from a request that cost 1. */
async function withKnownBudget(body: {
  (world: RedisWorld, edge: Limiter, key: Principal): Promise<void>;
}): Promise<void> {
  await using world = await startRedisWorld();
  await using edge = await loneEdge(world);
  const key = await world.addKey({ limits: { budgetTotal: 100 } });
  await edge.settle(await admitted(edge, key), costOfNanos(1));
  await body(world, edge, key);
}

const kept = (world: RedisWorld, key: Principal) =>
  world.command("HLEN", holdKey(key));

Deno.test("an edge that knows the budgets of a key writes what requests hold into their leases only", () =>
  withKnownBudget(async (world, edge, key) => {
    const grants = await Promise.all([1, 2, 3].map(() => admitted(edge, key)));
    assert.deepEqual(await booked(world, key), [1, 30]);
    assert.equal(await kept(world, key), 0);
    for (const grant of grants) await edge.settle(grant, costOfNanos(4));
    assert.deepEqual(await booked(world, key), [13, 0]);
  }));

Deno.test("where a lease would be wrong, what its request holds is kept beside it", () =>
  withKnownBudget(async (world, edge, key) => {
    await world.setKey(key, { [KEY_FIELDS.budgetTotal]: "20" });
    const other = await admitted(edge, key);
    assert.equal(await kept(world, key), 1, "the budget is another one");
    await edge.settle(other, costOfNanos(3));
    const rest = await admitted(edge, key, { wantNanos: 50 });
    assert.deepEqual(await booked(world, key), [4, 16]);
    assert.equal(await kept(world, key), 1, "less was left");
    await edge.settle(rest, costOfNanos(6));
    await world.setKey(key, { [KEY_FIELDS.budgetTotal]: "0" });
    const free = await admitted(edge, key);
    await edge.settle(free, costOfNanos(7));
    assert.deepEqual(
      await booked(world, key),
      [10, 0],
      "there is none any more",
    );
    assert.equal(await kept(world, key), 0);
  }));

Deno.test("a lost request is charged what its lease says, and its cost if it was only cut off", () =>
  withKnownBudget(async (world, edge, key) => {
    const lost = new LostRequests({
      redis: await edgeLink(world),
      now: monotonicNow,
      expectedMs: () => Date.now(),
      log: silentLog,
    });
    const grant = await admitted(edge, key, { wantNanos: 40 });
    assert.equal(await kept(world, key), 0);
    lost.note(key);
    await lost.writeNotes();
    await letTimePass(world.link, { principal: key, ms: LEASE_MS + 1 });
    const charged = await Promise.all([lost.charge(), lost.charge()]);
    assert.equal(charged[0] + charged[1], 1);
    assert.deepEqual(await booked(world, key), [41, 0]);
    assert.equal((await usageCounted(world, key)).lostCost, 40);
    await edge.settle(grant, costOfNanos(15));
    assert.deepEqual(await booked(world, key), [16, 0]);
    assert.equal((await usageCounted(world, key)).cost, 16);
  }));

Deno.test("a lease that Redis has lost takes what it held with it", () =>
  withKnownBudget(async (world, edge, key) => {
    const grant = await admitted(edge, key);
    // As by a crash: one script wrote the lease and what is held.
    await world.command("DEL", leaseKey(key));
    await world.command("HSET", spendKey(key, "total"), "h", "0");
    const { ownerId } = key;
    const renewal = {
      keys: [leaseKey(key), `lease:{${ownerId}}`],
      args: ["none", grant.id],
    };
    await world.link.evalScript(RENEW, renewal);
    edge.leases.doubtHold(grant.id);
    await edge.settle(grant, costOfNanos(5));
    assert.deepEqual(await booked(world, key), [1, 0]);
    assert.equal(await kept(world, key), 0);
  }));

Deno.test("a lease that is removed because it ended long ago leaves what it said", () =>
  withKnownBudget(async (world, edge, key) => {
    const grant = await admitted(edge, key);
    await letTimePass(world.link, {
      principal: key,
      ms: HOUR_MS + LEASE_MS + 1,
    });
    const next = await admitted(edge, key);
    assert.equal(await kept(world, key), 1);
    await edge.settle(next, costOfNanos(2));
    await edge.settle(grant, costOfNanos(5));
    assert.deepEqual(await booked(world, key), [8, 0]);
    assert.equal(await kept(world, key), 0);
  }));

Deno.test("leases stay as long as what they hold is counted, even if no edge reaches Redis for hours", () =>
  withKnownBudget(async (world, edge, key) => {
    const grant = await admitted(edge, key);
    const leftMs = Number(await world.command("PTTL", leaseKey(key)));
    assert.ok(leftMs > 24 * HOUR_MS, `${leftMs} ms`);
    await edge.settle(grant, costOfNanos(2));
    assert.deepEqual(await booked(world, key), [3, 0]);
  }));
