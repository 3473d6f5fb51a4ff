import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/clock";
import { LIMITER_EPOCH_MS } from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  ownerLeaseKey,
  type Principal,
} from "@gateway/shared/keys/record";
import { type Log, silentLog } from "@gateway/shared/log";
import { startRedisWorld } from "../../tests/support/admission_fixture.ts";
import { LEASE_MS } from "./admit.lua.ts";
import { createLeaseKeeper, type Lease } from "./lease_keeper.ts";

const KEY: Principal = { keyId: "key_a", ownerId: "own_a" };

function lease(id: string, isOwnerCounted = true): Lease {
  return { id, principal: KEY, isOwnerCounted, isLost: false };
}

Deno.test("renewal extends leases that are not young, at key and owner, and leaves ended ones alone", async () => {
  await using world = await startRedisWorld();
  let skewMs = 0;
  const keeper = createLeaseKeeper({
    redis: world.link,
    now: () => monotonicNow() + skewMs,
    log: silentLog,
  });
  const soon = String(await world.time() - LIMITER_EPOCH_MS + 1_000);
  const [old, ended, plain] = [lease("old"), lease("ended"), lease("p", false)];
  for (const { id } of [old, ended, plain, lease("young")]) {
    await world.command("ZADD", leaseKey(KEY), soon, id);
    await world.command("ZADD", ownerLeaseKey(KEY.ownerId), soon, id);
  }
  for (const each of [old, ended, plain]) keeper.hold(each);
  skewMs = 6_000;
  keeper.hold(lease("young"));
  assert.equal(keeper.release("ended"), true);
  assert.equal(keeper.release("ended"), false);
  assert.equal(await keeper.renew(), true);
  const endsIn = async (key: string, id: string) => {
    const score = Number(await world.command("ZSCORE", key, id));
    return score + LIMITER_EPOCH_MS - await world.time();
  };
  const renewed = async (key: string, id: string) =>
    await endsIn(key, id) > LEASE_MS - 2_000;
  assert.equal(await renewed(leaseKey(KEY), "old"), true);
  assert.equal(await renewed(leaseKey(KEY), "p"), true);
  assert.equal(await renewed(leaseKey(KEY), "ended"), false);
  assert.equal(await renewed(leaseKey(KEY), "young"), false);
  assert.equal(await renewed(ownerLeaseKey(KEY.ownerId), "old"), true);
  assert.equal(await renewed(ownerLeaseKey(KEY.ownerId), "p"), false);
  assert.equal(old.isLost, false);
});

Deno.test("renewal takes a lost lease anew, marks it, and says so once", async () => {
  await using world = await startRedisWorld();
  let skewMs = 0;
  const lines: unknown[] = [];
  const log: Log = {
    ...silentLog,
    warn: (event, fields) => lines.push([event, fields]),
  };
  const keeper = createLeaseKeeper({
    redis: world.link,
    now: () => monotonicNow() + skewMs,
    log,
  });
  const lost = lease("lost");
  keeper.hold(lost);
  skewMs = 6_000;
  await keeper.renew();
  assert.equal(lost.isLost, true);
  assert.equal(await world.command("ZCARD", leaseKey(KEY)), 1);
  assert.ok(Number(await world.command("PTTL", leaseKey(KEY))) > 0);
  await world.command("DEL", leaseKey(KEY));
  await keeper.renew();
  assert.deepEqual(lines, [["lease_lost", { keyId: "key_a", count: 1 }]]);
});

Deno.test("a thousand leases are renewed in batches", async () => {
  await using world = await startRedisWorld();
  let skewMs = 0;
  const keeper = createLeaseKeeper({
    redis: world.link,
    now: () => monotonicNow() + skewMs,
    log: silentLog,
  });
  for (let i = 0; i < 1_000; i++) keeper.hold(lease(`lease${i}`));
  skewMs = 6_000;
  assert.equal(await keeper.renew(), true);
  assert.equal(await world.command("ZCARD", leaseKey(KEY)), 1_000);
});

Deno.test("a renewal that fails is reported, and stop() ends the timer", async () => {
  await using world = await startRedisWorld();
  let skewMs = 0;
  const link = await world.open();
  const keeper = createLeaseKeeper({
    redis: link,
    now: () => monotonicNow() + skewMs,
    log: silentLog,
  });
  keeper.start();
  keeper.hold(lease("a"));
  skewMs = 6_000;
  await world.redis.kill();
  assert.equal(await keeper.renew(), false);
  await keeper.stop();
});
