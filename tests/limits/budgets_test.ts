// Promise: a budget of money holds over any number of edges: nothing is admitted that
// does not fit beside what others hold, and nothing is refused that would fit when
// nobody else runs. What was spent is what was charged, to the billionth, once.
import assert from "node:assert/strict";
import {
  holdKey,
  leaseKey,
  type Limits,
  ownerSpendKey,
  type Principal,
  spendKey,
} from "@gateway/shared/keys/record";
import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import { type Ask, Limiter } from "../../services/edge-auth/limits/limiter.ts";
import {
  edgeLink,
  loneEdge,
} from "../../services/edge-auth/limits/lone_edge_fixture.ts";
import { LostRequests } from "../../services/edge-auth/limits/lost_requests.ts";
import { nanosToHold } from "../../services/edge-auth/limits/rate.ts";
import {
  type Refusal,
  refusalError,
} from "../../services/edge-auth/limits/refusal.ts";
import { LEASE_MS, SETTLE } from "../../services/edge-auth/limits/scripts.ts";
import { settleCall } from "../../services/edge-auth/limits/settlement.ts";
import {
  fingerprint,
  type RedisWorld,
  startRedisWorld,
  usageCounted,
} from "../support/limits/admission_fixture.ts";
import { admitterOf, costOfNanos } from "../support/limits/admitted.ts";
import { letTimePass } from "../support/limits/limiter_clock.ts";

const RATE = { table: "t", prices: { input: 1_000_000, output: 1_000_000 } };
const ASK: Ask = {
  scope: "chat",
  model: "m",
  endpoint: "chat",
  wantTokens: 0,
  rate: RATE,
  wantNanos: 10,
};
const DAY_MS = 86_400_000;

const admitted = admitterOf(ASK);

async function refused(
  edge: Limiter,
  key: Principal,
  ask: Partial<Ask> = {},
): Promise<Refusal & { reason: "limited" }> {
  const decision = await edge.admit(key, { ...ASK, ...ask });
  assert.ok(!decision.isAdmitted && decision.reason === "limited");
  return decision;
}

/** What is spent and held of a budget of a key, and of that of its owner. */
async function booked(world: RedisWorld, key: Principal, window = "total") {
  const names = [spendKey(key, window), ownerSpendKey(key.ownerId, window)];
  const read = async (name: string) => {
    const amounts = await world.command("HMGET", name, "s", "h");
    assert.ok(Array.isArray(amounts));
    return amounts.map((amount) => Number(amount ?? 0));
  };
  return await Promise.all(names.map(read));
}

/** A Redis, and some edges that share it. */
async function onEdges(
  count: number,
  body: (world: RedisWorld, edges: readonly Limiter[]) => Promise<void>,
): Promise<void> {
  await using world = await startRedisWorld();
  await using stack = new AsyncDisposableStack();
  const edges: Limiter[] = [];
  for (let n = 0; n < count; n += 1) {
    edges.push(stack.use(await loneEdge(world)));
  }
  await body(world, edges);
}

const BUDGETS = ["budgetDay", "budgetMonth", "budgetTotal"] as const;

for (const side of ["key", "owner"] as const) {
  for (const name of BUDGETS) {
    Deno.test(`three edges admit what fits into ${name} of the ${side}, and refuse the rest`, () =>
      onEdges(3, async (world, edges) => {
        const limits: Partial<Limits> = { [name]: 100 };
        const key = await world.addKey(
          side === "key" ? { limits } : { ownerLimits: limits },
        );
        const admissions = Array.from(
          { length: 60 },
          (_, at) => (edges[at % 3] ?? assert.fail()).admit(key, ASK),
        );
        const decisions = await Promise.all(admissions);
        const grants = decisions.filter((each) => each.isAdmitted);
        assert.equal(grants.length, 10);
        const [edge = assert.fail()] = edges;
        const held = await refused(edge, key);
        assert.equal(held.limit, "budget_held");
        assert.partialDeepStrictEqual(held, {
          holder: side,
          budget: { spent: 0, held: 100, limit: 100 },
        });
        for (const [at, grant] of grants.entries()) {
          await edge.leases.settle({
            reservation: grant,
            cost: costOfNanos(at < 5 ? 20 : 0),
          });
        }
        const spent = await refused(edge, key);
        assert.equal(
          spent.limit,
          name.replace(/[A-Z]/, (letter) => `_${letter.toLowerCase()}`),
        );
        assert.deepEqual([spent.budget?.spent, spent.budget?.held], [100, 0]);
        assert.equal(spent.waitMs === Infinity, name === "budgetTotal");
      }));
  }
}

