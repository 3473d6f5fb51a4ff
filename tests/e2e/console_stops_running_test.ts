/**
 * Guarantee: "also stop requests now running" ends every running request of the
 * key within a second of the click, on every edge, and nobody else's.
 */
import assert from "node:assert/strict";
import { hashKeyValue } from "@gateway/shared/keys/key";
import { hashKey, leaseKey } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { type ChatOutcome, outcomeOf } from "../support/chat_outcome.ts";
import { type Cluster, startCluster } from "../support/cluster.ts";
import { askCluster, LONG, openStore } from "../support/cluster_keys.ts";
import { openConsole } from "../support/console_client.ts";
import { startRedisServer } from "../support/redis_server.ts";
import { waitFor } from "../support/wait_for.ts";
import {
  changeWatched,
  startLoad,
  watched,
  type WatchedKey,
} from "./key_load_fixture.ts";

const EDGES = 3;
/** Of each kind on each edge. */
const RUNNING = 3;
/** Counted from before the request to the console is sent. */
const STOP_MS_MAX = 1_000;

/** Tells how many requests of a key run, as the admission counts them. */
async function counterOf(
  redis: RedisLink,
  { value }: WatchedKey,
): Promise<() => Promise<number>> {
  const pair = await redis.command(["GET", hashKey(hashKeyValue(value))]);
  const [keyId = "", ownerId = ""] = String(pair).split(":");
  const leases = leaseKey({ keyId, ownerId });
  return async () => Number(await redis.command(["ZCARD", leases]));
}

interface Ended {
  outcome: ChatOutcome;
  atMs: number;
}

/** Starts streams and whole answers on every edge; resolves when all of them run. */
async function startRunning(
  cluster: Cluster,
  { value }: WatchedKey,
  running: () => Promise<number>,
): Promise<{ streams: Promise<Ended>[]; whole: Promise<Ended>[] }> {
  const numbers = Array.from({ length: EDGES * RUNNING }, (_, n) => n % EDGES);
  const askAll = (stream: boolean) =>
    numbers.map((edge) =>
      askCluster(cluster, value, edge, { ...LONG, stream })
    );
  const ended = async (answered: Promise<Response>) => ({
    outcome: await outcomeOf(answered),
    atMs: performance.now(),
  });
  const answers = askAll(true);
  const streams = answers.map(ended);
  const whole = askAll(false).map(ended);
  // The head of a stream is not sent before its first token.
  await Promise.all(answers);
  await waitFor(async () => await running() === 2 * numbers.length, {
    what: "every request to run",
  });
  return { streams, whole };
}

Deno.test("running requests end within a second of the click", async (t) => {
  // Every single answer is judged here: no disk to wait for.
  await using server = await startRedisServer();
  await using cluster = await startCluster({
    edges: EDGES,
    env: { REDIS_URL: server.url },
  });
  await using opened = await openStore(cluster);
  const browser = await openConsole(cluster);
  const others = [watched(await browser.createKey("Somebody else's"))];
  const key = watched(await browser.createKey("Stopped"));
  const running = await counterOf(opened.redis, key);
  const stopLoad = startLoad(cluster, others);
  try {
    const changes = [
      ["disable", {}],
      ["delete", { sure: "on" }],
    ] as const;
    for (const [what, confirm] of changes) {
      await t.step(`${what}, under load`, async () => {
        const { streams, whole } = await startRunning(cluster, key, running);
        const clickMs = performance.now();
        const { location } = await changeWatched(browser, key, what, {
          stop_running: "on",
          ...confirm,
        });
        assert.match(location, /done=stopping/);
        for (const { outcome, atMs } of await Promise.all(streams)) {
          const { kind, status, errorCode, content } = outcome;
          // An error event, and no [DONE] after it: outcomeOf() refuses that.
          assert.deepEqual([kind, status, errorCode], [
            "sse_error",
            200,
            "key_revoked",
          ]);
          assert.notEqual(content, "");
          assert.ok(atMs - clickMs < STOP_MS_MAX, `${atMs - clickMs} ms`);
        }
        for (const { outcome, atMs } of await Promise.all(whole)) {
          const { kind, status, errorCode } = outcome;
          assert.deepEqual([kind, status, errorCode], [
            "http_error",
            403,
            "key_revoked",
          ]);
          assert.ok(atMs - clickMs < STOP_MS_MAX, `${atMs - clickMs} ms`);
        }
        await waitFor(async () => await running() === 0, {
          what: "their places to be given back",
        });
        if (what === "disable") await changeWatched(browser, key, "enable");
      });
    }
    await t.step("the load beside it noticed nothing", async () => {
      const { counts, wrong } = await stopLoad();
      assert.deepEqual(wrong, []);
      assert.deepEqual([...counts.keys()], [200]);
    });
  } finally {
    await stopLoad();
  }
});
