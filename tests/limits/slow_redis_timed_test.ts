// Promise: a Redis that answers within its deadline is no outage, and neither are lost scripts.
import assert from "node:assert/strict";
import { startGatedCluster, statusOf } from "../support/gated_cluster.ts";
import { waitFor } from "../support/wait_for.ts";

/** Of the 125 ms that an edge waits: half on the way there, half on the way back. */
const SLOW_MS = 70;
const REQUESTS = 12;
const AT_ONCE = 20;

Deno.test("slow by 70 ms, or without its scripts: Redis is there", async () => {
  await using cluster = await startGatedCluster({ redisMsMin: 0 });
  const { edge, proxy, world } = cluster;
  await waitFor(() => edge.redis.state === "ready", { what: "Redis" });
  edge.log.lines.splice(0);
  proxy.set({ delayMs: SLOW_MS / 2 });
  for (let count = 0; count < REQUESTS; count += 1) {
    const newcomer = await cluster.addKey();
    assert.equal(await statusOf(cluster.ask(newcomer)), 200);
  }
  proxy.set({});
  await world.command("SCRIPT", "FLUSH");
  const key = await cluster.addKey();
  const statuses = await Promise.all(
    Array.from({ length: AT_ONCE }, () => statusOf(cluster.ask(key))),
  );
  assert.deepEqual(new Set(statuses), new Set([200]));
  const changes = edge.log.lines.filter(({ event }) => event === "redis_state");
  assert.deepEqual(changes, []);
});
