/**
 * Guarantee: a client that leaves stops costing money. The backend is told within
 * 100 ms, in every state a request can be in, and the tokens it made are settled.
 */
import assert from "node:assert/strict";
import {
  chat,
  startMiniEdge,
  startMiniWorker,
} from "../support/mini_cluster.ts";
import { startNatsServer } from "../support/nats_server.ts";
import { scriptedBackend, text } from "../support/scripted_backend.ts";
import { waitFor } from "../support/wait_for.ts";

/** The promise of the product; the machine of a test run may add as much again. */
const CANCEL_MS = 100;

for (
  const { state, stream, firstToken } of [
    { state: "streaming", stream: true, firstToken: true },
    { state: "before the first token", stream: true, firstToken: false },
    { state: "not streaming", stream: false, firstToken: true },
  ]
) {
  Deno.test(`a client that leaves while ${state} stops the backend`, async () => {
    await using nats = await startNatsServer();
    const servers = [nats.server];
    await using edge = await startMiniEdge({ servers });
    const backend = scriptedBackend();
    await using worker = await startMiniWorker({ servers, backend });
    const client = new AbortController();
    const answered = chat(edge, { stream }, { signal: client.signal });
    const call = await waitFor(() => backend.calls[0], { what: "the call" });
    if (firstToken) call.say(text("one"), text("two"));
    if (stream && firstToken) await answered;
    const leftAtMs = performance.now();
    client.abort();
    await assert.rejects(async () => await (await answered).text());
    const abortedAtMs = await waitFor(() => call.abortedAtMs, {
      what: "the abort",
    });
    const tookMs = abortedAtMs - leftAtMs;
    assert.ok(tookMs < CANCEL_MS, `the backend heard after ${tookMs} ms`);
    await waitFor(() => edge.settlements.length === 1, {
      what: "the settlement",
    });
    assert.deepEqual(edge.settlements, [{
      usage: null,
      completionTokens: firstToken ? 2 : 0,
      kind: "cancelled",
      hasRun: true,
      isStopped: true,
      isHeard: true,
    }]);
    await waitFor(() => worker.worker.inFlight === 0, { what: "the slot" });
    assert.equal(edge.dispatcher.running, 0);
  });
}

Deno.test("a client that leaves while queued never reaches a backend", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const backend = scriptedBackend();
  await using _worker = await startMiniWorker({ servers, backend, slots: 1 });
  const first = chat(edge, {});
  const running = await waitFor(() => backend.calls[0], {
    what: "the first call",
  });
  const client = new AbortController();
  const queued = chat(edge, {}, { signal: client.signal });
  await waitFor(() => edge.dispatcher.waiting === 1, { what: "the queue" });
  client.abort();
  await assert.rejects(queued);
  await waitFor(() => edge.dispatcher.waiting === 0, {
    what: "the empty queue",
  });
  running.end();
  await (await first).body?.cancel();
  const third = chat(edge, {});
  (await waitFor(() => backend.calls[1], { what: "the next call" })).end();
  await (await third).body?.cancel();
  assert.equal(backend.calls.length, 2);
  assert.partialDeepStrictEqual(edge.settlements[0], {
    hasRun: false,
    completionTokens: 0,
  });
});

Deno.test("a hundred clients that leave at once leave nothing behind", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const backend = scriptedBackend((call) => call.say(text("one")));
  await using worker = await startMiniWorker({ servers, backend, slots: 200 });
  const client = new AbortController();
  const answers = Array.from({ length: 100 }, async () => {
    const response = await chat(edge, { stream: true }, {
      signal: client.signal,
    });
    await response.text();
  });
  await waitFor(() => backend.calls.length === 100, { what: "all calls" });
  client.abort();
  await Promise.all(answers.map((answer) => assert.rejects(answer)));
  await waitFor(() => worker.worker.inFlight === 0, { what: "all slots" });
  await waitFor(() => edge.dispatcher.running === 0, { what: "no runs" });
  await waitFor(() => edge.settlements.length === 100, {
    what: "all settlements",
  });
});
