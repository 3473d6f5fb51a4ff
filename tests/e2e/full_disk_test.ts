/** Guarantee: a service whose log cannot be written goes on without it. */
import assert from "node:assert/strict";
import { Simulator } from "../../services/model-simulator/simulator.ts";
import { ask } from "../support/chat_outcome.ts";
import { freePort } from "../support/local_server.ts";
import { startMiniCluster } from "../support/mini_cluster.ts";
import { startServiceLoggingTo } from "../support/service_processes.ts";
import { waitFor } from "../support/wait_for.ts";

/** Every write to it fails for lack of space. */
const FULL = "/dev/full";
const START_MS = 30_000;

Deno.test("a worker whose log is on a full disk answers and drains as always", async () => {
  await using cluster = await startMiniCluster();
  const { edge, nats } = cluster;
  await using simulator = new Simulator();
  await using worker = startServiceLoggingTo(FULL, "chat-worker", {
    MODEL_SIMULATOR_URL: simulator.url,
    NATS_URL: `nats://${nats.server}`,
    OPS_PORT: String(freePort()),
    LOG_LEVEL: "debug",
  });
  await waitFor(() => edge.dispatcher.workers.totals().workers === 1, {
    what: () => `the worker: ${worker.output()}`,
    timeoutMs: START_MS,
  });
  for (let seed = 0; seed < 5; seed += 1) {
    const answer = await ask(edge, { seed, max_tokens: 5, stream: true });
    assert.equal(answer.kind, "complete");
  }
  worker.signal("SIGTERM");
  const { code } = await worker.exited;
  assert.equal(code, 0, worker.output());
});
