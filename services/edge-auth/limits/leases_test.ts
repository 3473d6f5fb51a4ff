// Promise: what was reserved or used while Redis could not answer is neither lost nor
// counted twice. What callers get meanwhile: `tests/limits/outage_timed_test.ts`.
import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { LIMITER_EPOCH_MS } from "@gateway/shared/keys/limiter_state";
import * as record from "@gateway/shared/keys/record";
import { type Log, silentLog } from "@gateway/shared/process/log";
import { ApiError } from "@gateway/shared/openai/error";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { RedisReply } from "@gateway/shared/redis/connection";
import {
  DONE,
  readState,
  type RedisWorld,
  scriptCalls,
  startRedisWorld,
  usageCounted,
} from "../../../tests/support/limits/admission_fixture.ts";
import { freePort } from "../../../tests/support/servers/local_server.ts";
import { sleep, until } from "../../../tests/support/wait_for.ts";
import { startTcpProxy } from "../../../tests/support/servers/tcp_proxy.ts";
import { Leases } from "./leases.ts";
import { type Grant, Limiter } from "./limiter.ts";
import { edgeLink } from "./lone_edge_fixture.ts";
import { EDGE_SCRIPTS, LEASE_MS, RENEW } from "./scripts.ts";
import type { Settlement } from "./settlement.ts";
import { createRecordingLog } from "../../../tests/support/recording_log.ts";
import {
  changedLink,
  testRedisLink,
} from "../../../tests/support/servers/redis_link.ts";

const KEY: record.Principal = { keyId: "key_a", ownerId: "own_a" };
const lease = (id: string) => ({ id, principal: KEY });

/** Leases by a clock that the test moves on. */
function startLeases(redis: RedisLink, unsettledMax = 50_000) {
  const clock = { skewMs: 0 };
  const errors: [event: string, fields: unknown][] = [];
  const error: Log["error"] = (event, fields) => errors.push([event, fields]);
  const leases = new Leases({
    redis,
    unsettledMax,
    log: { ...silentLog, error },
    now: () => monotonicNow() + clock.skewMs,
  });
  const stop = async () => void await leases.stop(0);
  return { leases, clock, errors, [Symbol.asyncDispose]: stop };
}

const settlement = (id: string): Settlement => ({
  reservation: {
    id,
    principal: KEY,
    model: null,
    reservedTokens: 100,
    reservedUnits: null,
    atMs: Date.UTC(2026, 0, 1, 10),
  },
  cost: { promptTokens: 2, completionTokens: 3, kind: "complete" },
});

const countedTokens = (world: RedisWorld) =>
  world.command("HGET", `use:{${KEY.ownerId}}:${KEY.keyId}:20260101`, "10:out");

Deno.test("renewal extends leases after ten seconds, takes lost ones again, and leaves ended ones alone", async () => {
  await using world = await startRedisWorld();
  await using started = startLeases(await edgeLink(world));
  const { leases, clock } = started;
  const names = [record.leaseKey(KEY), record.ownerLeaseKey(KEY.ownerId)];
  const soon = String(await world.time() - LIMITER_EPOCH_MS + 1_000);
  for (const id of ["old", "ended", "young"]) {
    for (const name of names) await world.command("ZADD", name, soon, id);
  }
  for (const id of ["old", "ended", "lost"]) leases.hold(lease(id));
  clock.skewMs = 9_000;
  leases.hold(lease("young"));
  const renewed = async (name: string) => {
    const isNew = [];
    for (const id of ["old", "ended", "lost", "young"]) {
      const score = Number(await world.command("ZSCORE", name, id));
      const leftMs = score + LIMITER_EPOCH_MS - await world.time();
      if (leftMs > LEASE_MS - 2_000) isNew.push(id);
    }
    return isNew;
  };
  assert.notEqual(leases.release("ended"), null);
  assert.equal(leases.release("ended"), null);
  assert.equal(await leases.renew(), true);
  for (const name of names) assert.deepEqual(await renewed(name), []);
  clock.skewMs = 10_000;
  assert.equal(await leases.renew(), true);
  for (const name of names) {
    assert.deepEqual(await renewed(name), ["old", "lost"]);
    assert.ok(Number(await world.command("PTTL", name)) > 3_600_000);
  }
});

