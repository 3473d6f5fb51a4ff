// Promise: when the Redis master dies, edges, the console and the command line continue
// with a replica, without a restart: acknowledged changes still hold, and limits are
// exceeded by no more than what was not yet replicated. When two parts are lost at
// once, requests are served or get 503 with a reason in the log. All of that holds if
// Redis and Sentinel use only TLS; then services trust only the given authority.
import assert from "node:assert/strict";
import type { RedisAddress } from "@gateway/shared/redis/connection";
import {
  type RedisGroup,
  startRedisGroup,
} from "../../support/deployed/deployed_redis_group.ts";
import { makeSecrets } from "../../support/deployed/deployed_stores.ts";
import {
  clientTls,
  createTestAuthority,
  type TestAuthority,
} from "../../support/deployed/test_authority.ts";
import type { LocalServer } from "../../support/servers/local_server.ts";
import { startNatsServer } from "../../support/servers/nats_server.ts";
import { testRedisLink } from "../../support/servers/redis_link.ts";
import {
  admittedCount,
  servedStatus,
  statusOf,
} from "../../support/gateway/chat_status.ts";
import { startGateway } from "../../support/gateway/gateway.ts";
import {
  type CreatedKey,
  makeKey,
  runKeys,
} from "../../support/gateway/key_commands.ts";
import type {
  RunningService,
  ServiceEnv,
  ServicesGateway,
} from "../../support/gateway/services.ts";
import { until, waitFor } from "../../support/wait_for.ts";

const FAILOVER_MS = 30_000;
/**
 * Longer than a failover of two sentinels takes here: silence, vote, way to the new
 * master.
 */
const NO_FAILOVER_MS = 4_000;
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

/** Two edges, a worker and the console with keys in a group of Redis servers. */
class Guarded {
  /** Requests with the limited key that were admitted, and since when. */
  readonly spent = { count: 0, sinceMs: 0 };

  constructor(
    readonly group: RedisGroup,
    readonly services: {
      first: RunningService;
      second: RunningService;
      admin: RunningService;
      /** Variables of the last. */
      adminEnv: ServiceEnv;
    },
    readonly keys: {
      firstKey: CreatedKey;
      disabled: CreatedKey;
      limited: CreatedKey;
    },
  ) {}

  /** The first edge. */
  get first(): RunningService {
    return this.services.first;
  }

  /** The second edge. */
  get second(): RunningService {
    return this.services.second;
  }

  /** Both edges' URLs. */
  get edges(): string[] {
    return [this.first.url, this.second.url];
  }

  /** Disables a key by the command line. */
  async disable({ id }: CreatedKey): Promise<void> {
    await runKeys(this.services.adminEnv, "disable", id);
  }

  /** Waits until the first edge answers the key that is kept with this status. */
  async becomes(expected: number): Promise<void> {
    const { url, process } = this.first;
    const status = () => statusOf(url, this.keys.firstKey.key);
    await waitFor(async () => await status() === expected, {
      what: () => `${expected}: ${process.output().slice(-2_000)}`,
      timeoutMs: FAILOVER_MS,
      intervalMs: 50,
    });
  }

  /** Uses half of what the limited key may do in a minute. */
  async spendHalf(): Promise<void> {
    this.spent.sinceMs = performance.now();
    for (; this.spent.count < LIMIT / 2; this.spent.count++) {
      const { key } = this.keys.limited;
      assert.equal(await statusOf(this.first.url, key), 200);
    }
  }
}

/** Whoever has no certificate of the group's authority is kept out. */
async function keepsStrangersOut(
  group: RedisGroup,
  another: TestAuthority,
): Promise<void> {
  const { tlsCert, tlsKey, ...address } = group.address("edge");
  const { cert, key, caCerts = [] } = await clientTls(another);
  const own = { ...address, tlsCert: tlsCert ?? "", tlsKey: tlsKey ?? "" };
  await assertKeptOut(address);
  await assertKeptOut({ ...own, tlsCert: cert, tlsKey: key });
  await assertKeptOut({ ...own, tlsCa: caCerts.join("") });
  await assertKeptOut({ ...own, url: "redis://sentinels" });
}

async function losesMaster(guarded: Guarded): Promise<void> {
  const old = await guarded.group.master();
  await guarded.disable(guarded.keys.disabled);
  await old.kill();
  for (const url of guarded.edges) {
    assert.equal(await servedStatus(url, guarded.keys.firstKey.key), 200);
    assert.equal(await statusOf(url, guarded.keys.disabled.key), 403);
  }
  await until(async () => (await guarded.group.master()).port !== old.port);
}

