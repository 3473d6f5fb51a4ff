// Promise: a Redis master that is cut off from its replicas, and that an edge and
// key-admin still reach, acknowledges no change that is lost, admits for some seconds
// what was left of the limits, and keeps no service that can reach the new master;
// services behind the cut recover after it.
import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import { KeyStore } from "../../../services/key-admin/domain/keys/key_store.ts";
import {
  changeKeys,
  Ledger,
} from "../../../services/key-admin/key_changes_fixture.ts";
import {
  type RedisGroup,
  startRedisGroup,
} from "../../support/deployed/deployed_redis_group.ts";
import { makeSecrets } from "../../support/deployed/deployed_stores.ts";
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
} from "../../support/gateway/services.ts";
import {
  startTcpProxy,
  type TcpProxy,
} from "../../support/servers/tcp_proxy.ts";
import { until } from "../../support/wait_for.ts";

const FAILOVER_MS = 30_000;
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
/** Requests before the cut. */
const SPENT = LIMIT / 3;
const MINUTE_MS = 60_000;

/** A group of Redis servers whose first master can be cut off from the rest. */
class PartedGroup {
  /** When it was cut, by `performance.now()`. */
  cutAtMs = 0;
  #isCut = false;
  readonly #firstPort: number;
  /** Reaches everything; only the servers and sentinels do not reach each other. */
  readonly open: readonly string[];
  /** Is on the side of the first master, with news that end with the cut. */
  readonly behind: readonly string[];

  constructor(
    readonly servers: RedisGroup,
    readonly own: AsyncDisposableStack,
    /** Between the first master and the rest of the group. */
    readonly wire: TcpProxy,
  ) {
    this.#firstPort = servers.servers[0]?.port ?? assert.fail();
    this.open = this.#views((port) => this.#ownPort(port));
    this.behind = this.#views((port) =>
      this.#isCut ? this.#firstPort : this.#ownPort(port)
    );
  }

  /** Sentinels whose news name the master as `rename` says. */
  #views(rename: (port: number) => number): string[] {
    return this.servers.sentinels.map(({ port }) =>
      this.own.use(startTcpProxy(port, renaming(rename))).server
    );
  }

  #ownPort(port: number): number {
    return port === this.wire.port ? this.#firstPort : port;
  }

  /** Variables of a service that asks these sentinels. */
  env(user: "edge" | "admin", views: readonly string[]): ServiceEnv {
    return { ...this.servers.env(user), REDIS_SENTINELS: views.join(",") };
  }

  /** The store of keys of a key-admin that asks these sentinels. */
  async openStore(views: readonly string[]): Promise<KeyStore> {
    const { sentinels = assert.fail(), ...address } = this.servers
      .address("admin");
    const view = { ...address, sentinels: { ...sentinels, servers: views } };
    const open = async () => {
      const link = testRedisLink(view, { deadlineMs: WRITE_MS });
      this.own.defer(() => link.close());
      await link.ready(FAILOVER_MS);
      return link;
    };
    const [redis, writer] = [await open(), await open()];
    return new KeyStore({ redis, writer, randomBytes });
  }

  /** Cuts the first master off from the rest. */
  cut(): void {
    this.#isCut = true;
    this.wire.set({ blackHole: "both" });
    this.cutAtMs = performance.now();
  }

  /** Ends the cut. */
  heal(): void {
    this.#isCut = false;
    this.wire.set({});
    this.wire.cut();
  }
}

async function startPartedGroup(
  own: AsyncDisposableStack,
): Promise<PartedGroup> {
  const secrets = own.use(await makeSecrets());
  let firstPort = 0;
  const wire = own.use(startTcpProxy(() => firstPort));
  const wired = (port: number) => {
    firstPort = port;
    return wire.port;
  };
  const group = own.use(await startRedisGroup({ secrets, wire: wired }));
  return new PartedGroup(group, own, wire);
}

/** What the steps see: an edge on each side of the cut, and what was done before it. */
interface Parted {
  group: PartedGroup;
  /** An edge that reaches everything. */
  outside: RunningService;
  /** An edge on the side of the first master. */
  inside: RunningService;
  /** Variables of a key-admin on the side of the first master. */
  admin: ServiceEnv;
  firstKey: CreatedKey;
  limited: CreatedKey;
  /** When {@link SPENT} requests were sent with the limited key. */
  spentAtMs: number;
  ledger: Ledger;
  stopWriters: () => Promise<void>;
}