Deno.test("all leases of an edge are renewed in one round trip", async () => {
  await using world = await startRedisWorld({ scripts: [RENEW] });
  await using proxy = startTcpProxy(world.redis.port);
  const link = await world.open(`redis://${proxy.server}`);
  await using started = startLeases(link);
  const { leases, clock } = started;
  for (let number = 0; number < 500; number += 1) {
    const principal = { keyId: `key_${number % 100}`, ownerId: "own_b" };
    leases.hold({ id: `of others ${number}`, principal });
  }
  // The largest key takes several calls, at the same time.
  for (let number = 0; number < 500; number += 1) {
    leases.hold(lease(`${number}`));
  }
  clock.skewMs = 10_000;
  const before = await scriptCalls(world);
  proxy.set({ blackHole: "down" });
  const renewed = leases.renew();
  // All of them reach Redis before any of its answers arrives.
  await until(async () => await scriptCalls(world) - before === 100 + 3);
  proxy.set({});
  assert.equal(await renewed, true);
  assert.equal(await leases.renew(), true, "none is due again");
  assert.equal(await scriptCalls(world) - before, 100 + 3);
  assert.equal(await world.command("ZCARD", record.leaseKey(KEY)), 500);
  const ofOwner = record.ownerLeaseKey("own_b");
  assert.equal(await world.command("ZCARD", ofOwner), 500);
});

Deno.test("a renewal that fails is reported and repeated", async () => {
  await using world = await startRedisWorld();
  await using started = startLeases(await world.open());
  const { leases, clock } = started;
  leases.hold(lease("a"));
  clock.skewMs = 10_000;
  await world.redis.kill();
  assert.equal(await leases.renew(), false);
  assert.equal(await leases.renew(), false);
});

Deno.test("settlements are bounded: beyond it the oldest are dropped and logged", async () => {
  const link = testRedisLink({ url: `redis://127.0.0.1:${freePort()}` });
  const { leases, errors } = startLeases(link, 300);
  await Promise.all(
    Array.from({ length: 301 }, (_, at) => leases.settle(settlement(`${at}`))),
  );
  assert.equal(await leases.stop(50), 101);
  assert.deepEqual(errors, [
    ["usage_lost", { requests: 200, reason: "too many wait for Redis" }],
    ["usage_lost", {
      requests: 101,
      reason: "the edge stopped before Redis was back",
    }],
  ]);
  await link.close();
});

Deno.test("a settlement that Redis refuses is repeated until it is not, and logged once", async () => {
  await using world = await startRedisWorld();
  const { leases, errors } = startLeases(world.link);
  const name = record.leaseKey(KEY);
  await world.command("SET", name, "not a set");
  await leases.settle(settlement("a"));
  await world.command("DEL", name);
  await world.command("ZADD", name, "1", "a");
  await until(() => leases.unsettled === 0);
  assert.deepEqual(errors.map(([event]) => event), ["usage_not_recorded"]);
  assert.equal(await countedTokens(world), "3");
  assert.equal(await leases.stop(100), 0);
});

Deno.test("a settlement whose lease Redis has lost is still counted, once", async () => {
  await using world = await startRedisWorld();
  let calls = 0;
  const { leases, errors } = startLeases(changedLink(world.link, {
    evalScript: async (...call) => {
      const reply = await world.link.evalScript(...call);
      // The first attempt runs, and its answer is lost.
      if (++calls !== 1) return reply;
      throw new RedisUnavailableError("deadline", "for the test");
    },
  }));
  await leases.settle(settlement("a"));
  assert.equal(await leases.stop(2_000), 0);
  assert.equal(calls, 2);
  assert.deepEqual(errors, []);
  assert.equal(await countedTokens(world), "3");
});

const FULL = {
  requestsPerMinute: 1_000,
  tokensPerMinute: 60_000,
  tokensPerDay: 1_000_000,
  concurrency: 100,
};

/** An edge with this link, and a key with all limits. */
async function stage(world: RedisWorld, redis: RedisLink) {
  const limiter = new Limiter({ redis, now: monotonicNow, log: silentLog });
  const key = await world.addKey({ limits: FULL, ownerLimits: FULL });
  const ask = () =>
    limiter.admit(key, { scope: "chat", model: "m", wantTokens: 100 });
  const leases = (name: string) => world.command("ZCARD", name);
  return {
    limiter,
    key,
    ask,
    /** Admits while Redis works; on a busy machine it may be silent for a moment. */
    async admitted(count: number): Promise<Grant[]> {
      const all: Grant[] = [];
      await until(async () => {
        const decision = await ask().catch(() => null);
        if (decision?.isAdmitted) all.push(decision);
        return all.length === count;
      });
      return all;
    },
    settled: () => until(() => limiter.leases.unsettled === 0),
    dayTokens: async () =>
      (await readState(world, record.limiterKey(key)))?.dayTokens,
    async noLeases() {
      await until(async () => await leases(record.leaseKey(key)) === 0);
      await until(async () =>
        await leases(record.ownerLeaseKey(key.ownerId)) === 0
      );
    },
  };
}

