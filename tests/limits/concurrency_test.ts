/**
 * Guarantee: limits hold exactly over several edges, and a slot never stays with a
 * request that is over, whichever way it ended.
 */
import assert from "node:assert/strict";
import {
  startGatedCluster,
  statusOf,
  type TestKey,
} from "../support/gated_cluster.ts";
import { text } from "../support/scripted_backend.ts";
import { waitFor } from "../support/wait_for.ts";

const EDGES = 4;

Deno.test("4 edges never run more of a key at once than it may", async () => {
  let running = 0;
  let runningMax = 0;
  await using cluster = await startGatedCluster({
    edges: EDGES,
    onCall(call) {
      running += 1;
      runningMax = Math.max(runningMax, running);
      setTimeout(() => {
        running -= 1;
        call.say(text("pong"));
        call.end();
      }, 10);
    },
  });
  const key = await cluster.addKey({ limits: { concurrency: 5 } });
  let served = 0;
  await Promise.all(Array.from({ length: 16 }, async (_, client) => {
    for (let asked = 0; asked < 20; asked += 1) {
      const status = await statusOf(cluster.ask(key, { edge: client % EDGES }));
      if (status === 200) served += 1;
      else assert.equal(status, 429);
    }
  }));
  assert.ok(served >= 5, `${served} served`);
  assert.ok(runningMax <= 5, `${runningMax} at the same time`);
  assert.equal(runningMax, 5);
});

Deno.test("10,000 clients that leave at any moment leave no lease behind", async () => {
  await using cluster = await startGatedCluster({
    edges: 2,
    onCall(call) {
      // Some answers begin, none ends.
      if (cluster.backend.calls.length % 2 === 0) call.say(text("begun"));
    },
  });
  const key = await cluster.addKey({ limits: { concurrency: 1_000_000 } });
  const leave = async (number: number) => {
    const controller = new AbortController();
    const stream = number % 3 !== 0;
    const asking = cluster.ask(key, {
      edge: number % 2,
      body: { stream },
      signal: controller.signal,
    }).then((response) => response.text());
    const timer = setTimeout(() => controller.abort(), number % 23);
    await assert.rejects(asking, { name: "AbortError" });
    clearTimeout(timer);
  };
  await Promise.all(Array.from({ length: 50 }, async (_, client) => {
    for (let count = 0; count < 200; count += 1) await leave(client + count);
  }));
  await assertNothingLeft(cluster, key);
  assert.ok(cluster.backend.calls.length > 0, "nobody reached the backend");
  for (const call of cluster.backend.calls) assert.ok(call.abortedAtMs);
});

async function assertNothingLeft(
  { leases, edges }: Awaited<ReturnType<typeof startGatedCluster>>,
  key: TestKey,
): Promise<void> {
  await waitFor(async () => await leases(key) === 0, {
    what: "every lease to be given back",
    timeoutMs: 2_000,
  });
  for (const { gate } of edges) assert.equal(await gate.stop(0), 0);
}
