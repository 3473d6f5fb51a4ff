// Promise: a link follows the master that the sentinels name, without a restart and
// without a call that outlives its deadline, whatever happened to the old one.
import assert from "node:assert/strict";
import { startRedisGroup } from "../../tests/support/deployed/deployed_redis_group.ts";
import { makeSecrets } from "../../tests/support/deployed/deployed_stores.ts";
import {
  askPort,
  freePort,
  type LocalServer,
} from "../../tests/support/local_server.ts";
import { testRedisLink } from "../../tests/support/redis_link.ts";
import {
  startStopwatch,
  until,
  waitFor,
} from "../../tests/support/wait_for.ts";
import { RedisUnavailableError } from "./errors.ts";
import type { RedisLink } from "./link.ts";
import { findMaster } from "./connection.ts";

const DEADLINE_MS = 100;
/** A late timer of a busy machine, and what a call waits behind others. */
const CALL_MS_MAX = 1_000;
/** The sentinels' 0.7 s of silence, their vote, and the way to the new master. */
const FAILOVER_MS = 15_000;

/** Writes until one write is taken; every single one ends in time. */
async function writesAgain(link: RedisLink): Promise<void> {
  await waitFor(async () => {
    using watch = startStopwatch();
    try {
      await link.command(["HSET", "lim:test", "n", "1"]);
      return true;
    } catch (error) {
      if (!(error instanceof RedisUnavailableError)) throw error;
      return false;
    } finally {
      assert.ok(watch.ms < CALL_MS_MAX, `a call took ${watch.ms} ms`);
    }
  }, { what: "a write", timeoutMs: FAILOVER_MS, intervalMs: 20 });
}

async function isReplica(server: LocalServer): Promise<boolean> {
  try {
    const said = await askPort(server.port, "AUTH health any\r\nROLE\r\n");
    return said.includes("$5\r\nslave\r\n");
  } catch (error) {
    // All clients of a master are cut off when it is made a replica.
    if (error instanceof Deno.errors.ConnectionReset) return false;
    throw error;
  }
}

// A killed one is the easier case: tests/e2e/redis_failover_long_test.ts.
Deno.test("a link behind sentinels leaves a frozen master for the new one, and stays there", async () => {
  await using secrets = await makeSecrets();
  await using group = await startRedisGroup({ secrets });
  const address = group.address("edge");
  const link = testRedisLink(address, { deadlineMs: DEADLINE_MS });
  await link.ready(FAILOVER_MS);
  const old = await group.master();
  await link.command(["HSET", "lim:test", "kept", "before"]);
  const password = await secrets.read("redis_edge_password");
  const question = `AUTH edge-auth ${password}\r\nHGET lim:test kept\r\n`;
  await waitFor(async () => {
    const ask = ({ port }: LocalServer) => askPort(port, question);
    const said = await Promise.all(group.servers.map(ask));
    return said.every((text) => text.includes("before"));
  }, { what: "the replicas to have it" });
  await old.freeze();
  await writesAgain(link);
  await until(async () => (await group.master()).port !== old.port);
  assert.equal(await link.command(["HGET", "lim:test", "kept"]), "before");
  await link.command(["HSET", "lim:test", "kept", "after"]);
  old.thaw();
  await waitFor(() => isReplica(old), {
    what: "the old master to be a replica",
    timeoutMs: 2 * FAILOVER_MS,
  });
  assert.equal(await link.command(["HGET", "lim:test", "kept"]), "after");
  await link.close();
});

/** Says to everybody that this port is the master's. */
function lyingSentinel(masterPort: number) {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const digits = String(masterPort);
  const answer = new TextEncoder().encode(
    `*2\r\n$9\r\n127.0.0.1\r\n$${digits.length}\r\n${digits}\r\n`,
  );
  const serve = async () => {
    for await (const connection of listener) {
      await connection.read(new Uint8Array(1_024));
      await connection.write(answer);
      await connection.read(new Uint8Array(1_024)).catch(() => null);
      connection.close();
    }
  };
  const served = serve();
  return {
    port: listener.addr.port,
    [Symbol.dispose]() {
      listener.close();
      void served.catch(() => {});
    },
  };
}

Deno.test("findMaster() follows more than half of the sentinels, and without them most that answer", async (t) => {
  const [old, next, away] = [7001, 7002, 0];
  const cases: [named: number[], expected: number | null][] = [
    [[old, old, old], old],
    [[old, next, next], next],
    [[next, next, old], next],
    [[next, away, next], next],
    [[away, next, away], next],
    [[old, next, next, away, away], next],
    [[away, away, away], null],
  ];
  for (const [named, expected] of cases) {
    await t.step(named.join(" "), async () => {
      using group = lyingSentinels(named);
      const sentinels = { name: "gateway", servers: group.servers };
      const address = { url: "redis://sentinels", sentinels };
      const find = () => findMaster(address);
      if (expected === null) {
        return await assert.rejects(find(), /none of 3 sentinels/);
      }
      // On a busy machine a sentinel may not answer in time.
      const isExpected = (url: string) => url.endsWith(`:${expected}`);
      await until(() => find().then(isExpected, () => false));
    });
  }
});

/** One for each port, which it names as the master's; nobody listens for a 0. */
function lyingSentinels(named: readonly number[]) {
  const liars = new DisposableStack();
  const servers = named.map((port) => {
    const at = port === 0 ? freePort() : liars.use(lyingSentinel(port)).port;
    return `127.0.0.1:${at}`;
  });
  return { servers, [Symbol.dispose]: () => liars.dispose() };
}
