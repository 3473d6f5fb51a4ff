// Promise: a Redis master that is cut off from its replicas, and that an edge and
// key-admin still reach, acknowledges no change that is lost, admits for some seconds
// what was left of the limits, and keeps no service that can reach the new master;
// services behind the cut recover after it, without a restart.
import assert from "node:assert/strict";
import {
  changeKeys,
  emptyLedger,
} from "../../services/key-admin/key_changes_fixture.ts";
import { startRedisGroup } from "../support/deployed/deployed_redis_group.ts";
import { makeSecrets } from "../support/deployed/deployed_stores.ts";
import { createKeyStore } from "../../services/key-admin/domain/keys/key_store.ts";
import { randomBytes } from "@gateway/shared/process/ids";
import { testRedisLink } from "../support/redis_link.ts";
import { startNatsServer } from "../support/nats_server.ts";
import {
  admittedCount,
  makeKey,
  runKeys,
  servedStatus,
  startService,
  statusOf,
} from "../support/service_processes.ts";
import { startTcpProxy } from "../support/tcp_proxy.ts";
import { until } from "../support/wait_for.ts";

const FAILOVER_MS = 30_000;
const WRITE_MS = 2_000;
/** Three seconds without a replica, counted in whole ones, and a look once a second. */
const STOPS_MS = 5_000;
/** A late look of a busy machine. */
const SLACK_MS = 2_000;
const WRITERS = 8;
/** Requests per minute; enough for a request of any kind, so that it is the only limit. */
const LIMIT = 12;
const BEFORE = 4;
const MINUTE_MS = 60_000;

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
    ...{ ...bus, ...group.env(user) },
    REDIS_SENTINELS: views.join(","),
  });
  own.use(await startService("chat-worker", bus));
  const startEdge = async (views: readonly string[]) =>
    own.use(await startService("edge-auth", seeing("edge", views)));
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
    return createKeyStore({ redis, writer, randomBytes });
  };
  const kept = await makeKey(admin);
  const limited = await makeKey(admin, `--rpm=${LIMIT}`);
  for (const { url } of [outside, inside]) {
    assert.equal(await servedStatus(url, kept.key), 200);
  }
  const sentFromMs = performance.now();
  for (let sent = 0; sent < BEFORE; sent++) {
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
    assert.ok(rest >= LIMIT - BEFORE, `${rest} admitted`);
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
    assert.ok(more >= LIMIT - BEFORE, `${more} admitted once more`);
    assert.ok(BEFORE + more <= LIMIT + backMax, `${more} admitted once more`);
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

/** What a sentinel answers, but the master that it names gets the port that `rename` says. */
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
