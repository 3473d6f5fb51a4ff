// Promise: a jump of Redis' clock gives nobody more than one burst, and keeps nobody
// out for longer than documented. A server's clock cannot be set by a test; what the
// scripts know of time is what is stored, so all that is moved the other way instead.
import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import {
  LIMITER_EPOCH_MS,
  limiterDay,
} from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  limiterKey,
  type Limits,
  ownerLeaseKey,
  ownerLimiterKey,
  type Principal,
} from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import {
  readState,
  type RedisWorld,
  startRedisWorld,
  writeState,
} from "../../../tests/support/admission_fixture.ts";
import { until } from "../../../tests/support/redis_fixture.ts";
import { LEASE_MS } from "./admit.lua.ts";
import { type Admitted, type Ask, type Limiter } from "./limiter.ts";
import { createLeaseKeeper } from "./leases.ts";
import { loneEdge } from "./lone_edge_fixture.ts";

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
/** Leases of this age are renewed. */
const NO_LONGER_YOUNG_MS = 6_000;
const ASK: Ask = {
  scope: "chat",
  model: "m",
  wantTokens: 100,
  requestId: "r",
};
/** Each admits ten requests of {@link ASK}. */
const LIMITS: { name: string; limits: Partial<Limits> }[] = [
  { name: "requests", limits: { requestsPerMinute: 10 } },
  { name: "tokens", limits: { tokensPerMinute: 1_000 } },
  { name: "concurrency", limits: { concurrency: 10 } },
];
const BURST = 10;
const SIDES = ["key", "owner"] as const;

/** The clock jumps by `ms`: what is stored lies that much further back, or ahead. */
async function jump(world: RedisWorld, key: Principal, ms: number) {
  for (const name of [limiterKey(key), ownerLimiterKey(key.ownerId)]) {
    const state = await readState(world, name);
    if (state === null) continue;
    await writeState(world, name, {
      ...state,
      lastAtMs: state.lastAtMs - ms,
      requestsTatMs: state.requestsTatMs - ms,
      tokensTatMs: state.tokensTatMs - ms,
      choresAtMs: state.choresAtMs - ms,
    });
  }
  for (const name of [leaseKey(key), ownerLeaseKey(key.ownerId)]) {
    const leases = await world.command("ZRANGE", name, "0", "-1");
    assert.ok(Array.isArray(leases));
    for (const id of leases) {
      await world.command("ZINCRBY", name, String(-ms), String(id));
    }
  }
}

/** Asks until it is refused. */
async function drain(admission: Limiter, key: Principal) {
  const running: Admitted[] = [];
  while (true) {
    const decision = await admission.admit(key, ASK);
    if (decision.isAdmitted) {
      running.push(decision);
      assert.ok(running.length <= 10 * BURST, "there is no limit any more");
      continue;
    }
    assert.ok(decision.reason === "limited", decision.reason);
    return { running, waitMs: decision.waitMs };
  }
}

async function addKey(
  world: RedisWorld,
  side: typeof SIDES[number],
  limits: Partial<Limits>,
): Promise<Principal> {
  return await world.addKey(
    side === "key" ? { limits } : { ownerLimits: limits },
  );
}

