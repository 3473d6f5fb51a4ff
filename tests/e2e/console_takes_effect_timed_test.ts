/**
 * Guarantee (promise 3): what the console says of a key holds for the next request
 * on every edge, under load too.
 */
import assert from "node:assert/strict";
import { type Cluster, startCluster } from "../support/cluster.ts";
import { type ConsoleClient, openConsole } from "../support/console_client.ts";
import { startRedisServer } from "../support/redis_server.ts";
import {
  changeWatched,
  type Question,
  startLoad,
  STATUS_OF,
  statusOf,
  watched,
  type WatchedKey,
} from "./key_load_fixture.ts";

const EDGES = 3;
/** Each is a disable and an enable, with every edge asked after both. */
const ROUNDS = 200;
/** Changed side by side: one key's changes must not wait for another's. */
const KEYS = 8;

/** Asks every edge at once. */
function askEdges(
  { state }: Cluster,
  authorization: string,
  question: Question = "chat",
): Promise<number[]> {
  return Promise.all(
    state.edge_urls.map((url) => statusOf(url, authorization, question)),
  );
}

interface Probes {
  asked: number;
  wrong: string[];
}

/** Changes a key and asks every edge for chat once the console has acknowledged it. */
async function changeAndAsk(
  cluster: Cluster,
  browser: ConsoleClient,
  key: WatchedKey,
  { what, round, probes, more = {} }: {
    what: keyof typeof STATUS_OF;
    round: number;
    probes: Probes;
    more?: Record<string, string>;
  },
): Promise<void> {
  await changeWatched(browser, key, what, more);
  const statuses = await askEdges(cluster, `Bearer ${key.value}`);
  for (const [edge, status] of statuses.entries()) {
    probes.asked++;
    if (status === STATUS_OF[what]) continue;
    probes.wrong.push(`${what} ${round}: ${status} on edge ${edge}`);
  }
}

Deno.test("the console takes effect on every edge", async (t) => {
  // Every single answer is judged here, and a Redis that waits 150 ms for its disk
  // is answered with 503, as promised: so this one has no disk to wait for.
  await using redis = await startRedisServer();
  await using cluster = await startCluster({
    edges: EDGES,
    // A deleted key is a wrong one: the load asks with it more often than a stranger may.
    env: { UNKNOWN_KEYS_PER_SECOND: "1000000", REDIS_URL: redis.url },
  });
  const browser = await openConsole(cluster);
  const keys: WatchedKey[] = [];
  for (let n = 0; n < KEYS; n++) {
    keys.push(watched(await browser.createKey(`Changed under load, ${n}`)));
  }

  await t.step(
    "200 times disabled and enabled under load: the next request is 403, or 200",
    async () => {
      const stopLoad = startLoad(cluster, keys);
      const probes: Probes = { asked: 0, wrong: [] };
      let rounds = 0;
      await Promise.all(keys.map(async (key) => {
        for (let round = rounds++; round < ROUNDS; round = rounds++) {
          for (const what of ["disable", "enable"] as const) {
            await changeAndAsk(cluster, browser, key, { what, round, probes });
          }
        }
      }));
      const { counts, wrong } = await stopLoad();
      assert.deepEqual(probes.wrong, []);
      assert.equal(probes.asked, 2 * ROUNDS * EDGES);
      assert.deepEqual(wrong, [], "and so is the load beside it");
      assert.deepEqual([...counts.keys()].toSorted(), [200, 403]);
      for (const [status, count] of counts) {
        assert.ok(count >= ROUNDS / 2, `${count} answers of ${status}`);
      }
    },
  );

  await t.step("deleted under load: the next request is 401", async () => {
    const stopLoad = startLoad(cluster, keys);
    const probes: Probes = { asked: 0, wrong: [] };
    for (const [round, key] of keys.entries()) {
      const more = { sure: "on" };
      const what = "delete";
      await changeAndAsk(cluster, browser, key, { what, round, probes, more });
    }
    const { counts, wrong } = await stopLoad();
    assert.deepEqual(probes.wrong, []);
    assert.equal(probes.asked, KEYS * EDGES);
    assert.deepEqual(wrong, []);
    assert.deepEqual([...counts.keys()].toSorted(), [200, 401]);
  });

  await t.step("ASVS 16.2.5: no key in any log", async () => {
    const form = /sk-Cg[0-9A-Za-z]{6}/;
    assert.match(cluster.state.api_key, form);
    const logs = await cluster.logs();
    assert.match(logs, /"event":"/);
    assert.doesNotMatch(logs, form);
  });
});
