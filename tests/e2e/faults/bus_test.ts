// Promise: if a worker fails, a client that has received nothing does not notice; any
// other gets one error, in time. While the bus is frozen or away, running answers pause
// or end with one error, and no process counts as dead because of it. An edge that
// loses the bus or is flooded harms no other edge, and its own requests end in time.
// Requests and answers of any size pass.
import assert from "node:assert/strict";
import { ask, begin, endsAs } from "../../support/gateway/chat_outcome.ts";
import {
  connectTo,
  type WholeRequest,
} from "../../support/model_servers/scripted_server.ts";
import { startGateway } from "../../support/gateway/gateway.ts";
import type { InProcessEdge } from "../../support/gateway/in_process_edge.ts";
import { chat, type OpenGateway } from "../../support/gateway/open.ts";
import { chatReply } from "../../support/model_servers/model_answers.ts";
import {
  answerOf,
  hello,
  scriptedModelServer,
  tokenBackend,
} from "../../support/model_servers/scripted_model_server.ts";
import {
  sleep,
  startStopwatch,
  threadMs,
  until,
} from "../../support/wait_for.ts";

/** An answer that waits for nothing and nobody. */
const AT_ONCE_MS = 10;
/**
 * Where time is not the promise, edges and workers have this many times longer: both
 * are in this process, which a busy machine, or parsing 20 MiB, stops for a while.
 */
const SLOWER = 20;
const SIXTEEN = "0123456789abcdef";
const BUS_UNAVAILABLE = {
  kind: "http_error",
  status: 503,
  errorCode: "bus_unavailable",
  retryAfter: "1",
} as const;

const WORKER_LOST = { kind: "sse_error", errorCode: "worker_lost" } as const;

/**
 * A worker whose server says "a" to every request, and a stream that has got it: from
 * now on nothing is repeated.
 */
async function startStream(
  gateway: OpenGateway,
  options?: Parameters<OpenGateway["addWorker"]>[1],
) {
  const backend = scriptedModelServer((call) => call.say("a"));
  const worker = await gateway.addWorker(backend, options);
  const request = await begin(gateway.edge, backend);
  await request.answered;
  return { ...request, backend, worker };
}

Deno.test("a frozen bus: answers pause, no edge or worker is considered dead", async () => {
  await using gateway = await startGateway("open");
  const { edge, nats } = gateway;
  const { outcome, call } = await startStream(gateway);
  await nats.freeze();
  call.say(" during");
  const newcomer = ask(edge, {});
  // Longer than it takes to miss a worker (2 s) and an edge (3 s).
  await sleep(3_500);
  assert.equal(call.abortedAtMs, null, "the worker gave its edge up");
  nats.thaw();
  await endsAs(newcomer, BUS_UNAVAILABLE);
  call.say(" after");
  call.end(3);
  await endsAs(outcome, { kind: "complete", content: "a during after" });
  await gateway.idle();
});

Deno.test("the bus down for too long: every request ends, and new ones succeed when it is back", async () => {
  const busLostMs = 1_000;
  await using gateway = await startGateway("open", { busLostMs });
  const { edge, nats } = gateway;
  const { backend, worker, outcome } = await startStream(gateway, {
    busLostMs,
  });
  const whole = await begin(edge, backend, {});
  await nats.kill();
  const newcomer = ask(edge, {});
  await endsAs(outcome, {
    kind: "sse_error",
    errorCode: "bus_unavailable",
    content: "a",
  });
  for (const refused of [whole.outcome, newcomer]) {
    await endsAs(refused, BUS_UNAVAILABLE);
  }
  await gateway.idle();
  assert.equal(edge.settlements().length, 3);
  await nats.restart();
  await until(() => edge.link.isConnected && worker.link.isConnected);
  const later = await begin(edge, backend, {});
  later.call.end();
  await endsAs(later.outcome, { kind: "complete" });
});

