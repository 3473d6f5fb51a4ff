// Promise: when Redis fails over to a replica, the edges find the new master by
// themselves, within two seconds of the address leading there. Only admissions that had
// not reached the replica may be given out again. What had reached it holds: limits,
// disabled and deleted keys, the slots of running requests.
import assert from "node:assert/strict";
import { hashKey, limiterKey, recordKey } from "@gateway/shared/keys/record";
import { hashKeyValue } from "@gateway/shared/keys/key";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  type LimiterState,
  readState,
} from "../support/limits/admission_fixture.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LimitedGateway, TestKey } from "../support/gateway/limited.ts";
import { startRedisServer } from "../support/servers/redis_server.ts";
import { hello } from "../support/model_servers/scripted_model_server.ts";
import { startTcpProxy, type TcpProxy } from "../support/servers/tcp_proxy.ts";
import { sleep, until } from "../support/wait_for.ts";

const EDGES = 4;
const CLIENTS = 12;
const PER_MINUTE = 300;
const INTERVAL_MS = 60_000 / PER_MINUTE;
const RECOVERY_MS = 2_000;
const PATIENT_MS = 30_000;

/** The keys of the test, and the slots that one of them holds. */
interface Keys {
  /** Has a limit of requests, which is pressed against all the time. */
  limited: TestKey;
  /** Both of its slots are held. */
  slots: TestKey;
  streams: Response[];
  disabled: TestKey;
  deleted: TestKey;
}

/** Four edges on a master whose replica takes over. */
class Failover {
  readonly #link: RedisLink;

  constructor(
    readonly gateway: LimitedGateway,
    /** Between the replica and its master. */
    readonly wire: TcpProxy,
    link: RedisLink,
  ) {
    this.#link = link;
  }

  /** Sends a command to the replica. */
  command(...args: string[]): Promise<unknown> {
    return this.#link.command(args, { deadlineMs: PATIENT_MS });
  }

