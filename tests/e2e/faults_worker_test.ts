// Promise: if a worker fails, a client that has received nothing does not notice;
// any other gets one error, in time.
import assert from "node:assert/strict";
import { ask, begin, endsAs } from "../support/chat_outcome.ts";
import { startMiniCluster } from "../support/mini_cluster.ts";
import {
  answerOf,
  hello,
  scriptedModelServer,
  tokenBackend,
} from "../support/scripted_model_server.ts";
import { sleep, startStopwatch, until } from "../support/wait_for.ts";

Deno.test("a worker killed mid-stream: one error within a second, settled with what came", async () => {
  await using cluster = await startMiniCluster();
  const { edge } = cluster;
  const backend = scriptedModelServer((call) => call.say("a", "b"));
  const doomed = await cluster.addWorker(backend);
  const { answered, outcome } = await begin(edge, backend);
  await answered;
  using watch = startStopwatch();
  await doomed.kill();
  await endsAs(outcome, {
    kind: "sse_error",
    errorCode: "worker_lost",
    content: "ab",
  });
  assert.ok(watch.ms < 1_000, `took ${watch.ms} ms`);
  const [settled, ...more] = edge.settlements();
  assert.partialDeepStrictEqual(settled, {
    usage: null,
    completionTokens: 2,
    kind: "failed",
    cancelReason: null,
    isFinal: false,
  });
  assert.deepEqual(more, []);
  await until(() => edge.dispatcher.outboxes === 0);
});

Deno.test("a stream opened with keep-alives before its first token: another worker may still answer", async () => {
  await using cluster = await startMiniCluster({ door: { streamHeadMs: 50 } });
  const backend = scriptedModelServer();
  const doomed = await cluster.addWorker(backend);
  const { answered, outcome } = await begin(cluster.edge, backend);
  assert.equal((await answered).status, 200);
  await cluster.addWorker(scriptedModelServer(hello));
  await doomed.kill();
  await endsAs(outcome, { kind: "complete", content: "Hello" });
});

Deno.test("a worker cut off from the bus: its streams end, and it stops its backends", async () => {
  await using cluster = await startMiniCluster();
  const proxy = cluster.addProxy();
  const backend = scriptedModelServer((call) => call.say("a"));
  await cluster.addWorker(backend, {
    servers: [proxy.server],
    busLostMs: 1_000,
  });
  const { answered, outcome, call } = await begin(cluster.edge, backend);
  await answered; // The 200 comes with the first byte: from now on nothing is repeated.
  proxy.set({ refuse: true });
  proxy.cut();
  await endsAs(outcome, { kind: "sse_error", errorCode: "worker_lost" });
  await cluster.idle();
  assert.ok(call.abortedAtMs);
});

Deno.test("the connection of the only worker is cut and back after two failed dials: streams go on, requests wait", async () => {
  await using cluster = await startMiniCluster();
  const { edge } = cluster;
  const proxy = cluster.addProxy();
  const backend = tokenBackend({ tokenMs: 10 });
  await cluster.addWorker(backend, { servers: [proxy.server] });
  const running = ask(edge, { stream: true, seed: 1, max_tokens: 100 });
  // A connection that was made a moment ago is not dialled again at once.
  await until(() => (backend.produced.get(1) ?? 0) > 20);
  proxy.set({ refuse: true });
  // Sent before, so that they find the worker gone.
  const asked = Array.from(
    { length: 20 },
    () => ask(edge, { stream: true, seed: 2, max_tokens: 5 }),
  );
  proxy.cut();
  await until(() => proxy.refusals() >= 2);
  proxy.set({});
  for (const answer of asked) {
    await endsAs(answer, {
      kind: "complete",
      content: answerOf(2, 5),
    });
  }
  await endsAs(running, {
    kind: "complete",
    content: answerOf(1, 100),
  });
});

Deno.test("the whole process is stalled for two seconds: a pause, nothing else", async () => {
  await using cluster = await startMiniCluster();
  const backend = scriptedModelServer((call) => call.say("a"));
  await cluster.addWorker(backend);
  const { answered, outcome, call } = await begin(cluster.edge, backend);
  await answered;
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_200);
  call.say("b");
  await sleep(0);
  call.end(2);
  await endsAs(outcome, { kind: "complete", content: "ab" });
});