Deno.test("one edge cut off from the bus: its streams end, others never notice", async () => {
  await using gateway = await startGateway("open");
  const { edge } = gateway;
  const proxy = gateway.addProxy();
  const lost = await gateway.addEdge({
    servers: [proxy.server],
    busLostMs: 1_000,
  });
  const backend = tokenBackend({ tokenMs: 20 });
  await gateway.addWorker(backend);
  const cut = ask(lost, { stream: true, seed: 1, max_tokens: 1_000 });
  const whole = ask(edge, { stream: true, seed: 2, max_tokens: 150 });
  await until(() => backend.running === 2);
  await until(() => (backend.produced.get(1) ?? 0) > 5);
  using watch = startStopwatch();
  proxy.set({ refuse: true });
  proxy.cut();
  await endsAs(cut, { kind: "sse_error", errorCode: "bus_unavailable" });
  await endsAs(whole, { kind: "complete", content: answerOf(2, 150) });
  await gateway.idle();
  assert.ok(watch.ms < 5_000, `the backend of a lost edge ran ${watch.ms} ms`);
});

Deno.test("thirty processes come back to a restarted bus, and serve within a second", async () => {
  await using gateway = await startGateway("open");
  const edges: InProcessEdge[] = [gateway.edge];
  while (edges.length < 5) edges.push(await gateway.addEdge());
  const backend = scriptedModelServer(hello);
  await Promise.all(
    Array.from({ length: 25 }, () => gateway.addWorker(backend)),
  );
  await gateway.nats.restart();
  using watch = startStopwatch();
  const answers = await Promise.all(edges.map((edge) => ask(edge, {})));
  for (const answer of answers) assert.equal(answer.kind, "complete");
  assert.ok(watch.ms < 1_000, `took ${watch.ms} ms`);
});

Deno.test("a client that reads nothing stops its own backend and no other", async () => {
  await using gateway = await startGateway("open");
  const { edge } = gateway;
  const endless = Array<string>(10_000).fill("x".repeat(4_000));
  let unread: WholeRequest | undefined;
  await gateway.addWorker({
    connect: connectTo((request) => {
      const isEndless = JSON.parse(request.body).seed === 1;
      if (isEndless) unread = request;
      return chatReply({ words: isEndless ? endless : ["Hello"] })(request);
    }),
  });
  const reader = await chat(edge, { stream: true, seed: 1 });
  let [text, before] = [0, -1];
  await until(async () => {
    before = text;
    await sleep(200);
    text = unread?.bytesSent ?? 0;
    return text > 0 && text === before;
  });
  // The window, the queue of the response, and the buffers of the kernel.
  assert.ok(text < 20_000_000, `${text} bytes for a client that reads nothing`);
  using watch = startStopwatch();
  for (let number = 0; number < 20; number += 1) {
    assert.equal((await ask(edge, {})).kind, "complete");
  }
  assert.ok(watch.ms < 2_000, `others took ${watch.ms} ms`);
  await reader.body?.cancel();
  await gateway.idle();
});

Deno.test("a worker killed mid-stream: one error within a second, settled with what came", async () => {
  await using gateway = await startGateway("open");
  const { edge } = gateway;
  const { worker, outcome } = await startStream(gateway);
  using watch = startStopwatch();
  await worker.kill();
  await endsAs(outcome, { ...WORKER_LOST, content: "a" });
  assert.ok(watch.ms < 1_000, `took ${watch.ms} ms`);
  const [settled, ...more] = edge.settlements();
  assert.partialDeepStrictEqual(settled, {
    usage: null,
    completionTokens: 1,
    kind: "failed",
    cancelReason: null,
    isFinal: false,
  });
  assert.deepEqual(more, []);
  await until(() => edge.dispatcher.bus.receiversWaiting === 0);
});

