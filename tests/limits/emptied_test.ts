// Promise: a Redis that answers but has lost its data makes no key unknown. All
// edges answer 503 while it is empty, never 401 and never 429, and serve again within
// two seconds after the data is back, without a restart.
import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import { mintKey } from "@gateway/shared/keys/key";
import { STORE_KEY } from "@gateway/shared/keys/record";
import type { GatedEdge, TestKey } from "../support/gated_cluster.ts";
import { startGatedCluster, statusOf } from "../support/gated_cluster.ts";
import { startStopwatch, until } from "../support/wait_for.ts";

const RECOVERY_MS = 2_000;
/** More than may fail to authenticate from one address. */
const ASKED = 30;
const EDGES = 2;

type Started = Awaited<ReturnType<typeof startWithKeys>>;

/** A well-formed key that does not exist. */
function nobodysKey(): TestKey {
  return { keyId: "", ownerId: "", value: mintKey(randomBytes) };
}

async function startWithKeys() {
  const cluster = await startGatedCluster({ edges: EDGES });
  /** Known to all edges. */
  const seen = await cluster.addKey();
  /** Known to none. */
  const unseen = await cluster.addKey();
  /** Nobody's, known to be so by all edges. */
  const wrong = nobodysKey();
  for (let edge = 0; edge < EDGES; edge += 1) {
    assert.equal(await cluster.status(seen, { edge }), 200);
    assert.equal(await cluster.status(wrong, { edge }), 401);
  }
  for (const { log } of cluster.edges) log.lines.length = 0;
  return Object.assign(cluster, { seen, unseen, wrong });
}

/** Asks every edge with every key, and with keys that were never asked for. */
async function assertUnavailable(cluster: Started) {
  const { seen, unseen } = cluster;
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
  assert.equal(await statusOf(cluster.get(seen, "models")), 503);
}

/** What the lines of an event say that it is now. */
const changes = ({ log }: GatedEdge, event: string) =>
  log.lines.filter((line) => line.event === event)
    .map(({ fields }) => String(fields.to));

/** Waits until every edge has said this of its store, and checks that it said nothing else. */
async function assertSaid({ edges }: Started, expected: string[]) {
  for (const edge of edges) {
    await until(() => changes(edge, "key_store").length >= expected.length);
    assert.deepEqual(changes(edge, "key_store"), expected);
  }
}

Deno.test("data lost by a running server and by a restart: 503 until it is back", async () => {
  await using cluster = await startWithKeys();
  const { world, wrong } = cluster;
  const file = `${world.redis.directory}/dump.rdb`;
  await world.command("SAVE");
  const data = await Deno.readFile(file);
  await world.command("FLUSHALL");
  await assertUnavailable(cluster);
  await assertSaid(cluster, ["missing"]);
  // What was known to be nobody's was forgotten with the data it was not in.
  assert.equal(await cluster.status(wrong), 503);
  await world.redis.kill();
  await Deno.remove(file);
  await world.redis.restart();
  await assertUnavailable(cluster);
  await assertSaid(cluster, ["missing"]);
  await world.redis.kill();
  await Deno.writeFile(file, data);
  await world.redis.restart();
  using watch = startStopwatch();
  const places = cluster.edges.map((_, edge) => ({ edge }));
  for (const at of places) {
    for (const key of [cluster.seen, cluster.unseen]) {
      await until(async () => await cluster.status(key, at) === 200);
    }
  }
  assert.ok(watch.ms < RECOVERY_MS, `${watch.ms} ms`);
  for (const at of places) {
    assert.equal(await cluster.status(nobodysKey(), at), 401);
  }
  await assertSaid(cluster, ["missing", "present"]);
  const states = ["offline", "ready", "offline", "ready"];
  for (const edge of cluster.edges) {
    assert.deepEqual(changes(edge, "redis_state"), states);
  }
});

Deno.test("other data in place of the old: what was unknown there is asked for again", async () => {
  await using cluster = await startWithKeys();
  const { seen, wrong } = cluster;
  // A copy of another day, in which somebody has this key.
  await cluster.nameKey(wrong.value, seen);
  assert.equal(await cluster.status(wrong), 401, "remembered for 30 s");
  await cluster.world.command("SET", STORE_KEY, "sto_other");
  await assertSaid(cluster, ["replaced"]);
  assert.equal(await cluster.status(wrong), 200);
});
