/**
 * Guarantee: several edges, each a process of its own, act as one: an acknowledged
 * change of a key holds for the very next request on every edge, a key can be
 * stopped together with its running requests, and limits of an owner hold for all
 * edges. Under pressure, and when an edge is killed: `edge_killed_test.ts`.
 */
import assert from "node:assert/strict";
import type { KeyStore } from "../../services/key-admin/domain/keys/key_store.ts";
import type { Limits } from "@gateway/shared/keys/record";
import { startCluster } from "../support/cluster.ts";
import {
  askCluster,
  createStoredKey,
  LONG,
  openStore,
} from "../support/cluster_keys.ts";
import { startRedisServer } from "../support/redis_fixture.ts";
import { statusOf } from "../support/gated_cluster.ts";
import { sleep, waitFor } from "../support/wait_for.ts";

const EDGES = 3;
const OWNER = "own_LLLLLLLLLLLLLLLLLLLL";
/** The specification of the console asks for this many. */
const SWITCHES = 1_000;
const LOAD_PAUSE_MS = 5;

const createKey = (store: KeyStore, limits: Partial<Limits> = {}) =>
  createStoredKey(store, OWNER, limits);

Deno.test("limits and keys over a cluster of 3 edges", async (t) => {
  // Without a disk to wait for: every single answer is judged here.
  await using redis = await startRedisServer();
  await using cluster = await startCluster({
    edges: EDGES,
    // The limit shall refuse here, not the worker.
    env: { SLOTS: "4096", REDIS_URL: redis.url },
  });
  await using opened = await openStore(cluster);
  const { store } = opened;
  const everyEdge = (value: string) =>
    Promise.all(
      Array.from(
        { length: EDGES },
        (_, edge) => statusOf(askCluster(cluster, value, edge)),
      ),
    );

  await t.step(
    `disabled and enabled ${SWITCHES} times under load: the next request knows`,
    async () => {
      const { value, target } = await createKey(store);
      let disabledSince: number | null = null;
      let isOver = false;
      const late: number[] = [];
      const statuses = new Set<number>();
      const load = Array.from({ length: 3 }, async (_, edge) => {
        while (!isOver) {
          const before = disabledSince;
          const status = await statusOf(askCluster(cluster, value, edge));
          // Disabled before it was sent and not enabled since.
          const wasDisabled = before !== null && before === disabledSince;
          if (wasDisabled && status !== 403) late.push(status);
          statuses.add(status);
          await sleep(LOAD_PAUSE_MS);
        }
      });
      for (let round = 0; round < SWITCHES; round += 1) {
        assert.ok((await store.disable(target)).ok);
        disabledSince = round;
        assert.deepEqual(await everyEdge(value), [403, 403, 403]);
        disabledSince = null;
        assert.ok((await store.enable(target)).ok);
        const edge = round % EDGES;
        assert.equal(await statusOf(askCluster(cluster, value, edge)), 200);
      }
      isOver = true;
      await Promise.all(load);
      assert.deepEqual(late, []);
      assert.deepEqual([...statuses].sort(), [200, 403]);
      assert.ok((await store.delete(target)).ok);
      assert.deepEqual(await everyEdge(value), [401, 401, 401]);
    },
  );

  await t.step(
    "a key stopped with its requests: running streams end within a second",
    async () => {
      const created = JSON.parse(
        await cluster.keys("create", "--description=stop", "--json"),
      );
      const value: string = created.key;
      const { value: bystander } = await createKey(store);
      const streams = await Promise.all(
        Array.from(
          { length: 9 },
          (_, index) => askCluster(cluster, value, index % EDGES, LONG),
        ),
      );
      const other = await askCluster(cluster, bystander, 0, LONG);
      const ends = streams.map(async (response) => {
        assert.equal(response.status, 200);
        const text = await response.text();
        return { text, atMs: performance.now() };
      });
      const orderedAtMs = performance.now();
      await cluster.keys("disable", created.id, "--stop-running");
      const toldAtMs = performance.now();
      for (const { text, atMs } of await Promise.all(ends)) {
        assert.ok(atMs > orderedAtMs, "it ended before it was stopped");
        assert.ok(atMs - toldAtMs < 1_000, `${atMs - toldAtMs} ms`);
        assert.match(text, /^data: \{"error":.*"code":"key_revoked"/m);
        assert.ok(!text.includes("[DONE]"));
      }
      const reader = other.body?.getReader();
      assert.ok(reader);
      assert.equal((await reader.read()).done, false, "another key goes on");
      await reader.cancel();
      assert.deepEqual(await everyEdge(value), [403, 403, 403]);
    },
  );

  await t.step(
    "limits of an owner set on the command line hold for his keys together, on every edge",
    async () => {
      const email = "ada@example.org";
      const make = async () =>
        JSON.parse(
          await cluster.keys(
            "create",
            "--description=shared",
            `--owner=${email}`,
            "--json",
          ),
        ).key;
      const values: string[] = [await make(), await make()];
      const [one = "", two = ""] = values;
      await cluster.owners("limits", email, "--rpm=5");
      const statuses: number[] = [];
      for (let number = 0; number < 6; number += 1) {
        const value = number % 2 === 0 ? one : two;
        statuses.push(
          await statusOf(askCluster(cluster, value, number % EDGES)),
        );
      }
      assert.deepEqual(statuses, [200, 200, 200, 200, 200, 429]);
      const refused = await askCluster(cluster, one, 1);
      assert.match((await refused.json()).error.message, /for your account/);

      await cluster.owners("limits", email, "--rpm=0", "--concurrency=1");
      const held = await askCluster(cluster, one, 0, LONG);
      assert.equal(held.status, 200);
      assert.equal(await statusOf(askCluster(cluster, two, 1)), 429);
      await held.body?.cancel();
      await waitFor(
        async () => await statusOf(askCluster(cluster, two, 1)) === 200,
        { what: "the owner's slot" },
      );
    },
  );
});
