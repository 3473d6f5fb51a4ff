/**
 * Guarantee: limits of an owner that were set on the command line hold for all keys
 * together, on every edge, each its own process. That an acknowledged change of
 * a key holds on all of them: `tests/e2e/console_takes_effect_timed_test.ts`. Under
 * pressure, and when an edge is killed: `services/edge-auth/limits/limiter_pressure_test.ts`.
 */
import assert from "node:assert/strict";
import { startCluster } from "../support/cluster.ts";
import { askCluster, LONG } from "../support/cluster_keys.ts";
import { statusOf } from "../support/gated_cluster.ts";
import { waitFor } from "../support/wait_for.ts";

const EDGES = 3;

Deno.test("limits of an owner over a cluster of 3 edges", async () => {
  await using cluster = await startCluster({ edges: EDGES });
  const email = "ada@example.org";
  const make = async (): Promise<string> => {
    const line = `create --description=shared --owner=${email} --json`;
    return JSON.parse(await cluster.keys(...line.split(" "))).key;
  };
  const [one, two] = [await make(), await make()];
  await cluster.owners("limits", email, "--rpm=5");
  const statuses: number[] = [];
  for (let number = 0; number < 6; number += 1) {
    const value = number % 2 === 0 ? one : two;
    const answer = askCluster(cluster, value, number % EDGES);
    statuses.push(await statusOf(answer));
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
});