  /** Waits until the replica follows its master. */
  async follows(): Promise<void> {
    await until(async () => /master_link_status:up/.test(await this.#info()));
  }

  /** Waits until all that the master has written is in the replica, too. */
  async isCopied(): Promise<void> {
    const offsetIn = (text: unknown) =>
      Number(/master_repl_offset:(\d+)/.exec(String(text))?.[1]);
    const { world } = this.gateway;
    const offset = offsetIn(await world.command("INFO", "replication"));
    await until(async () => offsetIn(await this.#info()) >= offset);
  }

  /** A key gets this status wherever it asks. */
  async assertOnEveryEdge(key: TestKey, status: number): Promise<void> {
    for (let edge = 0; edge < EDGES; edge += 1) {
      assert.equal(await this.gateway.status(key, { edge }), status);
    }
  }

  async #info(): Promise<string> {
    return String(await this.command("INFO", "replication"));
  }
}

/** Clients that ask with a key on every edge, without a pause while it is admitted. */
class Pressure implements AsyncDisposable {
  /** All answers, in the order in which they came. */
  readonly statuses: number[] = [];
  readonly #clients: Promise<void>[];
  #isOver = false;

  constructor(gateway: LimitedGateway, key: TestKey) {
    this.#clients = Array.from({ length: CLIENTS }, async (_, index) => {
      while (!this.#isOver) {
        const status = await gateway.status(key, { edge: index % EDGES });
        this.statuses.push(status);
        if (status !== 200) await sleep(5);
      }
    });
  }

  /** How many answers had this status. */
  count(status: number): number {
    return this.statuses.filter((each) => each === status).length;
  }

  /** Stops asking. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#clients);
  }
}

/** Creates keys in all states, which the replica has, too. */
async function makeKeys(failover: Failover): Promise<Keys> {
  const { gateway } = failover;
  const { world } = gateway;
  const limits = { requestsPerMinute: PER_MINUTE };
  const limited = await gateway.addKey({ limits });
  const slots = await gateway.addKey({ limits: { concurrency: 2 } });
  const disabled = await gateway.addKey();
  const deleted = await gateway.addKey();
  for (const key of [disabled, deleted]) {
    await failover.assertOnEveryEdge(key, 200);
  }
  await world.setKey(disabled, { state: "disabled" });
  await world.command("DEL", recordKey(deleted));
  await world.command("DEL", hashKey(hashKeyValue(deleted.value)));
  const body = { stream: true, messages: [{ role: "user", content: "hold" }] };
  const streams = await Promise.all(
    [0, 1].map((edge) => gateway.ask(slots, { edge, body })),
  );
  return { limited, slots, streams, disabled, deleted };
}

/**
 * Cuts the replica off, kills the master and promotes the replica, which no edge finds
 * yet. Returns how many admissions had no copy, of those since `began`.
 */
async function loseMaster(
  failover: Failover,
  pressure: Pressure,
  { key, began }: { key: TestKey; began: LimiterState },
): Promise<number> {
  const { gateway, wire } = failover;
  await until(() => pressure.count(200) > 50);
  // What is admitted from now on has no copy.
  wire.set({ blackHole: "both" });
  const passes = pressure.count(200);
  await until(() => pressure.count(200) > passes + 50);
  await gateway.world.redis.kill();
  wire.cut();
  await failover.command("REPLICAOF", "NO", "ONE");
  const copied = await readState(failover, limiterKey(key)) ?? assert.fail();
  await until(() => pressure.count(503) > 2 * CLIENTS);
  const copies = (copied.requestsTatMs - began.requestsTatMs) / INTERVAL_MS;
  const lost = pressure.count(200) - Math.round(copies);
  assert.ok(lost > 0, `${lost} lost`);
  return lost;
}

/** Every edge is answered by Redis again, in time, and knows what it knew before. */
async function findNewMaster(failover: Failover, keys: Keys): Promise<void> {
  const { gateway } = failover;
  const { slots, disabled, deleted } = keys;
  await Promise.all(gateway.edges.map((_, edge) =>
    until(
      async () => await gateway.status(slots, { edge }) !== 503,
      RECOVERY_MS,
    )
  ));
  await failover.assertOnEveryEdge(disabled, 403);
  await failover.assertOnEveryEdge(deleted, 401);
  await failover.assertOnEveryEdge(slots, 429);
}

Deno.test("the master is lost, its replica takes over", async () => {
  let movedTo: number | null = null;
  await using gateway = await startGateway("limited", {
    edges: EDGES,
    redisAt: (port) => movedTo ?? port,
    onCall: (call) =>
      call.request.messages[0]?.content === "hold"
        ? call.say("held")
        : hello(call),
  });
  const { world, backend } = gateway;
  await using wire = startTcpProxy(world.redis.port);
  // Copies begin at once, not after waiting for further replicas.
  await world.command("CONFIG", "SET", "repl-diskless-sync-delay", "0");
  const config = `replicaof 127.0.0.1 ${wire.port}`;
  await using replica = await startRedisServer({ config });
  const link = await world.open(replica.url);
  const failover = new Failover(gateway, wire, link);
  await failover.follows();
  const keys = await makeKeys(failover);
  assert.equal(await gateway.status(keys.limited), 200);
  const began = await readState(world, limiterKey(keys.limited)) ??
    assert.fail();
  await failover.isCopied();

  await using pressure = new Pressure(gateway, keys.limited);
  const lost = await loseMaster(failover, pressure, {
    key: keys.limited,
    began,
  });
  movedTo = replica.port;
  await findNewMaster(failover, keys);
  await until(() => pressure.statuses.at(-1) === 429);
  await pressure[Symbol.asyncDispose]();
  const spanMs = performance.timeOrigin + performance.now() - began.lastAtMs;
  const due = PER_MINUTE + Math.ceil(spanMs / INTERVAL_MS);
  const admitted = pressure.count(200) + 1;
  assert.ok(admitted <= due + lost, `${admitted} of ${due} and ${lost} lost`);
  // An outage of Redis is 503 and nothing else.
  assert.deepEqual(new Set(pressure.statuses), new Set([200, 429, 503]));

  for (const answer of keys.streams) await answer.body?.cancel();
  await until(async () => await gateway.status(keys.slots) === 200);
  assert.ok(backend.calls.length >= admitted);
});
