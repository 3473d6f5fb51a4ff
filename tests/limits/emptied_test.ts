/**
 * Guarantee: a Redis that answers but has lost its data makes no key unknown. All
 * edges answer 503 while it is empty, never 401 and never 429, and serve again within
 * two seconds after the data is back, without a restart.
 */
import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import { mintKey } from "@gateway/shared/keys/key";
import { STORE_KEY } from "@gateway/shared/keys/record";
import {
  type GatedCluster,
  type GatedEdge,
  startGatedCluster,
  statusOf,
  type TestKey,
} from "../support/gated_cluster.ts";
import { startStopwatch, until, waitFor } from "../support/wait_for.ts";

const RECOVERY_MS = 2_000;
/** More than may fail to authenticate from one address. */
const ASKED = 30;
const EDGES = 2;

interface Keys {
  /** Known to all edges. */
  seen: TestKey;
  /** Known to none. */
  unseen: TestKey;
  /** Nobody's, known to be so by all edges. */
  wrong: TestKey;
}

/** A well-formed key that does not exist. */
function nobodysKey(): TestKey {
  return { keyId: "", ownerId: "", value: mintKey(randomBytes) };
}

/** Asks every edge with every key, and with keys that were never asked for. */
async function assertUnavailable(
  cluster: GatedCluster,
  { seen, unseen }: Keys,
): Promise<void> {
  for (let count = 0; count < ASKED; count += 1) {
    for (const key of [seen, unseen, nobodysKey()]) {
      const response = await cluster.ask(key, { edge: count % EDGES });
      const { error } = await response.json();
      assert.equal(response.status, 503, JSON.stringify(error));
      assert.equal(error.code, "service_unavailable");
      assert.equal(response.headers.get("retry-after"), "1");
    }
  }
  // An endpoint that is not limited asks another script.
  const models = await fetch(`${cluster.edge.baseUrl}/models`, {
    headers: { authorization: `Bearer ${seen.value}` },
  });
  assert.equal(await statusOf(models), 503);
}

async function assertRecovers(cluster: GatedCluster, keys: Keys) {
  using watch = startStopwatch();
  for (let edge = 0; edge < EDGES; edge += 1) {
    for (const key of [keys.seen, keys.unseen]) {
      await waitFor(
        async () => await statusOf(cluster.ask(key, { edge })) === 200,
        { what: "service with the data back", intervalMs: 20 },
      );
    }
  }
  assert.ok(watch.ms < RECOVERY_MS, `${watch.ms} ms`);
  for (let edge = 0; edge < EDGES; edge += 1) {
    assert.equal(await statusOf(cluster.ask(nobodysKey(), { edge })), 401);
  }
}

/** What the lines of an event since the last look say that it is now. */
function changes({ log }: GatedEdge, event: string): string[] {
  return log.lines.filter((line) => line.event === event)
    .map(({ fields }) => String(fields.to));
}

/** Waits until every edge has said this of its store, and checks that it said nothing else. */
async function assertSaid(cluster: GatedCluster, expected: string[]) {
  for (const edge of cluster.edges) {
    await until(() => changes(edge, "key_store").length >= expected.length);
    assert.deepEqual(changes(edge, "key_store"), expected);
  }
}

async function startWithKeys() {
  const cluster = await startGatedCluster({ edges: EDGES });
  const keys = {
    seen: await cluster.addKey(),
    unseen: await cluster.addKey(),
    wrong: nobodysKey(),
  };
  for (let edge = 0; edge < EDGES; edge += 1) {
    assert.equal(await statusOf(cluster.ask(keys.seen, { edge })), 200);
    assert.equal(await statusOf(cluster.ask(keys.wrong, { edge })), 401);
  }
  for (const { log } of cluster.edges) log.lines.length = 0;
  return { cluster, keys };
}

Deno.test("data lost by a running server and by a restart: 503 until it is back", async () => {
  const { cluster, keys } = await startWithKeys();
  await using _ = cluster;
  const { world } = cluster;
  const reply = await world.command("CONFIG", "GET", "dir");
  assert.ok(Array.isArray(reply));
  const file = `${reply[1]}/dump.rdb`;
  await world.command("SAVE");
  const data = await Deno.readFile(file);
  await world.command("FLUSHALL");
  await assertUnavailable(cluster, keys);
  await assertSaid(cluster, ["missing"]);
  // What was known to be nobody's was forgotten with the data it was not in.
  assert.equal(await statusOf(cluster.ask(keys.wrong)), 503);
  await world.redis.kill();
  await Deno.remove(file);
  await world.redis.restart();
  await assertUnavailable(cluster, keys);
  await assertSaid(cluster, ["missing"]);
  await world.redis.kill();
  await Deno.writeFile(file, data);
  await world.redis.restart();
  await assertRecovers(cluster, keys);
  await assertSaid(cluster, ["missing", "present"]);
  for (const edge of cluster.edges) {
    assert.deepEqual(
      changes(edge, "redis_state"),
      ["offline", "ready", "offline", "ready"],
    );
  }
});

Deno.test("other data in place of the old: what was unknown there is asked for again", async () => {
  const { cluster, keys } = await startWithKeys();
  await using _ = cluster;
  const { keyId, ownerId } = keys.seen;
  const { wrong } = keys;
  // A copy of another day, in which somebody has this key.
  await cluster.nameKey(wrong.value, { keyId, ownerId });
  assert.equal(await statusOf(cluster.ask(wrong)), 401, "remembered for 30 s");
  await cluster.world.command("SET", STORE_KEY, "sto_other");
  await assertSaid(cluster, ["replaced"]);
  assert.equal(await statusOf(cluster.ask(wrong)), 200);
});