Deno.test("a request passes when nobody else runs, and holds what is left; what it costs more is shown", () =>
  onEdges(1, async (world, [edge = assert.fail()]) => {
    const key = await world.addKey({ limits: { budgetTotal: 100 } });
    const large = await admitted(edge, key, { wantNanos: 5_000 });
    assert.deepEqual((await booked(world, key))[0], [0, 100]);
    const waiting = await refused(edge, key);
    assert.equal(waiting.limit, "budget_held");
    assert.ok(waiting.waitMs <= 1_000);
    await edge.settle(large, costOfNanos(5_000));
    assert.deepEqual((await booked(world, key))[0], [5_000, 0]);
    const spent = await refused(edge, key);
    assert.equal(spent.budget?.spent, 5_000);
    // An operator adds to it.
    await world.setKey(key, { budget_total: "5001" });
    await admitted(edge, key);
  }));

Deno.test("an agent without max_tokens and with $1.00 left is served until it is spent", () =>
  onEdges(1, async (world, [edge = assert.fail()]) => {
    const dollar = 1_000_000_000;
    const key = await world.addKey({ limits: { budgetTotal: dollar } });
    // 100,000 tokens of context at $15 and $75 for a million.
    const rate = {
      table: "t",
      prices: { input: 15 * dollar, output: 75 * dollar },
    };
    const estimate = {
      promptTokens: 100_000,
      totalTokens: 101_024,
      bounds: { promptTokensMax: 200_000, completionTokensMax: 200_000 },
      units: null,
    };
    const wantNanos = nanosToHold(estimate, rate);
    assert.ok(wantNanos !== null && wantNanos > dollar, "more than is left");
    // Most of the prompt is in a cache, so each request costs 3 cents.
    const each = 30_000_000;
    let served = 0;
    for (;;) {
      const decision = await edge.admit(key, { ...ASK, rate, wantNanos });
      if (!decision.isAdmitted) break;
      served += 1;
      await edge.settle(decision, costOfNanos(each));
    }
    assert.equal(served, Math.ceil(dollar / each));
    const refusal = await refused(edge, key, { wantNanos });
    assert.equal(refusal.budget?.spent, served * each);
  }));

Deno.test("all or nothing: a refusal for money takes nothing else, and one for something else holds no money", () =>
  onEdges(1, async (world, [edge = assert.fail()]) => {
    const key = await world.addKey({
      limits: { budgetDay: 10, requestsPerMinute: 2, concurrency: 2 },
      ownerLimits: { budgetMonth: 1_000 },
    });
    await admitted(edge, key);
    const before = await fingerprint(world);
    assert.equal((await refused(edge, key)).limit, "budget_held");
    assert.equal(await fingerprint(world), before);
    await world.setKey(key, { budget_day: "1000" });
    await admitted(edge, key);
    const atLimit = await fingerprint(world);
    assert.equal((await refused(edge, key)).limit, "requests");
    assert.equal(await fingerprint(world), atLimit);
  }));

Deno.test("a model without a price is refused where there is a budget, and only there", () =>
  onEdges(1, async (world, [edge = assert.fail()]) => {
    const free = await world.addKey();
    const ofKey = await world.addKey({ limits: { budgetDay: 1 } });
    const ofOwner = await world.addKey({ ownerLimits: { budgetTotal: 1 } });
    const ask = { ...ASK, wantNanos: null, rate: { table: "t", prices: null } };
    await admitted(edge, free, ask);
    for (const key of [ofKey, ofOwner]) {
      const decision = await edge.admit(key, ask);
      assert.ok(!decision.isAdmitted && decision.reason === "unpriced");
      const error = refusalError(decision);
      assert.equal(error.status, 403);
      assert.match(error.message, /no price/);
    }
  }));

Deno.test("a settlement is made once, and an undone admission costs nothing", () =>
  onEdges(1, async (world, [edge = assert.fail()]) => {
    const key = await world.addKey({ limits: { budgetTotal: 100 } });
    const grant = await admitted(edge, key);
    const settlement = {
      reservation: grant,
      cost: costOfNanos(7),
      mayHaveRun: true,
    };
    const input = settleCall([settlement, settlement]);
    await Promise.all(
      [1, 2, 3].map(() => world.link.evalScript(SETTLE, input)),
    );
    assert.deepEqual((await booked(world, key))[0], [7, 0]);
    await edge.settle(await admitted(edge, key), null);
    assert.deepEqual((await booked(world, key))[0], [7, 0]);
    assert.equal((await usageCounted(world, key)).cost, 7);
    assert.equal(await world.command("HLEN", holdKey(key)), 0);
  }));

