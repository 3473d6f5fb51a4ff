// Promise: what was reserved or used while Redis could not answer is neither lost nor
// counted twice. What callers get meanwhile: `tests/limits/outage_timed_test.ts`.

import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import * as record from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import { ApiError } from "@gateway/shared/openai/error";
import type { RedisLink } from "@gateway/shared/redis/link";
import * as fixture from "../../../tests/support/admission_fixture.ts";
import { sleep, until } from "../../../tests/support/wait_for.ts";
import { startTcpProxy } from "../../../tests/support/tcp_proxy.ts";
import { type Admitted, createLimiter } from "./limiter.ts";

const FULL = {
  ...{ requestsPerMinute: 1_000, tokensPerMinute: 60_000 },
  ...{ tokensPerDay: 1_000_000, concurrency: 100 },
};

/** An edge with this link, and a key with all limits. */
async function stage(world: fixture.RedisWorld, redis: RedisLink) {
  const limiter = createLimiter({ redis, now: monotonicNow, log: silentLog });
  const key = await world.addKey({ limits: FULL, ownerLimits: FULL });
  const ask = () =>
    limiter.admit(key, { scope: "chat", model: "m", wantTokens: 100 });
  const leases = (name: string) => world.command("ZCARD", name);
  return {
    ...{ limiter, key, ask },
    /** Admits while Redis works; on a busy machine it may be silent for a moment. */
    async admitted(count: number): Promise<Admitted[]> {
      const all: Admitted[] = [];
      await until(async () => {
        const decision = await ask().catch(() => null);
        if (decision?.isAdmitted) all.push(decision);
        return all.length === count;
      });
      return all;
    },
    settled: () => until(() => limiter.leases.unsettled === 0),
    dayTokens: async () =>
      (await fixture.readState(world, record.limiterKey(key)))?.dayTokens,
    async noLeases() {
      await until(async () => await leases(record.leaseKey(key)) === 0);
      await until(async () =>
        await leases(record.ownerLeaseKey(key.ownerId)) === 0
      );
    },
  };
}

Deno.test("a connection cut under an admission: its lease is undone on the next connection", async () => {
  await using world = await fixture.startRedisWorld();
  await using proxy = startTcpProxy(world.redis.port);
  const t = await stage(world, await world.open(`redis://${proxy.server}`));
  for (const each of await t.admitted(1)) {
    await t.limiter.settle(each, fixture.DONE);
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
  await using world = await fixture.startRedisWorld();
  const link = await world.open();
  const t = await stage(world, {
    ...link,
    async evalScript(script, ...call) {
      const reply = await link.evalScript(script, ...call);
      const isCut = Array.isArray(reply) && script.name === "admit";
      return isCut ? reply.slice(0, 5) : reply;
    },
  });
  const isFault = (error: unknown) =>
    error instanceof Error && !(error instanceof ApiError);
  await assert.rejects(t.ask(), isFault);
  await t.settled();
  await t.noLeases();
  assert.equal(await t.dayTokens(), 0);
  await t.limiter.leases.stop(1_000);
});

Deno.test("settlements made while Redis is frozen arrive once each", async () => {
  await using world = await fixture.startRedisWorld();
  const t = await stage(world, await world.open());
  const running = await t.admitted(50);
  const [first = assert.fail()] = running;
  await t.limiter.settle(first, fixture.DONE);
  await world.redis.freeze();
  for (const request of running) t.limiter.settle(request, fixture.DONE);
  // Longer than a settlement's deadline: each is sent again, uncertain of the first.
  await sleep(1_300);
  assert.equal(t.limiter.leases.unsettled, 49);
  world.redis.thaw();
  await t.settled();
  assert.equal((await fixture.usageCounted(world, t.key)).requests, 50);
  assert.equal(await t.dayTokens(), 50 * 100);
  await t.noLeases();
  assert.equal(await t.limiter.leases.stop(1_000), 0);
});
