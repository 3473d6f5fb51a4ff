// Promise: when the Redis master dies, edges, the console and the command line continue
// with a replica, without a restart: acknowledged changes of keys still hold, and
// limits are exceeded by no more than what was not yet replicated.
import assert from "node:assert/strict";
import {
  admittedCount,
  servedStatus,
  statusOf,
} from "../support/service_processes.ts";
import {
  type RedisGroup,
  startRedisGroup,
} from "../support/deployed/deployed_redis_group.ts";
import { makeSecrets } from "../support/deployed/deployed_stores.ts";
import { startNatsServer } from "../support/nats_server.ts";
import {
  runKeys,
  type RunningServiceProcess,
  startService,
} from "../support/service_processes.ts";
import { waitFor } from "../support/wait_for.ts";

const FAILOVER_MS = 30_000;
/** Enough for a request of any kind, so that it is the only limit. */
const LIMIT = 30;
const MINUTE_MS = 60_000;

async function consoleAnswers(admin: RunningServiceProcess): Promise<boolean> {
  const response = await fetch(admin.url, { redirect: "manual" });
  await response.body?.cancel();
  return response.status < 400;
}

Deno.test("the loss of the Redis master", async (t) => {
  await using secrets = await makeSecrets();
  await using nats = await startNatsServer();
  await using group = await startRedisGroup({ secrets });
  const bus = { NATS_URL: `nats://${nats.server}` };
  const edgeEnv = { ...bus, ...group.env("edge") };
  const adminEnv = { ...bus, ...group.env("admin") };
  await using _worker = await startService("chat-worker", bus);
  await using first = await startService("edge-auth", edgeEnv);
  await using second = await startService("edge-auth", edgeEnv);
  await using admin = await startService("key-admin", adminEnv);
  const create = async (...args: string[]) =>
    JSON.parse(
      await runKeys(adminEnv, "create", "--description", "test", ...args),
    );
  const kept = await create();
  const disabled = await create();
  const limited = await create("--rpm", String(LIMIT));
  const edges = [first.url, second.url];
  for (const url of edges) {
    assert.equal(await statusOf(url, kept.key), 200);
    assert.equal(await statusOf(url, disabled.key), 200);
  }
  const sentFromMs = performance.now();
  let spent = 0;
  for (; spent < LIMIT / 2; spent++) {
    assert.equal(await statusOf(first.url, limited.key), 200);
  }

  const old = await group.master();
  await t.step("what was acknowledged just before holds after", async () => {
    await runKeys(adminEnv, "disable", disabled.id);
    await old.kill();
    for (const url of edges) {
      assert.equal(await servedStatus(url, kept.key), 200);
      assert.equal(await statusOf(url, disabled.key), 403);
    }
    await waitFor(async () => (await group.master()).port !== old.port, {
      what: "every sentinel to name another master",
    });
  });

  await t.step("limits go on from where they were", async () => {
    const more = await admittedCount(second.url, limited.key, LIMIT);
    // All of it was replicated before; LIMIT per minute comes back meanwhile.
    const backMax = (performance.now() - sentFromMs) / MINUTE_MS * LIMIT + 1;
    assert.ok(spent + more >= LIMIT, `${spent} + ${more}`);
    assert.ok(spent + more <= LIMIT + backMax, `${spent} + ${more}`);
  });

  await t.step("the console and the command line go on", async () => {
    // Writes are refused until the other replica follows the new master.
    await group.settled(1);
    await waitFor(() => consoleAnswers(admin), {
      what: "the console",
      timeoutMs: FAILOVER_MS,
    });
    const made = await create();
    for (const url of edges) assert.equal(await statusOf(url, made.key), 200);
  });

  await t.step(
    "a change that is on no replica is not acknowledged",
    async () => {
      await lastReplica(group).then((replica) => replica.freeze());
      await assert.rejects(
        runKeys(adminEnv, "disable", kept.id),
        // By key-admin, or by the master as soon as it has noticed.
        /Cannot confirm a change: on 0 of 1 replicas|NOREPLICAS/,
      );
    },
  );
});

/** The one server that is alive and not master. */
async function lastReplica(group: RedisGroup) {
  const master = await group.master();
  const replica = group.servers.find((server) =>
    server.isRunning() && server.port !== master.port
  );
  return replica ?? assert.fail("no replica is left");
}
