// Promise: a link follows the master that the sentinels name, without a restart and
// without a call that outlives its deadline, whatever has happened to the old one.
import assert from "node:assert/strict";
import { startRedisGroup } from "../../tests/support/deployed/deployed_redis_group.ts";
import { makeSecrets } from "../../tests/support/deployed/deployed_stores.ts";
import { askPort } from "../../tests/support/servers/ask_port.ts";
import {
  freePort,
  type LocalServer,
} from "../../tests/support/servers/local_server.ts";
import { testRedisLink } from "../../tests/support/servers/redis_link.ts";
import {
  startStopwatch,
  until,
  waitFor,
} from "../../tests/support/wait_for.ts";
import { RedisUnavailableError } from "./errors.ts";
import type { RedisLink } from "./link.ts";
import { agreed, findMaster } from "./connection.ts";

const DEADLINE_MS = 100;
/** A late timer of a busy machine, and what a call waits behind others. */
const CALL_MS_MAX = 1_000;
/** The sentinels' 0.7 s of silence, their vote, and the way to the new master. */
const FAILOVER_MS = 15_000;

/** Writes until one write succeeds; every attempt ends in time. */
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
    const reply = await askPort(server.port, "AUTH health any\r\nROLE\r\n");
    return reply.includes("$5\r\nslave\r\n");
  } catch (error) {
    // All clients of a master are cut off when it is made a replica.
    if (error instanceof Deno.errors.ConnectionReset) return false;
    throw error;
  }
}

// A killed one is the easier case: tests/e2e/faults/redis_failover_long_test.ts.
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
    const replies = await Promise.all(group.servers.map(ask));
    return replies.every((text) => text.includes("before"));
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

Deno.test("the answer of more than half of the sentinels counts at once, otherwise the most frequent one", async () => {
  const [old, next] = ["old", "next"].map((url) => Promise.resolve(url));
  assert.ok(old && next);
  const away = Promise.reject<string>(new Error("away"));
  const silent = new Promise<string>(() => {});
  const cases: [answers: Promise<string>[], expected: string][] = [
    [[old, old, old], "old"],
    [[old, next, next], "next"],
    [[next, silent, next], "next"],
    [[away, next, away], "next"],
    [[old, next, next, away, away], "next"],
  ];
  for (const [answers, expected] of cases) {
    assert.equal(await agreed(answers), expected);
  }
  await assert.rejects(agreed([away, away, away]), AggregateError);
  const servers = [freePort(), freePort()].map((port) => `127.0.0.1:${port}`);
  await assert.rejects(
    findMaster({ url: "redis://any", sentinels: { name: "n", servers } }),
    /none of 2 sentinels/,
  );
});