Deno.test("a request that is lost with its edge is charged what it held, once; one that was cut off, its cost", () =>
  onEdges(1, async (world, [edge = assert.fail()]) => {
    const key = await world.addKey({
      limits: { budgetTotal: 100 },
      ownerLimits: { budgetDay: 100 },
    });
    const charges: number[] = [];
    const lost = new LostRequests({
      redis: await edgeLink(world),
      now: monotonicNow,
      expectedMs: () => Date.now(),
      log: silentLog,
      onCharged: (_terms, nanos) => charges.push(nanos),
    });
    // As of a recording, of which only what it holds says how long it is.
    const grant = await admitted(edge, key, { wantNanos: 40 });
    lost.note(key);
    await lost.writeNotes();
    await letTimePass(world.link, { principal: key, ms: LEASE_MS + 1 });
    const charged = await Promise.all([lost.charge(), lost.charge()]);
    assert.equal(charged[0] + charged[1], 1);
    assert.deepEqual((await booked(world, key))[0], [40, 0]);
    const usage = await usageCounted(world, key);
    assert.deepEqual([usage.cost, usage.lostCost, ...charges], [40, 40, 40]);
    await edge.settle(grant, costOfNanos(15));
    assert.deepEqual((await booked(world, key))[0], [15, 0]);
    const after = await usageCounted(world, key);
    assert.deepEqual([after.cost, after.lostCost, after.lostRequests], [
      15,
      0,
      0,
    ]);
    assert.equal(await world.command("ZCARD", leaseKey(key)), 0);
    assert.equal(await lost.charge(), 0);
  }));

Deno.test("the day and the month are those of Redis' clock, whatever an edge's clock shows", () =>
  onEdges(1, async (world) => {
    const key = await world.addKey({
      limits: { budgetDay: 100, budgetMonth: 1_000 },
    });
    for (const days of [-40, -1, 0, 1, 40]) {
      const edge = new Limiter({
        redis: await edgeLink(world),
        now: monotonicNow,
        wallNow: () => Date.now() + days * DAY_MS,
        log: silentLog,
        deadlineMs: 1_000,
      });
      await edge.settle(await admitted(edge, key), costOfNanos(7));
      await edge.leases.stop(1_000);
    }
    const time = new Date(await world.time()).toISOString();
    const day = time.slice(0, 10).replaceAll("-", "");
    assert.deepEqual((await booked(world, key, `d${day}`))[0], [35, 0]);
    const month = day.slice(0, 6);
    assert.deepEqual((await booked(world, key, `m${month}`))[0], [35, 0]);
    const ttlS = Number(await world.command("TTL", spendKey(key, `d${day}`)));
    assert.ok(ttlS > 39 * 86_400, `${ttlS} s`);
  }));

Deno.test("a refusal says whose budget it is, what is spent, held and allowed, and when it is reset", () =>
  onEdges(1, async (world, [edge = assert.fail()]) => {
    const key = await world.addKey({ limits: { budgetDay: 2_500_000_000 } });
    const grant = await admitted(edge, key, { wantNanos: 1_000_000_000 });
    const held = refusalError(
      await refused(edge, key, { wantNanos: 2_000_000_000 }),
      { currency: "USD" },
    );
    assert.match(
      held.message,
      /^The budget of this API key for this day .*: 0 of 2\.5 USD spent, 1 held by running requests\. It is reset at \d{4}-\d\d-\d\dT00:00:00Z\./,
    );
    assert.deepEqual([held.status, held.retryable], [429, true]);
    assert.equal(held.reason, "budget_held");
    await edge.settle(grant, costOfNanos(2_500_000_001));
    const spent = refusalError(await refused(edge, key), {
      currency: "USD",
    });
    assert.match(spent.message, /2\.500000001 of 2\.5 USD spent, 0 held/);
    assert.equal(spent.status, 429);
    assert.equal(spent.wireCode, "insufficient_quota");
    assert.equal(spent.retryable, false);
    assert.equal(spent.reason, "budget_day");
    const toMidnightMs = DAY_MS - await world.time() % DAY_MS;
    assert.ok(Math.abs((spent.retryAfterMs ?? 0) - toMidnightMs) < 10_000);
  }));

Deno.test("keys without budgets write nothing about money", () =>
  onEdges(1, async (world, [edge = assert.fail()]) => {
    const key = await world.addKey({ limits: { concurrency: 5 } });
    await edge.settle(await admitted(edge, key), costOfNanos(7));
    assert.deepEqual(await world.command("KEYS", "spend:*"), []);
    assert.deepEqual(await world.command("KEYS", "hold:*"), []);
  }));
