// Promise: when the Redis master dies, edges, the console and the command line continue
// with a replica, without a restart: acknowledged changes still hold, and limits are
// exceeded by no more than what was not yet replicated. When two parts are lost at
// once, requests are served or get 503 with a reason in the log. All of that holds if
// Redis and Sentinel use only TLS; then services trust only the given authority.
//
// A master that is cut off from its replicas, and that an edge and key-admin still
// reach, acknowledges no change that is lost, admits for some seconds what was left of
// the limits, and keeps no service that can reach the new master; services behind the
// cut recover after it.
import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import type { RedisAddress } from "@gateway/shared/redis/link";
import { KeyStore } from "../../services/key-admin/domain/keys/key_store.ts";
import {
  changeKeys,
  emptyLedger,
} from "../../services/key-admin/key_changes_fixture.ts";
import { startRedisGroup } from "../support/deployed/deployed_redis_group.ts";
import { makeSecrets } from "../support/deployed/deployed_stores.ts";
import {
  clientTls,
  createTestAuthority,
} from "../support/deployed/test_authority.ts";
import type { LocalServer } from "../support/local_server.ts";
import { startNatsServer } from "../support/nats_server.ts";
import { testRedisLink } from "../support/redis_link.ts";
import {
  admittedCount,
  servedStatus,
  statusOf,
} from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { makeKey, runKeys } from "../support/gateway/key_commands.ts";
import { startTcpProxy } from "../support/tcp_proxy.ts";
import { until, waitFor } from "../support/wait_for.ts";

const FAILOVER_MS = 30_000;
/**
 * Longer than a failover of two sentinels takes here: silence, vote, way to the new
 * master.
 */
const NO_FAILOVER_MS = 4_000;
const WRITE_MS = 2_000;
/** Three seconds without a replica, counted in whole ones, and a look once a second. */
const STOPS_MS = 5_000;
/** A late look of a busy machine. */
const SLACK_MS = 2_000;
const WRITERS = 8;
/**
 * Requests per minute; enough for a request of any kind, so that it is the only limit.
 */
const LIMIT = 12;
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
  await using gateway = await startGateway("services");
  await gateway.start("chat-worker", bus);
  const first = await gateway.start("edge-auth", edgeEnv);
  const second = await gateway.start("edge-auth", edgeEnv);
  const admin = await gateway.start("key-admin", adminEnv);
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

