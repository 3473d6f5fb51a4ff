// Promise: when two parts of a Redis group are lost at once, requests are served or get
// 503 with a reason in the log; a part that is back is used without a restart of a
// service, and no acknowledged change of a key is lost.
import assert from "node:assert/strict";
import { statusOf } from "../support/service_processes.ts";
import { startRedisGroup } from "../support/deployed/deployed_redis_group.ts";
import { makeSecrets } from "../support/deployed/deployed_stores.ts";
import type { LocalServer } from "../support/local_server.ts";
import { startNatsServer } from "../support/nats_server.ts";
import { runKeys, startService } from "../support/service_processes.ts";
import { waitFor } from "../support/wait_for.ts";

const FAILOVER_MS = 30_000;
/** Longer than a failover of two sentinels takes here: silence, vote, way to the new master. */
const NO_FAILOVER_MS = 4_000;

async function kill(servers: readonly (LocalServer | undefined)[]) {
  await Promise.all(servers.map((server) => server?.kill()));
}

async function restart(servers: readonly (LocalServer | undefined)[]) {
  await Promise.all(servers.map((server) => server?.restart()));
}

Deno.test("the loss of two parts of a Redis group", async (t) => {
  await using secrets = await makeSecrets();
  await using nats = await startNatsServer();
  await using group = await startRedisGroup({ secrets });
  const bus = { NATS_URL: `nats://${nats.server}` };
  const admin = { ...bus, ...group.env("admin") };
  await using _worker = await startService("chat-worker", bus);
  await using edge = await startService("edge-auth", {
    ...bus,
    ...group.env("edge"),
  });
  const created = await Promise.all(
    ["kept", "disabled"].map((name) =>
      runKeys(admin, "create", "--description", name)
    ),
  );
  const [kept, disabled] = created.map((text) => JSON.parse(text));
  const becomes = (expected: number) =>
    waitFor(async () => await statusOf(edge.url, kept.key) === expected, {
      what: () => `${expected}: ${edge.process.output().slice(-2_000)}`,
      timeoutMs: FAILOVER_MS,
      intervalMs: 50,
    });
  await becomes(200);
  const [sentinel, other] = group.sentinels;

  await t.step("master and sentinel: a replica takes over", async () => {
    await runKeys(admin, "disable", disabled.id);
    await kill([await group.master(), sentinel]);
    await becomes(200);
    assert.equal(await statusOf(edge.url, disabled.key), 403);
  });

  await t.step("the last replica too: 503 until one is back", async () => {
    const master = await group.master();
    const gone = group.servers.filter((server) => server.port !== master.port);
    await kill(gone);
    await becomes(503);
    await waitFor(() => edge.process.output().includes("NOREPLICAS"), {
      what: "the reason in the log",
    });
    await restart(gone);
    await becomes(200);
    await restart([sentinel]);
    await group.settled();
  });

  await t.step("master and two sentinels: 503 until one is back", async () => {
    await kill([await group.master(), sentinel, other]);
    const killedAtMs = performance.now();
    await waitFor(async () => {
      assert.equal(await statusOf(edge.url, kept.key), 503);
      return performance.now() - killedAtMs > NO_FAILOVER_MS;
    }, { what: "no failover", timeoutMs: FAILOVER_MS, intervalMs: 100 });
    await restart([sentinel]);
    await becomes(200);
    assert.equal(await statusOf(edge.url, disabled.key), 403);
  });
});
