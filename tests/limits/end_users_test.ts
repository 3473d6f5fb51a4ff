// Promise: each end user of a key has the limits that its owner has set for them, over
// any number of edges, and takes nothing from the others; what is kept of them is
// bounded; and keys without such limits cost nothing more.
import assert from "node:assert/strict";
import { END_USERS_MAX } from "@gateway/shared/keys/end_user";
import {
  leaseKey,
  limiterKey,
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
import { refusalError } from "../../services/edge-auth/limits/refusal.ts";
import { LEASE_MS } from "../../services/edge-auth/limits/scripts.ts";
import { amountOf } from "../support/amount.ts";
import {
  fingerprint,
  type RedisWorld,
  startRedisWorld,
} from "../support/limits/admission_fixture.ts";
import { admitterOf } from "../support/limits/admitted.ts";
import { letTimePass } from "../support/limits/limiter_clock.ts";

const ASK: Ask = {
  scope: "chat",
  model: "m",
  endpoint: "chat",
  wantTokens: 10,
  rate: { table: "t", prices: { output: 1_000_000 } },
  wantNanos: 10,
};
const USED = {
  promptTokens: 0,
  completionTokens: 4,
  kind: "complete",
} as const;

/** A request for an end user, whatever tells them apart. */
const by = (name: string, more: Partial<Ask> = {}): Ask => ({
  ...ASK,
  endUser: () => name,
  ...more,
});

const admitted = admitterOf(ASK);

/** The limit that refuses a request, and whose it is: `user:requests`. */
async function refusedBy(edge: Limiter, key: Principal, ask: Ask) {
  const decision = await edge.admit(key, ask);
  assert.ok(!decision.isAdmitted && decision.reason === "limited");
  return `${decision.holder}:${decision.limit}`;
}

async function onEdges(
  body: (world: RedisWorld, edges: [Limiter, Limiter]) => Promise<void>,
): Promise<void> {
  await using world = await startRedisWorld();
  await using one = await loneEdge(world);
  await using other = await loneEdge(world);
  await body(world, [one, other]);
}

Deno.test("each end user has requests and tokens per minute, whatever the others do", () =>
  onEdges(async (world, [one, other]) => {
    const key = await world.addKey({ endUsers: "user 3 0 0" });
    for (const name of ["ada", "bob", ""]) {
      const edges = [one, other, one];
      const grants = edges.map((edge) => admitted(edge, key, by(name)));
      await one.settle(await (grants[0] ?? assert.fail()), USED);
      await Promise.all(grants);
      assert.equal(await refusedBy(other, key, by(name)), "user:requests");
    }
    // One that never ran is no request.
    const tokens = await world.addKey({ endUsers: "user 0 20 0" });
    const grant = await admitted(one, tokens, by("ada"));
    await admitted(one, tokens, by("ada"));
    const ask = by("ada", { wantTokens: 6 });
    assert.equal(await refusedBy(other, tokens, ask), "user:tokens");
    await one.settle(grant, USED);
    await admitted(other, tokens, ask);
    assert.equal(await refusedBy(other, tokens, ask), "user:tokens");
    await admitted(other, tokens, by("bob", { wantTokens: 6 }));
  }));

Deno.test("an admission that is undone gives its end user everything back", () =>
  onEdges(async (world, [edge]) => {
    const key = await world.addKey({ endUsers: "user 1 10 5" });
    for (let round = 0; round < 3; round += 1) {
      await edge.settle(await admitted(edge, key, by("ada")), null);
    }
    await admitted(edge, key, by("ada"));
    const before = await fingerprint(world);
    assert.equal(await refusedBy(edge, key, by("ada")), "user:requests");
    assert.equal(await fingerprint(world), before, "a refusal takes nothing");
  }));

Deno.test("an end user has a budget for each day, of which the key and the account pay all", () =>
  onEdges(async (world, [one, other]) => {
    const key = await world.addKey({
      endUsers: "user 0 0 20",
      limits: { budgetTotal: 1_000 },
    });
    const grants = [
      await admitted(one, key, by("ada")),
      await admitted(other, key, by("ada")),
    ];
    assert.equal(await refusedBy(one, key, by("ada")), "user:budget_held");
    await admitted(one, key, by("bob"));
    await one.settle(grants[0] ?? assert.fail(), { ...USED, nanos: 15 });
    await other.settle(grants[1] ?? assert.fail(), { ...USED, nanos: 15 });
    const decision = await other.admit(key, by("ada"));
    assert.ok(!decision.isAdmitted && decision.reason === "limited");
    const error = refusalError(decision, { currency: "USD" });
    assert.match(
      error.message,
      /^The budget of this end user for this day .*: 0\.00000003 of 0\.00000002 USD spent/,
    );
    assert.equal(error.reason, "budget_day.user");
    const total = await world.command(
      "HMGET",
      spendKey(key, "total"),
      "s",
      "h",
    );
    assert.deepEqual(total, ["30", "10"]);
    // Thresholds are told of keys and accounts only.
    assert.deepEqual(await world.command("SMEMBERS", "notices:due"), []);
    const unpriced = { ...by("bob"), wantNanos: null };
    const refusal = await one.admit(key, unpriced);
    assert.ok(!refusal.isAdmitted && refusal.reason === "unpriced");
  }));

Deno.test("a request that is lost with its edge is charged to its end user, too", () =>
  onEdges(async (world, [edge]) => {
    const key = await world.addKey({ endUsers: "session 0 0 20" });
    const lost = new LostRequests({
      redis: await edgeLink(world),
      now: monotonicNow,
      expectedMs: () => Date.now(),
      log: silentLog,
    });
    const grant = await admitted(edge, key, by("a", { wantNanos: 20 }));
    lost.note(key);
    await lost.writeNotes();
    await letTimePass(world.link, { principal: key, ms: LEASE_MS + 1 });
    assert.equal(await lost.charge(), 1);
    assert.equal(await refusedBy(edge, key, by("a")), "user:budget_day");
    // It was only cut off, and cost less.
    await edge.settle(grant, { ...USED, nanos: 1 });
    await admitted(edge, key, by("a"));
    assert.equal(await world.command("ZCARD", leaseKey(key)), 1);
  }));

Deno.test("what tells end users apart may change at any time, and keys without limits for them keep nothing", () =>
  onEdges(async (world, [one, other]) => {
    const key = await world.addKey();
    const sources: string[] = [];
    const ask = {
      ...ASK,
      endUser: (source: string) => {
        sources.push(source);
        return "ada";
      },
    };
    await admitted(one, key, ask);
    assert.deepEqual(sources, []);
    assert.deepEqual(await world.command("KEYS", "users:*"), []);
    await world.setKey(key, { end_user: "header:x-user-id 1 0 0" });
    await admitted(one, key, ask);
    assert.equal(await refusedBy(other, key, ask), "user:requests");
    assert.deepEqual(sources, ["header:x-user-id", "header:x-user-id"]);
    await world.setKey(key, { end_user: "session 1 0 0" });
    await admitted(other, key, ask);
    await world.setKey(key, { end_user: "" });
    await admitted(one, key, ask);
    await admitted(other, key, ask);
    sources.length = 0;
    await admitted(other, key, ask);
    assert.deepEqual(sources, []);
    await world.setKey(key, { end_user: "nonsense" });
    await assert.rejects(one.admit(key, ask), /corrupt end users/);
  }));

/** Some more than are kept; a hundred thousand in the full run. */
const USERS = amountOf({ usual: END_USERS_MAX + 500, full: 100_000 });
const AT_ONCE = 500;

Deno.test("of more end users than are kept, the least recently used are forgotten", () =>
  onEdges(async (world, [edge]) => {
    const key = await world.addKey({ endUsers: "user 1 0 10" });
    await admitted(edge, key, by("kept"));
    for (let first = 0; first < USERS; first += AT_ONCE) {
      const grants = await Promise.all(
        Array.from(
          { length: AT_ONCE },
          (_, n) => admitted(edge, key, by(`user ${first + n}`)),
        ),
      );
      await Promise.all(grants.map((grant) => edge.settle(grant, null)));
      await edge.settle(await admitted(edge, key, by("kept ")), null);
    }
    const index = `users:{${key.ownerId}}:${key.keyId}`;
    assert.equal(await world.command("ZCARD", index), END_USERS_MAX);
    const states = `${limiterKey(key)}:*`;
    const spent = `spend:{${key.ownerId}}:${key.keyId}:*`;
    for (const pattern of [states, spent]) {
      const names = await world.command("KEYS", pattern);
      assert.ok(Array.isArray(names) && names.length <= END_USERS_MAX, pattern);
    }
    // The first one was forgotten, and begins anew; one in use was not.
    await admitted(edge, key, by("kept"));
    await admitted(edge, key, by("kept "));
    assert.equal(await refusedBy(edge, key, by("kept ")), "user:requests");
  }));