async function goesOnCounting(guarded: Guarded): Promise<void> {
  const { count: spent, sinceMs } = guarded.spent;
  const more = await admittedCount(
    guarded.second.url,
    guarded.keys.limited.key,
    LIMIT,
  );
  // All of it was replicated before; LIMIT per minute comes back meanwhile.
  const backMax = (performance.now() - sinceMs) / MINUTE_MS * LIMIT + 1;
  assert.ok(spent + more >= LIMIT, `${spent} + ${more}`);
  assert.ok(spent + more <= LIMIT + backMax, `${spent} + ${more}`);
}

async function goesOnAdministering(guarded: Guarded): Promise<void> {
  // Writes are refused until the other replica follows the new master.
  await guarded.group.settled(1);
  await until(async () => {
    const response = await fetch(guarded.services.admin.url, {
      redirect: "manual",
    });
    await response.body?.cancel();
    return response.status < 400;
  }, FAILOVER_MS);
  const newKey = await makeKey(guarded.services.adminEnv);
  for (const url of guarded.edges) {
    assert.equal(await statusOf(url, newKey.key), 200);
  }
}

async function losesMasterAndSentinel(guarded: Guarded): Promise<void> {
  const [sentinel] = guarded.group.sentinels;
  await kill([await guarded.group.master(), sentinel]);
  await guarded.becomes(200);
  assert.equal(
    await statusOf(guarded.first.url, guarded.keys.disabled.key),
    403,
  );
}

async function losesReplicas(guarded: Guarded): Promise<void> {
  const [sentinel] = guarded.group.sentinels;
  const master = await guarded.group.master();
  const gone = guarded.group.servers.filter((server) =>
    server.port !== master.port
  );
  await kill(gone);
  await guarded.becomes(503);
  await until(() => guarded.first.process.output().includes("NOREPLICAS"));
  await restart(gone);
  await guarded.becomes(200);
  await restart([sentinel]);
  await guarded.group.settled();
}

async function losesTwoSentinels(guarded: Guarded): Promise<void> {
  const [sentinel, other] = guarded.group.sentinels;
  await kill([await guarded.group.master(), sentinel, other]);
  const killedAtMs = performance.now();
  await waitFor(async () => {
    assert.equal(
      await statusOf(guarded.first.url, guarded.keys.firstKey.key),
      503,
    );
    return performance.now() - killedAtMs > NO_FAILOVER_MS;
  }, { what: "no failover", timeoutMs: FAILOVER_MS, intervalMs: 100 });
  await restart([sentinel]);
  await guarded.becomes(200);
  assert.equal(
    await statusOf(guarded.first.url, guarded.keys.disabled.key),
    403,
  );
}

/** Starts the services, and uses keys so that something is known of them. */
async function startGuarded(
  gateway: ServicesGateway,
  group: RedisGroup,
  bus: ServiceEnv,
): Promise<Guarded> {
  const edgeEnv = { ...bus, ...group.env("edge") };
  const adminEnv = { ...bus, ...group.env("admin") };
  await gateway.start("chat-worker", bus);
  const first = await gateway.start("edge-auth", edgeEnv);
  const second = await gateway.start("edge-auth", edgeEnv);
  const admin = await gateway.start("key-admin", adminEnv);
  const services = { first, second, admin, adminEnv };
  const guarded = new Guarded(group, services, {
    firstKey: await makeKey(adminEnv),
    disabled: await makeKey(adminEnv),
    limited: await makeKey(adminEnv, `--rpm=${LIMIT}`),
  });
  for (const url of guarded.edges) {
    for (const { key } of [guarded.keys.firstKey, guarded.keys.disabled]) {
      assert.equal(await statusOf(url, key), 200);
    }
  }
  await guarded.spendHalf();
  return guarded;
}

Deno.test("losses in a group of Redis servers", async (t) => {
  await using authority = await createTestAuthority();
  await using another = await createTestAuthority();
  await using secrets = await makeSecrets();
  await using nats = await startNatsServer();
  await using group = await startRedisGroup({ secrets, tls: authority });
  await using gateway = await startGateway("services");
  const bus = { NATS_URL: `nats://${nats.server}` };
  const guarded = await startGuarded(gateway, group, bus);
  const old = await group.master();

  await t.step(
    "ASVS 12.3.1, 12.3.2, 12.3.4: a wrong certificate, or none, is refused",
    () => keepsStrangersOut(group, another),
  );

  await t.step(
    "what was acknowledged just before holds after",
    () => losesMaster(guarded),
  );

  await t.step(
    "limits go on from where they were",
    () => goesOnCounting(guarded),
  );

  await t.step(
    "the console and the command line go on",
    () => goesOnAdministering(guarded),
  );

  await restart([old]);
  await group.settled();

  await t.step(
    "master and sentinel: a replica takes over",
    () => losesMasterAndSentinel(guarded),
  );

  await t.step(
    "the last replica too: 503 until one is back",
    () => losesReplicas(guarded),
  );

  await t.step(
    "master and two sentinels: 503 until one is back",
    () => losesTwoSentinels(guarded),
  );
});
