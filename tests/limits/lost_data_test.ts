// Promise: a Redis that answers but has lost its data makes no key unknown. All edges
// answer 503 while it is empty, never 401 and never 429, and serve again within two
// seconds after the data is back, without a restart. A key whose data is corrupt or
// deleted is not served, and says so.
import assert from "node:assert/strict";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import { hashKey, recordKey, STORE_KEY } from "@gateway/shared/keys/record";
import { randomBytes } from "@gateway/shared/process/ids";
import { scriptCalls } from "../support/limits/admission_fixture.ts";
import { readStatus } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LimitedGateway, TestKey } from "../support/gateway/limited.ts";
import type { LimitedEdge } from "../support/gateway/limited_edge.ts";
import { startStopwatch, until } from "../support/wait_for.ts";

const RECOVERY_MS = 2_000;
/** More than may fail to authenticate from one address. */
const CALLS = 30;
const EDGES = 2;

/** A gateway with these keys. */
interface Started extends LimitedGateway {
  /** Known to all edges. */
  usedKey: TestKey;
  /** Known to none. */
  unseen: TestKey;
  /** Nobody's, known to be so by all edges. */
  wrong: TestKey;
}

/** A well-formed key that does not exist. */
function nobodysKey(): TestKey {
  return { keyId: "", ownerId: "", value: mintKey(randomBytes) };
}

async function startWithKeys(): Promise<Started> {
  const gateway = await startGateway("limited", { edges: EDGES });
  const usedKey = await gateway.addKey();
  const unseen = await gateway.addKey();
  const wrong = nobodysKey();
  for (let edge = 0; edge < EDGES; edge += 1) {
    assert.equal(await gateway.status(usedKey, { edge }), 200);
    assert.equal(await gateway.status(wrong, { edge }), 401);
  }
  for (const { log } of gateway.edges) log.lines.length = 0;
  return Object.assign(gateway, { usedKey, unseen, wrong });
}

/** Asks every edge with every key, and with keys that were never asked for. */
async function assertUnavailable(gateway: Started) {
  const { usedKey, unseen } = gateway;
  for (let count = 0; count < CALLS; count += 1) {
    for (const key of [usedKey, unseen, nobodysKey()]) {
      const response = await gateway.ask(key, { edge: count % EDGES });
      const { error } = await response.json();
      assert.equal(response.status, 503, JSON.stringify(error));
      assert.equal(error.code, "service_unavailable");
      assert.equal(response.headers.get("retry-after"), "1");
    }
  }
  // An endpoint that is not limited asks another script.
  assert.equal(await readStatus(gateway.get(usedKey, "models")), 503);
}

/** The new states in the lines of an event. */
const changes = ({ log }: LimitedEdge, event: string) =>
  log.lines.filter((line) => line.event === event)
    .map(({ fields }) => String(fields.to));

/**
 * Waits until every edge has logged these states of its store, and checks that it
 * logged nothing else.
 */
async function assertLogged({ edges }: Started, expected: string[]) {
  for (const edge of edges) {
    await until(() => changes(edge, "key_store").length >= expected.length);
    assert.deepEqual(changes(edge, "key_store"), expected);
  }
}

Deno.test("data lost by a running server and by a restart: 503 until it is back", async () => {
  await using gateway = await startWithKeys();
  const { world, wrong } = gateway;
  const file = `${world.redis.directory}/dump.rdb`;
  await world.command("SAVE");
  const data = await Deno.readFile(file);
  await world.command("FLUSHALL");
  await assertUnavailable(gateway);
  await assertLogged(gateway, ["missing"]);
  // What was known to be nobody's was forgotten with the data it was not in.
  assert.equal(await gateway.status(wrong), 503);
  await world.redis.kill();
  await Deno.remove(file);
  await world.redis.restart();
  await assertUnavailable(gateway);
  await assertLogged(gateway, ["missing"]);
  await world.redis.kill();
  await Deno.writeFile(file, data);
  await world.redis.restart();
  using watch = startStopwatch();
  const places = gateway.edges.map((_, edge) => ({ edge }));
  for (const at of places) {
    for (const key of [gateway.usedKey, gateway.unseen]) {
      await until(async () => await gateway.status(key, at) === 200);
    }
  }
  assert.ok(watch.ms < RECOVERY_MS, `${watch.ms} ms`);
  for (const at of places) {
    assert.equal(await gateway.status(nobodysKey(), at), 401);
  }
  await assertLogged(gateway, ["missing", "present"]);
  const states = ["offline", "ready", "offline", "ready"];
  for (const edge of gateway.edges) {
    assert.deepEqual(changes(edge, "redis_state"), states);
  }
});

Deno.test("other data in place of the old: what was unknown there is asked for again", async () => {
  await using gateway = await startWithKeys();
  const { usedKey, wrong } = gateway;
  // A copy of another day, in which somebody has this key.
  await gateway.world.nameKey(wrong.value, usedKey);
  assert.equal(await gateway.status(wrong), 401, "remembered for 30 s");
  await gateway.world.command("SET", STORE_KEY, "sto_other");
  await assertLogged(gateway, ["replaced"]);
  assert.equal(await gateway.status(wrong), 200);
});

Deno.test("corrupt data in Redis is a fault and no outage: 500, its cause in the log, nothing held", async (t) => {
  await using gateway = await startGateway("limited");
  const { world } = gateway;
  const key = await gateway.addKey({ limits: { concurrency: 100 } });
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
  const { edge } = gateway;
  for (const [name, command] of faults) {
    await t.step(name, async () => {
      for (const each of names) {
        await world.command("COPY", each, `kept:${each}`);
      }
      await world.command(...command);
      edge.log.lines.splice(0);
      const response = await gateway.ask(key);
      const { error } = await response.json();
      assert.equal(response.status, 500, JSON.stringify(error));
      assert.equal(error.code, "internal_error");
      const fault = edge.log.find("request_fault");
      assert.match(String(fault?.error), /corrupt|WRONGTYPE/);
      for (const each of names) {
        await world.command("DEL", each);
        await world.command("COPY", `kept:${each}`, each);
      }
      await gateway.settled(key);
      assert.equal(await gateway.status(key), 200);
      assert.equal(edge.redis.state, "ready");
    });
  }
  await t.step("an unreadable expiry is not for ever", async () => {
    await world.command("HSET", record, "expires_at", "nan");
    assert.equal(await readStatus(gateway.get(key, "models")), 500);
  });
  await t.step("the entry of a key's hash", async () => {
    const other = await gateway.addKey();
    const entry = hashKey(hashKeyValue(other.value));
    await world.command("DEL", entry);
    await world.command("LPUSH", entry, "x");
    assert.equal(await gateway.status(other), 500);
  });
});

Deno.test("a key that was deleted is forgotten, and asked for once more", async () => {
  await using gateway = await startGateway("limited");
  const key = await gateway.addKey();
  assert.equal(await gateway.status(key), 200);
  const { world } = gateway;
  const hash = hashKeyValue(key.value);
  await world.command("DEL", recordKey(key));
  await world.command("DEL", hashKey(hash));
  assert.equal(await gateway.status(key), 401);
  for (const reads of [1, 0]) {
    const before = await scriptCalls(world);
    assert.equal(await gateway.status(key), 401);
    assert.equal(await scriptCalls(world) - before, reads);
  }
});
