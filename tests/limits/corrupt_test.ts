// Promise: a key whose data in Redis is corrupt or deleted is not served, and says so.
import assert from "node:assert/strict";
import { hashKey, recordKey } from "@gateway/shared/keys/record";
import { hashKeyValue } from "@gateway/shared/keys/key";
import { scriptCalls } from "../support/admission_fixture.ts";
import { startGatedCluster, statusOf } from "../support/gated_cluster.ts";

Deno.test("corrupt data in Redis is a fault and no outage: 500, its cause in the log, nothing held", async (t) => {
  await using cluster = await startGatedCluster();
  const { world } = cluster;
  const key = await cluster.addKey({ limits: { concurrency: 100 } });
  const { ownerId } = key;
  const record = recordKey(key);
  const [owner, leases] = [`own:{${ownerId}}`, `lease:{${ownerId}}`];
  const faults: readonly [name: string, command: readonly string[]][] = [
    ["a limit in words", ["HSET", record, "rpm", "many"]],
    ["an infinite limit", ["HSET", record, "tpm", "inf"]],
    ["a limit that is no number", ["HSET", record, "conc", "nan"]],
    ["a limit beyond all numbers", ["HSET", record, "tpd", "1e300"]],
    ["half a request", ["HSET", record, "rpm", "0.5"]],
    ["an owner's limit in words", ["HSET", owner, "rpm", "many"]],
    ["an expiry that is no number", ["HSET", record, "expires_at", "nan"]],
    ["a record of another type", ["SET", record, "text"]],
    ["an owner's leases of another type", ["SET", leases, "x"]],
  ];
  const names = [record, owner, leases];
  await world.command("HSET", owner, "rpm", "0", "conc", "90");
  const { edge } = cluster;
  for (const [name, command] of faults) {
    await t.step(name, async () => {
      for (const each of names) {
        await world.command("COPY", each, `kept:${each}`);
      }
      await world.command(...command);
      edge.log.lines.splice(0);
      const response = await cluster.ask(key);
      const { error } = await response.json();
      assert.equal(response.status, 500, JSON.stringify(error));
      assert.equal(error.code, "internal_error");
      const fault = edge.log.find("request_fault");
      assert.match(String(fault?.error), /corrupt|WRONGTYPE/);
      for (const each of names) {
        await world.command("DEL", each);
        await world.command("COPY", `kept:${each}`, each);
      }
      await cluster.settled(key);
      assert.equal(await cluster.status(key), 200);
      assert.equal(edge.redis.state, "ready");
    });
  }
  await t.step("an unreadable expiry is not for ever", async () => {
    await world.command("HSET", record, "expires_at", "nan");
    assert.equal(await statusOf(cluster.get(key, "models")), 500);
  });
  await t.step("the entry of a key's hash", async () => {
    const other = await cluster.addKey();
    const entry = hashKey(hashKeyValue(other.value));
    await world.command("DEL", entry);
    await world.command("LPUSH", entry, "x");
    assert.equal(await cluster.status(other), 500);
  });
});

Deno.test("a key that was deleted is forgotten, and asked for once more", async () => {
  await using cluster = await startGatedCluster();
  const key = await cluster.addKey();
  assert.equal(await cluster.status(key), 200);
  const { world } = cluster;
  const hash = hashKeyValue(key.value);
  await world.command("DEL", recordKey(key));
  await world.command("DEL", hashKey(hash));
  assert.equal(await cluster.status(key), 401);
  for (const reads of [1, 0]) {
    const before = await scriptCalls(world);
    assert.equal(await cluster.status(key), 401);
    assert.equal(await scriptCalls(world) - before, reads);
  }
});
