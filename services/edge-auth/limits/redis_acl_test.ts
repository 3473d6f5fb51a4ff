// Promise: the edge's Redis user can look up, admit and settle. That it can do
// nothing else is shown by `tests/deploy/store_privilege_test.ts`.

import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { hashKey, leaseKey } from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import { createRedisLink } from "@gateway/shared/redis/link";
import {
  readState,
  startRedisWorld,
} from "../../../tests/support/admission_fixture.ts";
import { aclRules } from "../../../tests/support/deployed/acl_users.ts";
import { until } from "../../../tests/support/redis_fixture.ts";
import { Limiter, LIMITER_PROBE, LIMITER_SCRIPTS } from "./limiter.ts";
import { createKeyLookup, LOOKUP_SCRIPTS } from "../keys/key_lookup.ts";

const PASSWORD = "correct-horse";

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
  const admission = new Limiter({ ...needs, deadlineMs: 1_000 });
  const lookup = createKeyLookup({ ...needs, unknownPerSecond: 20 });
  assert.deepEqual(await lookup.find("h", ""), key);
  assert.equal(await lookup.find("nobody's", ""), null);
  assert.deepEqual(await lookup.check(key, "chat"), []);
  const ask = { scope: "chat", model: "m", wantTokens: 100 };
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
