/**
 * Guarantee: "also stop requests now running" ends every running request of the
 * key within a second of the click, on every edge, and nobody else's.
 */
import assert from "node:assert/strict";
import { hashKeyValue } from "@gateway/shared/keys/key";
import { hashKey, leaseKey } from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { connectRedis } from "../../services/key-admin/domain/store/redis.ts";
import { type ChatOutcome, outcomeOf } from "../support/chat_outcome.ts";
import { type Cluster, startCluster } from "../support/cluster.ts";
import { openConsole } from "../support/console_client.ts";
import { startRedisServer } from "../support/redis_fixture.ts";
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
const REDIS_WAIT_MS = 5_000;

/** A request that would run for 15 s. */
function askForLong(
  edgeUrl: string,
  key: WatchedKey,
  stream: boolean,
): Promise<Response> {
  return fetch(`${edgeUrl}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${key.value}`,
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: "neutral-3.7-plus",
      stream,
      messages: [{
        role: "user",
        content: "Tell [simulator: 300 tokens, 20 tokens per second]",
      }],
    }),
  });
}

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
  { state }: Cluster,
  key: WatchedKey,
  running: () => Promise<number>,
): Promise<{ streams: Promise<Ended>[]; whole: Promise<Ended>[] }> {
  const urls = state.edge_urls.flatMap((url) =>
    Array.from({ length: RUNNING }, () => url)
  );
  const ended = async (answered: Promise<Response>) => ({
    outcome: await outcomeOf(answered),
    atMs: performance.now(),
  });
  const answers = urls.map((url) => askForLong(url, key, true));
  const streams = answers.map(ended);
  const whole = urls.map((url) => ended(askForLong(url, key, false)));
  // The head of a stream is not sent before its first token.
  await Promise.all(answers);
  await waitFor(async () => await running() === 2 * urls.length, {
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
  const redis = await connectRedis({
    address: { url: server.url },
    log: silentLog,
    waitMs: REDIS_WAIT_MS,
  });
  const browser = await openConsole(cluster);
  const others = [watched(await browser.createKey("Somebody else's"))];
  const key = watched(await browser.createKey("Stopped"));
  const running = await counterOf(redis, key);
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
    await redis.close();
  }
});
