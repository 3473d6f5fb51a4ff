// Promise: two events during the admission of a request are not lost: that its
// client has left, and that its key was stopped.
import assert from "node:assert/strict";
import { subjects } from "@gateway/shared/bus/subjects";
import { startGatedCluster } from "../support/gated_cluster.ts";
import { until } from "../support/wait_for.ts";

const ASKED = 20;
/** The edge notices in a fifth of this that a client has left. */
const NOTICED_MS = 500;

/** A key that was served once, and from now on no answer of Redis arrives. */
async function startCutOff() {
  const cluster = await startGatedCluster();
  const key = await cluster.addKey({ limits: { concurrency: 1_000 } });
  assert.equal(await cluster.status(key), 200);
  await cluster.settled(key);
  cluster.proxy.set({ blackHole: "down" });
  return Object.assign(cluster, { key, ran: cluster.backend.calls.length });
}

Deno.test("a client that leaves while it is admitted gives its slot back and runs nothing", async () => {
  await using cluster = await startCutOff();
  const { key, ran } = cluster;
  const client = new AbortController();
  const asking = Array.from({ length: ASKED }, async () => {
    await assert.rejects(cluster.ask(key, { signal: client.signal }));
  });
  await until(async () => await cluster.leases(key) === ASKED);
  client.abort();
  await Promise.all(asking);
  cluster.proxy.set({ delayMs: NOTICED_MS });
  await cluster.settled(key);
  assert.equal(cluster.backend.calls.length, ran);
  assert.equal(await cluster.status(key), 200);
});

Deno.test("a notice to stop that overtakes the answer of Redis holds", async () => {
  await using cluster = await startCutOff();
  const { key, ran } = cluster;
  const asking = cluster.ask(key);
  await until(async () => await cluster.leases(key) === 1);
  const notice = JSON.stringify({ keyId: key.keyId, action: "stop" });
  const bytes = new TextEncoder().encode(notice);
  cluster.edge.link.publish(subjects.keyChanged, bytes);
  await cluster.edge.link.flush();
  cluster.proxy.set({});
  const response = await asking;
  const { error } = await response.json();
  assert.equal(response.status, 403);
  assert.equal(error.code, "key_revoked");
  assert.equal(cluster.backend.calls.length, ran);
  await cluster.settled(key);
});
