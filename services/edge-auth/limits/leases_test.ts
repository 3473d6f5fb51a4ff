import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { LIMITER_EPOCH_MS } from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  ownerLeaseKey,
  type Principal,
} from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  type RedisWorld,
  startRedisWorld,
} from "../../../tests/support/admission_fixture.ts";
import { startTcpProxy } from "../../../tests/support/tcp_proxy.ts";
import { createLeaseKeeper, type Lease } from "./leases.ts";
import { LEASE_MS, RENEW } from "./scripts.ts";

const KEY: Principal = { keyId: "key_a", ownerId: "own_a" };
const KEYS = 100;
const LEASES_EACH = 5;
const ONE_WAY_MS = 100;
/** What the server reads of a connection at once. */
const READ_BYTES = 16 * 1024;
const lease = (id: string): Lease => ({ id, principal: KEY });

function createKeeper(redis: RedisLink) {
  const clock = { skewMs: 0 };
  const now = () => monotonicNow() + clock.skewMs;
  return { clock, ...createLeaseKeeper({ redis, now, log: silentLog }) };
}

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

Deno.test("renewal extends leases after ten seconds, at key and owner, takes lost ones again, and leaves ended ones alone", async () => {
  await using world = await startRedisWorld();
  const keeper = createKeeper(world.link);
  const names = [leaseKey(KEY), ownerLeaseKey(KEY.ownerId)];
  const soon = String(await world.time() - LIMITER_EPOCH_MS + 1_000);
  for (const id of ["old", "ended", "young"]) {
    for (const name of names) await world.command("ZADD", name, soon, id);
  }
  for (const id of ["old", "ended", "lost"]) keeper.hold(lease(id));
  keeper.clock.skewMs = 9_000;
  keeper.hold(lease("young"));
  const renewed = async (name: string) => {
    const isNew = [];
    for (const id of ["old", "ended", "lost", "young"]) {
      const score = Number(await world.command("ZSCORE", name, id));
      const leftMs = score + LIMITER_EPOCH_MS - await world.time();
      if (leftMs > LEASE_MS - 2_000) isNew.push(id);
    }
    return isNew;
  };
  assert.equal(keeper.release("ended"), true);
  assert.equal(keeper.release("ended"), false);
  assert.equal(await keeper.renew(), true);
  for (const name of names) assert.deepEqual(await renewed(name), []);
  keeper.clock.skewMs = 10_000;
  assert.equal(await keeper.renew(), true);
  for (const name of names) {
    assert.deepEqual(await renewed(name), ["old", "lost"]);
    assert.ok(Number(await world.command("PTTL", name)) > 3_600_000);
  }
});

Deno.test("all leases of an edge are renewed in one burst and one round trip", async () => {
  await using world = await startRedisWorld({ scripts: [RENEW] });
  await using proxy = startTcpProxy(world.redis.port);
  const keeper = createKeeper(await world.open(`redis://${proxy.server}`));
  for (let key = 0; key < KEYS; key += 1) {
    const principal = { keyId: `key_${key}`, ownerId: `own_${key % 10}` };
    for (let number = 0; number < LEASES_EACH; number += 1) {
      keeper.hold({ id: `${"e".repeat(16)}.${key}.${number}`, principal });
    }
  }
  // The largest key takes several calls, in the same burst.
  for (let number = 0; number < 500; number += 1) {
    keeper.hold(lease(`${"e".repeat(16)}.l.${number}`));
  }
  keeper.clock.skewMs = 10_000;
  proxy.set({ delayMs: ONE_WAY_MS });
  const before = await traffic(world);
  const startedAtMs = performance.now();
  assert.equal(await keeper.renew(), true);
  const tookMs = performance.now() - startedAtMs;
  const after = await traffic(world);
  assert.equal(await keeper.renew(), true);
  assert.equal((await traffic(world)).calls, after.calls, "none is due again");

  assert.equal(after.calls - before.calls, KEYS + 3);
  // The server reads 16 KiB at a time; one call at a time would be a read each.
  const bytes = after.bytes - before.bytes;
  const reads = after.reads - before.reads;
  assert.ok(reads <= 2 * Math.ceil(bytes / READ_BYTES), `${reads} reads`);
  assert.ok(tookMs < 4 * ONE_WAY_MS, `${tookMs} ms`);
  assert.equal(await world.command("ZCARD", leaseKey(KEY)), 500);
  assert.equal(
    await world.command("ZCARD", ownerLeaseKey("own_3")),
    (KEYS / 10) * LEASES_EACH,
  );
});

Deno.test("a renewal that fails is reported and repeated, and stop() ends the timer", async () => {
  await using world = await startRedisWorld();
  const keeper = createKeeper(await world.open());
  keeper.start();
  keeper.hold(lease("a"));
  keeper.clock.skewMs = 10_000;
  await world.redis.kill();
  assert.equal(await keeper.renew(), false);
  assert.equal(await keeper.renew(), false);
  await keeper.stop();
});
