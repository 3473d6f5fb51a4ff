// Promise: without an answer from Redis nobody is admitted and nobody is called
// unknown; the edge says 503 within 150 ms, recovers without a restart, and what
// was reserved or used meanwhile is neither lost nor counted twice.

import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { usageDay, usageHour } from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerLimiterKey,
  type Principal,
  usageKey,
} from "@gateway/shared/keys/record";
import { type Log, silentLog } from "@gateway/shared/process/log";
import { ApiError } from "@gateway/shared/openai/error";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  readState,
  type RedisWorld,
  startRedisWorld,
} from "../../../tests/support/admission_fixture.ts";
import { SCHEDULING_ALLOWANCE_MS } from "../../../tests/support/wait_for.ts";
import { delay, until } from "../../../tests/support/redis_fixture.ts";
import { startTcpProxy } from "../../../tests/support/tcp_proxy.ts";
import {
  type Admitted,
  createLimiter,
  type Limiter,
  type Refusal,
} from "./limiter.ts";

const BUDGET_MS = 150;
const RECOVERY_MS = 2_000;
const DONE = {
  promptTokens: 40,
  completionTokens: 60,
  kind: "complete",
} as const;

function edge(redis: RedisLink, log: Log = silentLog): Limiter {
  const clocks = { now: monotonicNow, random: Math.random };
  return createLimiter({ redis, ...clocks, log });
}

function ask(
  admission: Limiter,
  principal: Principal,
): Promise<Admitted | Refusal> {
  return admission.admit(principal, {
    scope: "chat",
    model: "m",
    wantTokens: 100,
  });
}

/** Admits while Redis works; on a busy machine it may be silent for a moment. */
async function admitted(
  admission: Limiter,
  principal: Principal,
): Promise<Admitted> {
  for (let attempt = 1;; attempt++) {
    try {
      const decision = await ask(admission, principal);
      assert.ok(decision.isAdmitted, JSON.stringify(decision));
      return decision;
    } catch (error) {
      if (!(error instanceof ApiError) || attempt === 5) throw error;
      await delay(300);
    }
  }
}

async function assertUnavailable(
  admission: Limiter,
  principal: Principal,
): Promise<void> {
  const startedAtMs = monotonicNow();
  await assert.rejects(
    ask(admission, principal),
    (error) =>
      error instanceof ApiError && error.code === "service_unavailable" &&
      error.status === 503 && error.retryAfterMs === 1_000,
  );
  const tookMs = monotonicNow() - startedAtMs;
  assert.ok(tookMs <= BUDGET_MS + SCHEDULING_ALLOWANCE_MS, `took ${tookMs} ms`);
}

async function admitsAgain(
  admission: Limiter,
  principal: Principal,
): Promise<void> {
  await until(
    () => ask(admission, principal).then((d) => d.isAdmitted, () => false),
    RECOVERY_MS,
  );
}

async function usedRequests(
  world: RedisWorld,
  principal: Principal,
): Promise<string | null> {
  const nowMs = await world.time();
  const value = await world.command(
    "HGET",
    usageKey(principal, usageDay(nowMs)),
    `${usageHour(nowMs)}:req`,
  );
  return value === null ? null : String(value);
}

const FULL = {
  requestsPerMinute: 1_000,
  tokensPerMinute: 60_000,
  tokensPerDay: 1_000_000,
  concurrency: 100,
};

/** Both have no slot that is taken. */
async function noLeases(world: RedisWorld, key: Principal): Promise<void> {
  for (const name of [leaseKey(key), ownerLeaseKey(key.ownerId)]) {
    await until(
      async () => Number(await world.command("ZCARD", name)) === 0,
      RECOVERY_MS,
    );
  }
}

Deno.test("frozen Redis: 503 in time, and the admission that came too late is undone", async () => {
  await using world = await startRedisWorld();
  const admission = edge(await world.open());
  const key = await world.addKey({ limits: FULL, ownerLimits: FULL });
  // The script is known, so the frozen call is the admission itself.
  admission.settle(await admitted(admission, key), DONE);
  await until(() => admission.unsettled === 0, 1_000);
  const before = await readState(world, limiterKey(key)) ?? assert.fail();
  world.redis.freeze();
  await Promise.all(
    Array.from({ length: 20 }, () => assertUnavailable(admission, key)),
  );
  await assertUnavailable(admission, key);
  world.redis.thaw();
  await until(
    async () => {
      const state = await readState(world, limiterKey(key)).catch(() => null);
      return state !== null && state.lastAtMs > before.lastAtMs &&
        admission.unsettled === 0;
    },
    RECOVERY_MS,
  );
  await noLeases(world, key);
  for (const name of [limiterKey(key), ownerLimiterKey(key.ownerId)]) {
    const after = await readState(world, name) ?? assert.fail();
    assert.equal(after.dayTokens, before.dayTokens, "it was given back");
    assert.ok(after.tokensTatMs <= after.lastAtMs + 1);
    assert.ok(after.requestsTatMs <= after.lastAtMs + 1, "the requests too");
  }
  assert.equal(await usedRequests(world, key), "1", "nothing was used by it");
  await admitsAgain(admission, key);
  await admission.stop(1_000);
});

