// Promise: the edge's Redis user can admit and settle requests and do nothing
// else. A stolen edge cannot make, change, list or read out keys.

import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import {
  hashKey,
  leaseKey,
  recordKey,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import { RedisReplyError } from "@gateway/shared/redis/errors";
import { createRedisLink } from "@gateway/shared/redis/link";
import { defineScript } from "@gateway/shared/redis/script";
import {
  readState,
  startRedisWorld,
} from "../../../tests/support/admission_fixture.ts";
import { aclRules } from "../../../tests/support/deployed/acl_users.ts";
import { until } from "../../../tests/support/redis_fixture.ts";
import { createLimiter, LIMITER_PROBE, LIMITER_SCRIPTS } from "./limiter.ts";
import { createKeyLookup, LOOKUP_SCRIPTS } from "../keys/key_lookup.ts";

const PASSWORD = "correct-horse";

function scriptOf(command: string): ReturnType<typeof defineScript> {
  return defineScript(command, `return redis.call(${command})`);
}

Deno.test("the edge's user can look up, admit, renew and settle", async () => {
  await using world = await startRedisWorld();
  await world.command(
    "ACL",
    "SETUSER",
    ...await aclRules("edge-auth", PASSWORD),
  );
  const limits = {
    requestsPerMinute: 100,
    tokensPerMinute: 10_000,
    tokensPerDay: 10_000,
    concurrency: 1,
  };
  const key = await world.addKey({
    owner: `own_${"a".repeat(20)}`,
    limits,
    ownerLimits: limits,
  });
  await world.command("SET", hashKey("h"), `${key.keyId}:${key.ownerId}`);
  const scripts = [...LIMITER_SCRIPTS, ...LOOKUP_SCRIPTS];
  const link = createRedisLink({
    address: {
      url: world.redis.url,
      username: "edge-auth",
      password: PASSWORD,
      clientName: "edge-1",
    },
    log: silentLog,
    now: monotonicNow,
    random: Math.random,
    scripts,
    probe: LIMITER_PROBE,
    deadlineMs: 1_000,
  });
  await link.ready(5_000);
  const needs = {
    redis: link,
    now: monotonicNow,
    random: Math.random,
    log: silentLog,
  };
  const admission = createLimiter({ ...needs, deadlineMs: 1_000 });
  const lookup = createKeyLookup({ ...needs, unknownPerSecond: 20 });
  assert.deepEqual(await lookup.find("h", ""), key);
  assert.equal(await lookup.find("nobody's", ""), null);
  assert.deepEqual(await lookup.check(key, "chat"), []);
  const ask = { scope: "chat", model: "m", wantTokens: 100, requestId: "r" };
  const request = await admission.admit(key, { ...ask, scope: "chat" });
  assert.ok(request.isAdmitted);
  // The second one reaches the branch that counts leases.
  assert.equal(
    (await admission.admit(key, { ...ask, scope: "chat" })).isAdmitted,
    false,
  );
  // A lost lease reaches the branches of renewal and of late settlement.
  await world.command("DEL", leaseKey(key));
  admission.settle(request, {
    promptTokens: 1,
    completionTokens: 1,
    kind: "failed",
  });
  await until(() => admission.unsettled === 0, 2_000);
  assert.equal((await readState(world, `lim:{${key.ownerId}}`))?.dayTokens, 2);
  for (const script of scripts) {
    assert.match(script.sha, /^[0-9a-f]{40}$/);
  }
  assert.equal(await admission.stop(1_000), 0);
  await link.close();
});

Deno.test("ASVS 13.2.2: the edge's user can do nothing else", async (t) => {
  await using world = await startRedisWorld();
  await world.command(
    "ACL",
    "SETUSER",
    ...await aclRules("edge-auth", PASSWORD),
  );
  const key = await world.addKey();
  const record = recordKey(key);
  await world.command("SET", "session:x", "secret");
  const link = createRedisLink({
    address: {
      url: world.redis.url,
      username: "edge-auth",
      password: PASSWORD,
    },
    log: silentLog,
    now: monotonicNow,
    random: Math.random,
    deadlineMs: 1_000,
  });
  await link.ready(5_000);
  const denied = async (call: Promise<unknown>) => {
    await assert.rejects(call, (error) => {
      assert.ok(error instanceof RedisReplyError, String(error));
      assert.match(error.message, /NOPERM|can't (access|run)|ACL failure/);
      return true;
    });
  };
  const commands = [
    ["HSET", record, "state", "enabled"],
    ["SET", hashKey("mine"), "key:own"],
    ["SET", STORE_KEY, "mine"],
    ["DEL", STORE_KEY],
    ["HGETALL", record],
    ["DEL", record],
    ["KEYS", "*"],
    ["SCAN", "0"],
    ["RANDOMKEY"],
    ["DUMP", record],
    ["GET", "session:x"],
    ["HGET", "session:x", "a"],
    ["XADD", "audit:{o}", "*", "a", "b"],
    ["EVAL", "return 1", "0"],
    ["SCRIPT", "FLUSH"],
    ["SCRIPT", "KILL"],
    ["FUNCTION", "LIST"],
    ["CONFIG", "GET", "*"],
    ["CONFIG", "SET", "dir", "/tmp"],
    ["FLUSHALL"],
    ["FLUSHDB"],
    ["SHUTDOWN", "NOSAVE"],
    ["REPLICAOF", "NO", "ONE"],
    ["ACL", "LIST"],
    ["ACL", "SETUSER", "edge-auth", "+@all"],
    ["CLIENT", "KILL", "TYPE", "normal"],
    ["CLIENT", "LIST"],
    ["MONITOR"],
    ["SUBSCRIBE", "x"],
    ["PUBLISH", "x", "y"],
    ["INFO"],
    ["MODULE", "LIST"],
    ["MIGRATE", "h", "1", "k", "0", "1"],
    ["SORT", record],
    ["COPY", record, "lim:x"],
    ["RENAME", "lim:x", record],
  ];
  for (const command of commands) {
    await t.step(command.join(" "), () => denied(link.command(command)));
  }
  // A loaded script has no more rights than its caller.
  const inScript: [command: string, keys: string[]][] = [
    [`'HSET', ARGV[1], 'state', 'enabled'`, []],
    [`'HSET', KEYS[1], 'state', 'enabled'`, [record]],
    [`'SET', 'hash:mine', 'x'`, []],
    [`'SET', '${STORE_KEY}', 'x'`, []],
    [`'DEL', ARGV[1]`, []],
    [`'KEYS', '*'`, []],
    [`'GET', 'session:x'`, []],
    [`'HGETALL', ARGV[1]`, []],
    [`'FLUSHALL'`, []],
  ];
  for (const [command, keys] of inScript) {
    await t.step(`in a script: ${command}`, async () => {
      await denied(link.evalScript(scriptOf(command), keys, [record]));
    });
  }
  assert.equal(await world.command("HGET", record, "state"), "enabled");
  await link.close();
});
