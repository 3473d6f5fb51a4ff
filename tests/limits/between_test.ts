/**
 * Guarantee: two events during the admission of a request are not lost: that its
 * client has left, and that its key was stopped.
 */
import assert from "node:assert/strict";
import { keyChangedSubject } from "@gateway/shared/bus/subjects";
import { limiterKey } from "@gateway/shared/keys/record";
import { readState } from "../support/admission_fixture.ts";
import {
  type GatedCluster,
  startGatedCluster,
  statusOf,
  type TestKey,
} from "../support/gated_cluster.ts";
import { waitFor } from "../support/wait_for.ts";

/** Long enough to act in between, short enough to be admitted. */
const SLOW_MS = 60;
const ASKED = 20;
/** Few, so that none is refilled meanwhile. */
const PER_MINUTE = ASKED + 4;
const MS_PER_MINUTE = 60_000;

/** Requests that Redis has counted against the limit, not settled ones only. */
async function requestsCounted(
  { world }: GatedCluster,
  key: TestKey,
): Promise<number> {
  const state = await readState(world, limiterKey(key));
  assert.ok(state);
  const aheadMs = state.requestsTatMs - await world.time();
  return Math.ceil(aheadMs / (MS_PER_MINUTE / PER_MINUTE));
}

Deno.test("a client that leaves while it is admitted gives its slot back and runs nothing", async () => {
  await using cluster = await startGatedCluster();
  const key = await cluster.addKey({
    limits: { concurrency: 1_000, requestsPerMinute: PER_MINUTE },
  });
  assert.equal(await statusOf(cluster.ask(key)), 200);
  cluster.proxy.set({ delayMs: SLOW_MS / 2 });
  const ran = cluster.backend.calls.length;
  await Promise.all(Array.from({ length: ASKED }, async () => {
    const signal = AbortSignal.timeout(SLOW_MS / 2);
    await assert.rejects(cluster.ask(key, { signal }));
  }));
  await waitFor(
    async () => (await requestsCounted(cluster, key)) === ASKED + 1,
    { what: "Redis to have admitted all of them" },
  );
  cluster.proxy.set({});
  await cluster.settled(key);
  assert.equal(cluster.backend.calls.length, ran);
  assert.equal(await statusOf(cluster.ask(key)), 200);
});

Deno.test("a notice to stop that overtakes the answer of Redis holds", async () => {
  await using cluster = await startGatedCluster();
  const key = await cluster.addKey({ limits: { concurrency: 1_000 } });
  assert.equal(await statusOf(cluster.ask(key)), 200);
  const ran = cluster.backend.calls.length;
  cluster.proxy.set({ delayMs: SLOW_MS / 2 });
  const asking = cluster.ask(key);
  await waitFor(async () => await cluster.leases(key) === 1, {
    what: "Redis to admit it",
    intervalMs: 1,
  });
  cluster.edge.link.publish(
    keyChangedSubject,
    new TextEncoder().encode(
      JSON.stringify({ keyId: key.keyId, action: "stop" }),
    ),
  );
  const response = await asking;
  const { error } = await response.json();
  assert.equal(response.status, 403);
  assert.equal(error.code, "key_revoked");
  assert.equal(cluster.backend.calls.length, ran);
  cluster.proxy.set({});
  await cluster.settled(key);
});