Deno.test("a connection cut under an admission: its lease is undone on the next connection", async () => {
  await using world = await startRedisWorld();
  await using proxy = startTcpProxy(world.redis.port);
  const t = await stage(world, await world.open(`redis://${proxy.server}`));
  for (const each of await t.admitted(1)) {
    await t.limiter.settle(each, DONE);
  }
  proxy.set({ blackHole: "down" });
  const pending = assert.rejects(t.ask(), { status: 503 });
  await until(async () =>
    await world.command("ZCARD", record.leaseKey(t.key)) === 1
  );
  proxy.cut();
  proxy.set({});
  await pending;
  await t.noLeases();
  await t.admitted(1);
  await t.limiter.leases.stop(1_000);
});

Deno.test("a malformed reply is a fault, and what it may have admitted is returned", async () => {
  await using world = await startRedisWorld();
  const link = await world.open();
  const t = await stage(
    world,
    changedLink(link, {
      async evalScript(script, ...call) {
        const reply = await link.evalScript(script, ...call);
        const isCut = Array.isArray(reply) && script.name === "admit";
        const cut = (each: RedisReply) => Array.isArray(each) ? [] : each;
        return isCut ? reply.map(cut) : reply;
      },
    }),
  );
  const isFault = (error: unknown) =>
    error instanceof Error && !(error instanceof ApiError);
  await assert.rejects(t.ask(), isFault);
  await t.settled();
  await t.noLeases();
  assert.equal(await t.dayTokens(), 0);
  await t.limiter.leases.stop(1_000);
});

Deno.test("settlements made while Redis is frozen arrive once each", async () => {
  await using world = await startRedisWorld();
  const t = await stage(world, await world.open());
  const running = await t.admitted(50);
  const [first = assert.fail()] = running;
  await t.limiter.settle(first, DONE);
  await world.redis.freeze();
  for (const request of running) t.limiter.settle(request, DONE);
  // Longer than a settlement's deadline: each is sent again, uncertain of the first.
  await sleep(1_300);
  assert.equal(t.limiter.leases.unsettled, 49);
  world.redis.thaw();
  await t.settled();
  assert.equal((await usageCounted(world, t.key)).requests, 50);
  assert.equal(await t.dayTokens(), 50 * 100);
  await t.noLeases();
  assert.equal(await t.limiter.leases.stop(1_000), 0);
});

Deno.test("one call admits the requests of a key in one turn of the event loop, and one settles them", async () => {
  await using world = await startRedisWorld({ scripts: EDGE_SCRIPTS });
  const redis = await world.open();
  const log = createRecordingLog();
  const limiter = new Limiter({ redis, now: monotonicNow, log });
  const limits = { ...FULL, concurrency: 5 };
  const keys = [
    await world.addKey({ limits, ownerLimits: FULL, models: "m" }),
    await world.addKey({ limits: FULL, ownerLimits: limits }),
  ];
  const ask = (key: record.Principal, model: string) =>
    limiter.admit(key, { scope: "chat", model, wantTokens: 150 });
  const models = ["m", "m", "other", "m", "m", "m", "m", "m"];
  const calls = await scriptCalls(world);
  const decisions = await Promise.all(
    keys.flatMap((key) => models.map((model) => ask(key, model))),
  );
  assert.equal(await scriptCalls(world) - calls, 2);
  const reasons = decisions.map((each) => each.isAdmitted ? "ok" : each.reason);
  assert.deepEqual(reasons, [
    "ok",
    "ok",
    "model",
    "ok",
    "ok",
    "ok",
    "limited",
    "limited",
    "ok",
    "ok",
    "ok",
    "ok",
    "ok",
    "limited",
    "limited",
    "limited",
  ]);
  const running = decisions.filter((each) => each.isAdmitted);
  const [first = assert.fail()] = running;
  // Redis has lost the lease of one of them.
  await world.command("ZREM", record.leaseKey(first.principal), first.id);
  await Promise.all(running.map((each) => limiter.settle(each, DONE)));
  assert.equal(await scriptCalls(world) - calls, 2 + 3, "two models");
  const late = { ...first.principal, requests: 1 };
  assert.deepEqual(log.find("usage_recorded_late"), late);
  for (const key of keys) {
    assert.equal(await world.command("ZCARD", record.leaseKey(key)), 0);
    assert.equal((await usageCounted(world, key)).requests, 5);
    const state = await readState(world, record.limiterKey(key));
    assert.equal(state?.dayTokens, 5 * 100);
  }
  await limiter.leases.stop(1_000);
});
