import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { LIMITER_EPOCH_MS } from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  ownerLeaseKey,
  type Principal,
} from "@gateway/shared/keys/record";
import { type Log, silentLog } from "@gateway/shared/process/log";
import {
  type RedisWorld,
  startRedisWorld,
} from "../../../tests/support/admission_fixture.ts";
import { startTcpProxy } from "../../../tests/support/tcp_proxy.ts";
import { LEASE_MS } from "./admit.lua.ts";
import { createLeaseKeeper, type Lease, RENEW } from "./leases.ts";

const KEY: Principal = { keyId: "key_a", ownerId: "own_a" };

const KEYS = 100;
const LEASES_EACH = 5;
const ONE_WAY_MS = 100;
/** What the server reads of a connection at once. */
const READ_BYTES = 16 * 1024;

/** Script calls, reads and bytes that the server has seen. */
async function traffic(world: RedisWorld) {
  const text = String(await world.command("INFO", "all"));
  const count = (pattern: RegExp) => Number(pattern.exec(text)?.[1] ?? 0);
  return {
    calls: count(/cmdstat_evalsha:calls=(\d+)/),
    reads: count(/total_reads_processed:(\d+)/),
    bytes: count(/total_net_input_bytes:(\d+)/),
  };
}

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

Deno.test("all leases of an edge are renewed in one burst and one round trip", async () => {
  await using world = await startRedisWorld({ scripts: [RENEW] });
  await using proxy = startTcpProxy(world.redis.port);
  const link = await world.open(`redis://${proxy.server}`);
  let skewMs = 0;
  const keeper = createLeaseKeeper({
    redis: link,
    now: () => monotonicNow() + skewMs,
    log: silentLog,
  });
  for (let key = 0; key < KEYS; key += 1) {
    const principal = { keyId: `key_${key}`, ownerId: `own_${key % 10}` };
    for (let number = 0; number < LEASES_EACH; number += 1) {
      const id = `${"e".repeat(16)}.${key}.${number}`;
      keeper.hold({ id, principal, isOwnerCounted: true, isLost: false });
    }
  }
  // The largest key takes several calls, in the same burst.
  for (let number = 0; number < 500; number += 1) {
    keeper.hold(lease(`${"e".repeat(16)}.l.${number}`));
  }
  skewMs = 6_000;
  proxy.set({ delayMs: ONE_WAY_MS });
  const before = await traffic(world);
  const startedAtMs = performance.now();
  assert.equal(await keeper.renew(), true);
  const tookMs = performance.now() - startedAtMs;
  const after = await traffic(world);

  assert.equal(after.calls - before.calls, KEYS + 3);
  // The server reads 16 KiB at a time; one call at a time would be a read each.
  const bytes = after.bytes - before.bytes;
  const reads = after.reads - before.reads;
  assert.ok(reads <= 2 * Math.ceil(bytes / READ_BYTES), `${reads} reads`);
  assert.ok(reads < KEYS / 2, `${reads} reads for ${KEYS} keys`);
  assert.ok(tookMs < 4 * ONE_WAY_MS, `${tookMs} ms`);
  assert.equal(await world.command("ZCARD", leaseKey(KEY)), 500);
  assert.equal(
    await world.command("ZCARD", ownerLeaseKey("own_3")),
    (KEYS / 10) * LEASES_EACH,
  );
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