for (const side of SIDES) {
  for (const { name, limits } of LIMITS) {
    Deno.test(`clock of Redis, ${name} of the ${side}: an hour back opens nothing and blocks nobody`, async () => {
      await using world = await startRedisWorld();
      const admission = loneEdge(world.link);
      const key = await addKey(world, side, limits);
      for (let used = 0; used < BURST / 2; used += 1) {
        assert.ok((await admission.admit(key, ASK)).isAdmitted);
      }
      await jump(world, key, -HOUR_MS);
      const { running, waitMs } = await drain(admission, key);
      assert.equal(running.length, BURST / 2);
      assert.ok(waitMs <= MINUTE_MS, `told to wait ${waitMs} ms`);
      // And as long again after the wait that was told.
      await jump(world, key, name === "concurrency" ? LEASE_MS + 1 : waitMs);
      assert.ok((await admission.admit(key, ASK)).isAdmitted);
    });

    Deno.test(`clock of Redis, ${name} of the ${side}: an hour forward is one burst and no more`, async () => {
      await using world = await startRedisWorld();
      const admission = loneEdge(world.link);
      const key = await addKey(world, side, limits);
      assert.equal((await drain(admission, key)).running.length, BURST);
      await jump(world, key, HOUR_MS);
      assert.equal((await drain(admission, key)).running.length, BURST);
      assert.equal((await drain(admission, key)).running.length, 0);
    });

    Deno.test(`clock of Redis, ${name} of the ${side}: an hour forward and back again is one burst and no more`, async () => {
      await using world = await startRedisWorld();
      const admission = loneEdge(world.link);
      const key = await addKey(world, side, limits);
      assert.equal((await drain(admission, key)).running.length, BURST);
      await jump(world, key, HOUR_MS);
      await drain(admission, key);
      await jump(world, key, -HOUR_MS);
      const { running, waitMs } = await drain(admission, key);
      assert.equal(running.length, 0);
      assert.ok(waitMs <= MINUTE_MS, `told to wait ${waitMs} ms`);
    });
  }

  Deno.test(`clock of Redis, the ${side}'s slots of a dead edge: an hour back, free 30 s after the next request`, async () => {
    await using world = await startRedisWorld();
    const dead = loneEdge(world.link);
    const key = await addKey(world, side, { concurrency: 1 });
    assert.ok((await dead.admit(key, ASK)).isAdmitted);
    await jump(world, key, -HOUR_MS);
    const living = loneEdge(world.link);
    assert.equal((await drain(living, key)).running.length, 0);
    const name = side === "key" ? leaseKey(key) : ownerLeaseKey(key.ownerId);
    const [, score] = Object(
      await world.command("ZRANGE", name, "0", "-1", "WITHSCORES"),
    );
    const leftMs = Number(score) + LIMITER_EPOCH_MS - await world.time();
    assert.ok(
      leftMs > LEASE_MS - 1_000 && leftMs <= LEASE_MS,
      `free in ${leftMs} ms`,
    );
    await jump(world, key, LEASE_MS + 1);
    assert.ok((await living.admit(key, ASK)).isAdmitted);
  });

  Deno.test(`clock of Redis, the ${side}'s running requests: they are settled after a jump, and counted again after a renewal`, async () => {
    await using world = await startRedisWorld();
    const key = await addKey(world, side, { concurrency: 2 });
    let skewMs = 0;
    for (const ms of [-HOUR_MS, HOUR_MS]) {
      const admission = loneEdge(world.link);
      const { running } = await drain(admission, key);
      assert.equal(running.length, 2);
      await jump(world, key, ms);
      const keeper = createLeaseKeeper({
        redis: world.link,
        now: () => monotonicNow() + skewMs,
        log: silentLog,
      });
      for (const request of running) keeper.hold(request);
      skewMs += NO_LONGER_YOUNG_MS;
      assert.equal(await keeper.renew(), true);
      assert.equal((await drain(admission, key)).running.length, 0);
      for (const request of running) {
        admission.settle(request, {
          promptTokens: 1,
          completionTokens: 1,
          kind: "complete",
        });
      }
      await until(() => admission.unsettled === 0, 1_000);
      assert.equal(await world.command("ZCARD", leaseKey(key)), 0);
      assert.equal(await world.command("ZCARD", ownerLeaseKey(key.ownerId)), 0);
    }
  });
}

Deno.test("clock of Redis, tokens per day: back over midnight, the budget of the day that had begun goes on", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey({ limits: { tokensPerDay: 1_000 } });
  assert.ok((await admission.admit(key, ASK)).isAdmitted);
  const state = await readState(world, limiterKey(key));
  assert.ok(state !== null);
  const today = limiterDay(await world.time());
  await writeState(world, limiterKey(key), {
    ...state,
    lastAtMs: state.lastAtMs + HOUR_MS,
    day: today + 1,
    dayTokens: 800,
  });
  const { running, waitMs } = await drain(admission, key);
  assert.equal(running.length, 2);
  assert.ok(waitMs <= 48 * HOUR_MS, `told to wait ${waitMs} ms`);
  // At the real midnight the day is the one that is counted already.
  const tomorrow = await readState(world, limiterKey(key));
  assert.equal(tomorrow?.day, today + 1);
  assert.equal(tomorrow?.dayTokens, 1_000);
});

Deno.test("clock of Redis, tokens per day: back by days, at most one more budget", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey({ limits: { tokensPerDay: 1_000 } });
  assert.equal((await drain(admission, key)).running.length, BURST);
  const state = await readState(world, limiterKey(key));
  assert.ok(state !== null);
  const day = limiterDay(await world.time()) + 3;
  await writeState(world, limiterKey(key), { ...state, day });
  assert.equal((await drain(admission, key)).running.length, BURST);
});
