// Promise: when the Redis master dies, edges, the console and the command line continue
// with a replica, without a restart: acknowledged changes still hold, and limits are
// exceeded by no more than what was not yet replicated. When two parts are lost at
// once, requests are served or get 503 with a reason in the log. All of that holds if
// Redis and Sentinel use only TLS; then services trust only the given authority.
import assert from "node:assert/strict";
import type { RedisAddress } from "@gateway/shared/redis/link";
import { startRedisGroup } from "../support/deployed/deployed_redis_group.ts";
import { makeSecrets } from "../support/deployed/deployed_stores.ts";
import type { LocalServer } from "../support/local_server.ts";
import {
  clientTls,
  createTestAuthority,
} from "../support/deployed/test_authority.ts";
import { startNatsServer } from "../support/nats_server.ts";
import { testRedisLink } from "../support/redis_link.ts";
import {
  admittedCount,
  makeKey,
  runKeys,
  servedStatus,
  startService,
  statusOf,
} from "../support/service_processes.ts";
import { until, waitFor } from "../support/wait_for.ts";

const FAILOVER_MS = 30_000;
/** Longer than a failover of two sentinels takes here: silence, vote, way to the new master. */
const NO_FAILOVER_MS = 4_000;
/** Enough for a request of any kind, so that it is the only limit. */
const LIMIT = 30;
const MINUTE_MS = 60_000;

type Servers = readonly (LocalServer | undefined)[];

const kill = (servers: Servers) =>
  Promise.all(servers.map((server) => server?.kill()));
const restart = (servers: Servers) =>
  Promise.all(servers.map((server) => server?.restart()));

async function assertKeptOut(address: RedisAddress): Promise<void> {
  const link = testRedisLink(address);
  await until(() => link.state !== "connecting");
  assert.equal(link.state, "offline");
  await link.close();
}

Deno.test("losses in a group of Redis servers", async (t) => {
  await using authority = await createTestAuthority();
  await using another = await createTestAuthority();
  await using secrets = await makeSecrets();
  await using nats = await startNatsServer();
  await using group = await startRedisGroup({ secrets, tls: authority });
  const bus = { NATS_URL: `nats://${nats.server}` };
  const edgeEnv = { ...bus, ...group.env("edge") };
  const adminEnv = { ...bus, ...group.env("admin") };
  await using _worker = await startService("chat-worker", bus);
  await using first = await startService("edge-auth", edgeEnv);
  await using second = await startService("edge-auth", edgeEnv);
  await using admin = await startService("key-admin", adminEnv);
  const disable = (key: { id: string }) => runKeys(adminEnv, "disable", key.id);
  const [kept, disabled] = [await makeKey(adminEnv), await makeKey(adminEnv)];
  const limited = await makeKey(adminEnv, `--rpm=${LIMIT}`);
  const edges = [first.url, second.url];
  /** Waits until an edge answers the key that is kept with this status. */
  const becomes = (expected: number) =>
    waitFor(async () => await statusOf(first.url, kept.key) === expected, {
      what: () => `${expected}: ${first.process.output().slice(-2_000)}`,
      timeoutMs: FAILOVER_MS,
      intervalMs: 50,
    });
  for (const url of edges) {
    assert.equal(await statusOf(url, kept.key), 200);
    assert.equal(await statusOf(url, disabled.key), 200);
  }
  const sentFromMs = performance.now();
  const spent = LIMIT / 2;
  for (let sent = 0; sent < spent; sent++) {
    assert.equal(await statusOf(first.url, limited.key), 200);
  }
  const old = await group.master();

  await t.step(
    "ASVS 12.3.1, 12.3.2, 12.3.4: a wrong certificate, or none, is refused",
    async () => {
      const { tlsCert, tlsKey, ...address } = group.address("edge");
      const { cert, key, caCerts = [] } = await clientTls(another);
      const own = { ...address, tlsCert: tlsCert ?? "", tlsKey: tlsKey ?? "" };
      await assertKeptOut(address);
      await assertKeptOut({ ...own, tlsCert: cert, tlsKey: key });
      await assertKeptOut({ ...own, tlsCa: caCerts.join("") });
      await assertKeptOut({ ...own, url: "redis://sentinels" });
    },
  );

  await t.step("what was acknowledged just before holds after", async () => {
    await disable(disabled);
    await old.kill();
    for (const url of edges) {
      assert.equal(await servedStatus(url, kept.key), 200);
      assert.equal(await statusOf(url, disabled.key), 403);
    }
    await until(async () => (await group.master()).port !== old.port);
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
    await until(async () => {
      const response = await fetch(admin.url, { redirect: "manual" });
      await response.body?.cancel();
      return response.status < 400;
    }, FAILOVER_MS);
    const made = await makeKey(adminEnv);
    for (const url of edges) assert.equal(await statusOf(url, made.key), 200);
  });

  await restart([old]);
  await group.settled();
  const [sentinel, other] = group.sentinels;

  await t.step("master and sentinel: a replica takes over", async () => {
    await kill([await group.master(), sentinel]);
    await becomes(200);
    assert.equal(await statusOf(first.url, disabled.key), 403);
  });

  await t.step("the last replica too: 503 until one is back", async () => {
    const master = await group.master();
    const gone = group.servers.filter((server) => server.port !== master.port);
    await kill(gone);
    await becomes(503);
    await until(() => first.process.output().includes("NOREPLICAS"));
    await restart(gone);
    await becomes(200);
    await restart([sentinel]);
    await group.settled();
  });

  await t.step("master and two sentinels: 503 until one is back", async () => {
    await kill([await group.master(), sentinel, other]);
    const killedAtMs = performance.now();
    await waitFor(async () => {
      assert.equal(await statusOf(first.url, kept.key), 503);
      return performance.now() - killedAtMs > NO_FAILOVER_MS;
    }, { what: "no failover", timeoutMs: FAILOVER_MS, intervalMs: 100 });
    await restart([sentinel]);
    await becomes(200);
    assert.equal(await statusOf(first.url, disabled.key), 403);
  });
});
