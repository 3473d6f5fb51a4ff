// Promise: the edge's Redis user can look up, admit, renew and settle. That it can do
// nothing else is shown by `tests/deploy/store_privilege_test.ts`.

import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { hashKey, leaseKey } from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import {
  readState,
  startRedisWorld,
} from "../../../tests/support/admission_fixture.ts";
import { aclRules } from "../../../tests/support/deployed/acl_users.ts";
import { testRedisLink } from "../../../tests/support/redis_link.ts";
import { createKeyLookup } from "../keys/authenticate.ts";
import { createLeases } from "./leases.ts";
import { Limiter, LIMITER_PROBE } from "./limiter.ts";
import { EDGE_SCRIPTS } from "./scripts.ts";

const LIMITS = {
  requestsPerMinute: 100,
  tokensPerMinute: 10_000,
  tokensPerDay: 10_000,
  concurrency: 1,
};

Deno.test("the edge's user can look up, admit, renew and settle", async () => {
  await using world = await startRedisWorld();
  const [username, password] = ["edge-auth", "correct-horse"];
  const rules = await aclRules(username, password);
  await world.command("ACL", "SETUSER", ...rules);
  const owner = `own_${"a".repeat(20)}`;
  const limits = { limits: LIMITS, ownerLimits: LIMITS };
  const key = await world.addKey({ owner, ...limits });
  await world.command("SET", hashKey("h"), `${key.keyId}:${key.ownerId}`);
  let skewMs = 0;
  const clocks = {
    log: silentLog,
    now: () => monotonicNow() + skewMs,
    random: Math.random,
    deadlineMs: 1_000,
  };
  const address = { url: world.redis.url, username, password };
  const redis = testRedisLink({ ...address, clientName: "edge-1" }, {
    ...clocks,
    scripts: EDGE_SCRIPTS,
    probe: LIMITER_PROBE,
  });
  await redis.ready(5_000);
  const limiter = new Limiter({ redis, ...clocks });
  const lookup = createKeyLookup({ redis, ...clocks, unknownPerSecond: 20 });
  assert.deepEqual(await lookup.find("h", () => ""), key);
  assert.equal(await lookup.find("nobody's", () => ""), null);
  assert.deepEqual(await limiter.rightsOf(key, "chat"), []);
  const ask = { scope: "chat", model: "m", wantTokens: 100 } as const;
  const request = await limiter.admit(key, ask);
  assert.ok(request.isAdmitted);
  // The second one reaches the branch that counts leases.
  assert.equal((await limiter.admit(key, ask)).isAdmitted, false);
  const leases = createLeases({ redis, ...clocks });
  leases.hold(request);
  skewMs = 10_000;
  assert.equal(await leases.renew(), true);
  await leases.stop(0);
  // A lost lease reaches the branch of late settlement.
  await world.command("DEL", leaseKey(key));
  const cost = {
    promptTokens: 1,
    completionTokens: 1,
    kind: "failed",
  } as const;
  await limiter.settle(request, cost);
  assert.equal(limiter.unsettled, 0);
  assert.equal((await readState(world, `lim:{${owner}}`))?.dayTokens, 2);
  assert.equal(redis.state, "ready");
  assert.equal(await limiter.stop(1_000), 0);
  await redis.close();
});