Deno.test("a Redis master that was cut off", async (t) => {
  await using own = new AsyncDisposableStack();
  const secrets = own.use(await makeSecrets());
  const nats = own.use(await startNatsServer());
  let firstPort = 0;
  /** Between the first master and the rest of the group. */
  const wire = own.use(startTcpProxy(() => firstPort));
  const wired = (port: number) => {
    firstPort = port;
    return wire.port;
  };
  const group = own.use(await startRedisGroup({ secrets, wire: wired }));
  let isCut = false;
  const views = (rename: (named: number) => number) =>
    group.sentinels.map(({ port }) =>
      own.use(startTcpProxy(port, renaming(rename))).server
    );
  const ownPort = (named: number) => named === wire.port ? firstPort : named;
  /** Reaches everything; only the servers and sentinels do not reach each other. */
  const open = views(ownPort);
  /** Is on the side of the first master, with news that end with the cut. */
  const behind = views((named) => isCut ? firstPort : ownPort(named));
  const bus = { NATS_URL: `nats://${nats.server}` };
  const seeing = (user: "edge" | "admin", views: readonly string[]) => ({
    ...bus,
    ...group.env(user),
    REDIS_SENTINELS: views.join(","),
  });
  const gateway = own.use(await startGateway("services"));
  await gateway.start("chat-worker", bus);
  const startEdge = (views: readonly string[]) =>
    gateway.start("edge-auth", seeing("edge", views));
  const [outside, inside] = [await startEdge(open), await startEdge(behind)];
  const admin = seeing("admin", behind);
  /** The store of keys as key-admin has it that asks these sentinels. */
  const openStore = async (servers: readonly string[]) => {
    const { sentinels = assert.fail(), ...address } = group.address("admin");
    const seen = { ...address, sentinels: { ...sentinels, servers } };
    const open = async () => {
      const link = testRedisLink(seen, { deadlineMs: WRITE_MS });
      own.defer(() => link.close());
      await link.ready(FAILOVER_MS);
      return link;
    };
    const [redis, writer] = [await open(), await open()];
    return new KeyStore({ redis, writer, randomBytes });
  };
  const kept = await makeKey(admin);
  const limited = await makeKey(admin, `--rpm=${LIMIT}`);
  for (const { url } of [outside, inside]) {
    assert.equal(await servedStatus(url, kept.key), 200);
  }
  const sentFromMs = performance.now();
  const spent = LIMIT / 3;
  for (let sent = 0; sent < spent; sent++) {
    assert.equal(await statusOf(inside.url, limited.key), 200);
  }

  const within = await openStore(behind);
  const ledger = emptyLedger();
  let isOver = false;
  const writers = Array.from(
    { length: WRITERS },
    () => changeKeys(within, ledger, () => isOver),
  );
  await until(() => ledger.counts.delete >= WRITERS, FAILOVER_MS);
  isCut = true;
  wire.set({ blackHole: "both" });
  const cutAtMs = performance.now();

  await t.step("admits what was left, and stops", async () => {
    const rest = await admittedCount(inside.url, limited.key, LIMIT);
    assert.ok(rest >= LIMIT - spent, `${rest} admitted`);
    const stops = async () => await statusOf(inside.url, kept.key) === 503;
    await until(stops, FAILOVER_MS);
    const tookMs = performance.now() - cutAtMs;
    assert.ok(tookMs < STOPS_MS + SLACK_MS, `${tookMs} ms`);
  });

  await t.step("acknowledges no change", async () => {
    await assert.rejects(
      runKeys(admin, "disable", kept.id),
      /Cannot confirm a change: on 0 of 1 replicas|NOREPLICAS/,
    );
  });

  await t.step("holds nobody who reaches the new one", async () => {
    assert.equal(await servedStatus(outside.url, kept.key), 200);
    const more = await admittedCount(outside.url, limited.key, LIMIT);
    const backMax = (performance.now() - sentFromMs) / MINUTE_MS * LIMIT + 1;
    assert.ok(more >= LIMIT - spent, `${more} admitted once more`);
    assert.ok(
      spent + more <= LIMIT + backMax,
      `${more} admitted once more`,
    );
    assert.equal(await statusOf(inside.url, kept.key), 503);
  });

  await t.step("takes back who was with it, and nothing is lost", async () => {
    isCut = false;
    wire.set({});
    wire.cut();
    assert.equal(await servedStatus(inside.url, kept.key), 200);
    isOver = true;
    await Promise.all(writers);
    const after = await openStore(open);
    for (const { key, actions } of ledger.known.values()) {
      const found = await after.get(key.ownerId, key.id);
      const isDeleted = actions.includes("key.deleted");
      assert.deepEqual(found, isDeleted ? null : key);
    }
  });
});

/** The answer to GET-MASTER-ADDR-BY-NAME up to the digits of the port. */
const NAMED = /(\*2\r\n\$9\r\n127\.0\.0\.1\r\n\$)\d+\r\n(\d+)\r\n/;

/**
 * What a sentinel answers, but the master that it names gets the port that `rename`
 * says.
 */
function renaming(rename: (named: number) => number) {
  return (bytes: Uint8Array): Uint8Array => {
    const text = new TextDecoder().decode(bytes);
    const renamed = text.replace(
      NAMED,
      (_all, before: string, port: string) => {
        const shown = String(rename(Number(port)));
        return `${before}${shown.length}\r\n${shown}\r\n`;
      },
    );
    return new TextEncoder().encode(renamed);
  };
}
