// Promise: if Redis and Sentinel use only TLS, also among themselves, services still
// follow a failover, and trust only the given authority.
import assert from "node:assert/strict";
import type { RedisAddress } from "@gateway/shared/redis/link";
import {
  type GroupTls,
  type RedisGroup,
  startRedisGroup,
} from "../support/deployed/deployed_redis_group.ts";
import { makeSecrets } from "../support/deployed/deployed_stores.ts";
import { startNatsServer } from "../support/nats_server.ts";
import {
  makeKey,
  runKeys,
  servedStatus,
  startService,
} from "../support/service_processes.ts";
import {
  clientTls,
  createTestAuthority,
} from "../support/deployed/test_authority.ts";
import { waitFor } from "../support/wait_for.ts";
import { testRedisLink } from "../support/redis_link.ts";

const FAILOVER_MS = 30_000;

async function assertKeptOut(address: RedisAddress): Promise<void> {
  const link = testRedisLink(address);
  await waitFor(() => link.state !== "connecting", { what: "an attempt" });
  assert.equal(link.state, "offline");
  await link.close();
}

async function killMaster(group: RedisGroup): Promise<void> {
  const old = await group.master();
  await old.kill();
  await waitFor(async () => (await group.master()).port !== old.port, {
    what: "every sentinel to name another master",
    timeoutMs: FAILOVER_MS,
  });
}

Deno.test("ASVS 12.3.1, 12.3.2, 12.3.4: edge and command line follow a failover over mutual TLS", async (t) => {
  await using authority = await createTestAuthority();
  await using another = await createTestAuthority();
  await using secrets = await makeSecrets();
  await using nats = await startNatsServer();
  const tls: GroupTls = { authority, isMutual: true };
  await using group = await startRedisGroup({ secrets, tls });
  const bus = { NATS_URL: `nats://${nats.server}` };
  const adminEnv = { ...bus, ...group.env("admin") };
  await using _worker = await startService("chat-worker", bus);
  await using edge = await startService("edge-auth", {
    ...bus,
    ...group.env("edge"),
  });
  const kept = await makeKey(adminEnv);
  assert.equal(await servedStatus(edge.url, kept.key), 200);

  const address = group.address("edge");
  const foreign = await clientTls(another);
  const rows: [name: string, address: RedisAddress][] = [
    ["without a certificate", withoutCertificate(address)],
    ["with one of another authority", {
      ...address,
      tlsCert: foreign.cert,
      tlsKey: foreign.key,
    }],
    ["believing another authority", {
      ...address,
      tlsCa: foreign.caCerts?.join("") ?? "",
    }],
    ["without TLS", { ...address, url: "redis://sentinels" }],
  ];
  for (const [name, wrong] of rows) {
    await t.step(`a client ${name} is refused`, () => assertKeptOut(wrong));
  }

  await t.step("the edge serves again, and keys can be changed", async () => {
    await killMaster(group);
    assert.equal(await servedStatus(edge.url, kept.key), 200);
    await group.settled(1);
    await runKeys(adminEnv, "disable", kept.id);
    assert.equal(await servedStatus(edge.url, kept.key), 403);
  });
});

Deno.test("ASVS 12.3.1: a link follows a failover over TLS without client certificates", async () => {
  await using authority = await createTestAuthority();
  await using secrets = await makeSecrets();
  await using group = await startRedisGroup({
    secrets,
    tls: { authority, isMutual: false },
  });
  const address = group.address("edge");
  assert.equal(address.tlsCert, undefined);
  const link = testRedisLink(address);
  await link.ready(FAILOVER_MS);
  await killMaster(group);
  await waitFor(
    () => link.command(["ROLE"]).then(() => true, () => false),
    { what: "the link to follow", timeoutMs: FAILOVER_MS },
  );
  await link.close();
});

function withoutCertificate(address: RedisAddress): RedisAddress {
  const { tlsCert: _cert, tlsKey: _key, ...rest } = address;
  return rest;
}