/** Changes keys without a pause, on the side of the first master. */
async function startWriters(group: PartedGroup) {
  const store = await group.openStore(group.behind);
  const ledger = new Ledger();
  let isOver = false;
  const writers = Array.from(
    { length: WRITERS },
    () => changeKeys(store, ledger, () => isOver),
  );
  await until(() => ledger.counts.delete >= WRITERS, FAILOVER_MS);
  return {
    ledger,
    stopWriters: async () => {
      isOver = true;
      await Promise.all(writers);
    },
  };
}

async function startParted(own: AsyncDisposableStack): Promise<Parted> {
  const nats = own.use(await startNatsServer());
  const group = await startPartedGroup(own);
  const bus = { NATS_URL: `nats://${nats.server}` };
  const gateway = own.use(await startGateway("services"));
  await gateway.start("chat-worker", bus);
  const startEdge = (views: readonly string[]) =>
    gateway.start("edge-auth", { ...bus, ...group.env("edge", views) });
  const outside = await startEdge(group.open);
  const inside = await startEdge(group.behind);
  const admin = { ...bus, ...group.env("admin", group.behind) };
  const firstKey = await makeKey(admin);
  const limited = await makeKey(admin, `--rpm=${LIMIT}`);
  for (const { url } of [outside, inside]) {
    assert.equal(await servedStatus(url, firstKey.key), 200);
  }
  const spentAtMs = performance.now();
  for (let count = 0; count < SPENT; count++) {
    assert.equal(await statusOf(inside.url, limited.key), 200);
  }
  const writing = await startWriters(group);
  return {
    group,
    outside,
    inside,
    admin,
    firstKey,
    limited,
    spentAtMs,
    ...writing,
  };
}

async function admitsRest(parted: Parted): Promise<void> {
  const rest = await admittedCount(
    parted.inside.url,
    parted.limited.key,
    LIMIT,
  );
  assert.ok(rest >= LIMIT - SPENT, `${rest} admitted`);
  const stops = async () =>
    await statusOf(parted.inside.url, parted.firstKey.key) === 503;
  await until(stops, FAILOVER_MS);
  const tookMs = performance.now() - parted.group.cutAtMs;
  assert.ok(tookMs < STOPS_MS + SLACK_MS, `${tookMs} ms`);
}

async function confirmsNothing(parted: Parted): Promise<void> {
  await assert.rejects(
    runKeys(parted.admin, "disable", parted.firstKey.id),
    /Cannot confirm a change: on 0 of 1 replicas|NOREPLICAS/,
  );
}

async function holdsNobody(parted: Parted): Promise<void> {
  assert.equal(
    await servedStatus(parted.outside.url, parted.firstKey.key),
    200,
  );
  const more = await admittedCount(
    parted.outside.url,
    parted.limited.key,
    LIMIT,
  );
  const backMax = (performance.now() - parted.spentAtMs) / MINUTE_MS * LIMIT +
    1;
  assert.ok(more >= LIMIT - SPENT, `${more} admitted once more`);
  assert.ok(
    SPENT + more <= LIMIT + backMax,
    `${more} admitted once more`,
  );
  assert.equal(await statusOf(parted.inside.url, parted.firstKey.key), 503);
}

async function takesBack(parted: Parted): Promise<void> {
  const { group, inside, firstKey, ledger } = parted;
  group.heal();
  assert.equal(await servedStatus(inside.url, firstKey.key), 200);
  await parted.stopWriters();
  const after = await group.openStore(group.open);
  for (const { key, actions } of ledger.keys.values()) {
    const found = await after.get(key.ownerId, key.id);
    const isDeleted = actions.includes("key.deleted");
    assert.deepEqual(found, isDeleted ? null : key);
  }
}

Deno.test("a Redis master that was cut off", async (t) => {
  await using own = new AsyncDisposableStack();
  const parted = await startParted(own);
  parted.group.cut();

  await t.step("admits what was left, and stops", () => admitsRest(parted));

  await t.step("acknowledges no change", () => confirmsNothing(parted));

  await t.step(
    "holds nobody who reaches the new one",
    () => holdsNobody(parted),
  );

  await t.step(
    "takes back who was with it, and nothing is lost",
    () => takesBack(parted),
  );
});

/** The answer to GET-MASTER-ADDR-BY-NAME up to the digits of the port. */
const NAMED = /(\*2\r\n\$9\r\n127\.0\.0\.1\r\n\$)\d+\r\n(\d+)\r\n/;

/**
 * What a sentinel answers, but the master that it names gets the port that `rename`
 * says.
 */
function renaming(rename: (port: number) => number) {
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