Deno.test("a stream opened with keep-alives before its first token: another worker may still answer", async () => {
  await using gateway = await startGateway("open", {
    door: { streamHeadMs: 50 },
  });
  const backend = scriptedModelServer();
  const doomed = await gateway.addWorker(backend);
  const { answered, outcome } = await begin(gateway.edge, backend);
  assert.equal((await answered).status, 200);
  await gateway.addWorker(scriptedModelServer(hello));
  await doomed.kill();
  await endsAs(outcome, { kind: "complete", content: "Hello" });
});

Deno.test("a worker cut off from the bus: its streams end, and it stops its backends", async () => {
  await using gateway = await startGateway("open");
  const proxy = gateway.addProxy();
  const own = { servers: [proxy.server], busLostMs: 1_000 };
  const { outcome, call } = await startStream(gateway, own);
  proxy.set({ refuse: true });
  proxy.cut();
  await endsAs(outcome, WORKER_LOST);
  await gateway.idle();
  assert.ok(call.abortedAtMs);
});

Deno.test("the only worker is back after two failed dials: streams go on, requests wait", async () => {
  await using gateway = await startGateway("open", { slower: SLOWER });
  const { edge } = gateway;
  const proxy = gateway.addProxy();
  const backend = tokenBackend({ tokenMs: 10 });
  const own = { servers: [proxy.server], slower: SLOWER };
  await gateway.addWorker(backend, own);
  const running = ask(edge, { stream: true, seed: 1, max_tokens: 100 });
  // A connection that was made a moment ago is not dialled again at once.
  await until(() => (backend.produced.get(1) ?? 0) > 20);
  proxy.set({ refuse: true });
  // Sent before, so that they find the worker gone.
  const responses = Array.from(
    { length: 20 },
    () => ask(edge, { stream: true, seed: 2, max_tokens: 5 }),
  );
  proxy.cut();
  await until(() => proxy.refusals() >= 2);
  proxy.set({});
  for (const answer of responses) {
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
  await using gateway = await startGateway("open");
  const { outcome, call } = await startStream(gateway);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_200);
  call.say("b");
  await sleep(0);
  call.end(2);
  await endsAs(outcome, { kind: "complete", content: "ab" });
});

Deno.test("a request of almost 20 MiB, and a chunk larger than a bus message, arrive whole", async () => {
  await using gateway = await startGateway("open", { slower: SLOWER });
  const content = SIXTEEN.repeat(20 * 1024 * 64 - 64);
  const chunks = [
    ...Array<string>(5_000).fill(SIXTEEN.repeat(64)),
    "é".repeat(300_000),
  ];
  const backend = scriptedModelServer((call) => {
    call.say(String(call.request.messages[0]?.content === content));
    for (const chunk of chunks) call.say(chunk);
    call.end();
  });
  await gateway.addWorker(backend, { slower: SLOWER });
  const messages = [{ role: "user", content }];
  for (const stream of [true, false]) {
    const outcome = await ask(gateway.edge, { stream, messages });
    assert.equal(outcome.kind, "complete");
    const { length } = outcome.content;
    assert.ok(
      outcome.content === `true${chunks.join("")}`,
      `${length} characters`,
    );
  }
});

Deno.test("without any worker the answer is 503 at once", async () => {
  await using gateway = await startGateway("open");
  await ask(gateway.edge, {}); // Warm.
  const tookMs: number[] = [];
  for (let number = 0; number < 20; number += 1) {
    const startedMs = threadMs();
    using watch = startStopwatch();
    const { status, errorCode, retryAfter } = await ask(gateway.edge, {});
    // What this thread computes is no wait.
    tookMs.push(watch.ms - (threadMs() - startedMs));
    assert.deepEqual([status, errorCode, retryAfter], [503, "overloaded", "1"]);
  }
  // The quickest of them: others may have waited for the machine, not for us.
  assert.ok(Math.min(...tookMs) < AT_ONCE_MS, `took ${tookMs} ms`);
});