Deno.test("a connection cut under an admission: its lease is undone on the next connection", async () => {
  await using world = await startRedisWorld();
  await using proxy = startTcpProxy(world.redis.port);
  const link = await world.open(`redis://${proxy.server}`);
  const admission = edge(link);
  const key = await world.addKey({ limits: FULL, ownerLimits: FULL });
  admission.settle(await admitted(admission, key), DONE);
  await until(() => admission.unsettled === 0, 1_000);
  proxy.set({ blackHole: "down" });
  const pending = assertUnavailable(admission, key);
  await until(
    async () => Number(await world.command("ZCARD", leaseKey(key))) === 1,
    1_000,
  );
  proxy.cut();
  proxy.set({});
  await pending;
  await noLeases(world, key);
  await admitsAgain(admission, key);
  await admission.stop(1_000);
});

Deno.test("an answer that is no answer is a fault, and what it may have admitted is given back", async () => {
  await using world = await startRedisWorld();
  const link = await world.open();
  const garbled: RedisLink = {
    ...link,
    get state() {
      return link.state;
    },
    evalScript: async (script, ...call) => {
      const reply = await link.evalScript(script, ...call);
      return Array.isArray(reply) && script.name === "admit"
        ? reply.slice(0, 5)
        : reply;
    },
  };
  const admission = edge(garbled);
  const key = await world.addKey({ limits: FULL, ownerLimits: FULL });
  await assert.rejects(
    ask(admission, key),
    (error) => error instanceof Error && !(error instanceof ApiError),
  );
  await until(() => admission.unsettled === 0, 1_000);
  await noLeases(world, key);
  const state = await readState(world, limiterKey(key));
  assert.equal(state?.dayTokens, 0);
  await admission.stop(1_000);
});

Deno.test("settlements made while Redis is frozen arrive once each", async () => {
  await using world = await startRedisWorld();
  const admission = edge(await world.open());
  const key = await world.addKey({ limits: FULL });
  const running = await Promise.all(
    Array.from({ length: 50 }, () => admitted(admission, key)),
  );
  admission.settle(running[0] ?? assert.fail(), DONE);
  await until(() => admission.unsettled === 0, 1_000);
  world.redis.freeze();
  for (const request of running) admission.settle(request, DONE);
  // Longer than a settlement's deadline: each is sent again, uncertain of the first.
  await delay(1_300);
  assert.equal(admission.unsettled, 49);
  world.redis.thaw();
  await until(() => admission.unsettled === 0, 3_000);
  assert.equal(await usedRequests(world, key), "50");
  const state = await readState(world, limiterKey(key));
  assert.equal(state?.dayTokens, 50 * 100);
  await noLeases(world, key);
  assert.equal(await admission.stop(1_000), 0);
});

Deno.test("settlements made while Redis is down are delivered after its restart, and stop() waits for them", async () => {
  await using world = await startRedisWorld({
    config: ["appendonly yes", "appendfsync always"],
  });
  const admission = edge(await world.open());
  const key = await world.addKey({ limits: FULL });
  const running = await Promise.all(
    Array.from({ length: 10 }, () => admitted(admission, key)),
  );
  await world.redis.kill();
  for (const request of running) admission.settle(request, DONE);
  const stopping = admission.stop(5_000);
  await world.redis.start();
  assert.equal(await stopping, 0);
  await world.link.ready(RECOVERY_MS);
  assert.equal(await usedRequests(world, key), "10");
  await noLeases(world, key);
});

Deno.test("stop() says how many settlements it could not deliver", async () => {
  await using world = await startRedisWorld();
  const lost: unknown[] = [];
  const log: Log = {
    ...silentLog,
    error: (event, fields) => lost.push([event, fields]),
  };
  const admission = edge(await world.open(), log);
  const key = await world.addKey();
  const request = await admitted(admission, key);
  await world.redis.kill();
  admission.settle(request, DONE);
  assert.equal(await admission.stop(200), 1);
  assert.deepEqual(lost, [["settle_lost", { count: 1, reason: "shutdown" }]]);
});
