/**
 * Guarantee: if a worker fails, a client that has received nothing does not notice;
 * any other gets one error, in time.
 */
import assert from "node:assert/strict";
import {
  encodeRejectFrame,
  FRAME_HEADER_BYTES,
  FrameType,
} from "@gateway/shared/bus/frame";
import { BEAT_VERSION, encodeWorkerBeat } from "@gateway/shared/bus/job";
import type { BusLink } from "@gateway/shared/bus/link";
import { monotonicNow } from "@gateway/shared/process/clock";
import { connectBus } from "@gateway/shared/bus/link_nats";
import {
  chatBodyWildcard,
  chatControlSubject,
  chatJobSubject,
  workerBeatSubject,
} from "@gateway/shared/bus/subjects";
import { silentLog } from "@gateway/shared/process/log";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { ask, outcomeOf } from "../support/chat_outcome.ts";
import {
  chat,
  startMiniEdge,
  startMiniWorker,
} from "../support/mini_cluster.ts";
import { startNatsServer } from "../support/nats_server.ts";
import {
  hello,
  scriptedBackend,
  text,
  usageOf,
} from "../support/scripted_backend.ts";
import { seededRandom } from "../support/seeded_random.ts";
import { startTcpProxy } from "../support/tcp_proxy.ts";
import { answerOf, tokenBackend } from "../support/scripted_backend.ts";
import { sleep, waitFor } from "../support/wait_for.ts";

/** Offset of the type in a frame, see `shared/bus/frame.ts`. */
const TYPE_OFFSET = 1;

Deno.test("a worker that died unnoticed: its requests run elsewhere within half a second", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const doomed = await startMiniWorker({ servers, backend: scriptedBackend() });
  await using _worker = await startMiniWorker({
    servers,
    backend: scriptedBackend(hello),
  });
  await waitFor(() => edge.workers.totals().workers === 2, {
    what: "both workers",
  });
  await doomed.kill();
  const startedAtMs = performance.now();
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => ask(edge, {})),
  );
  const tookMs = performance.now() - startedAtMs;
  for (const answer of answers) assert.equal(answer.kind, "complete");
  assert.ok(tookMs < 1_000, `took ${tookMs} ms`);
});

Deno.test("a worker killed mid-stream: one error within a second, settled with what came", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const backend = scriptedBackend((call) => call.say(text("a"), text("b")));
  const doomed = await startMiniWorker({ servers, backend });
  const answered = await chat(edge, { stream: true });
  const killedAtMs = performance.now();
  await doomed.kill();
  const outcome = await outcomeOf(Promise.resolve(answered));
  const tookMs = performance.now() - killedAtMs;
  assert.partialDeepStrictEqual(outcome, {
    kind: "sse_error",
    errorCode: "worker_lost",
    content: "ab",
  });
  assert.ok(tookMs < 1_000, `took ${tookMs} ms`);
  assert.deepEqual(edge.settlements, [{
    usage: null,
    completionTokens: 2,
    kind: "failed",
    hasRun: true,
    isStopped: false,
    isFinal: false,
  }]);
  await waitFor(() => edge.dispatcher.outboxes === 0, { what: "the outbox" });
});

Deno.test("a stream opened with keep-alives before its first token: another worker may still answer", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({
    servers,
    door: { streamHeadMs: 50 },
  });
  const doomed = await startMiniWorker({ servers, backend: scriptedBackend() });
  const answered = await chat(edge, { stream: true });
  assert.equal(answered.status, 200);
  await using _worker = await startMiniWorker({
    servers,
    backend: scriptedBackend(hello),
  });
  await doomed.kill();
  assert.partialDeepStrictEqual(await outcomeOf(Promise.resolve(answered)), {
    kind: "complete",
    content: "Hello",
  });
});

Deno.test("a worker cut off from the bus: its streams end, and it stops its backends", async () => {
  await using nats = await startNatsServer();
  await using proxy = startTcpProxy(nats.port);
  await using edge = await startMiniEdge({ servers: [nats.server] });
  const backend = scriptedBackend((call) => call.say(text("a")));
  await using worker = await startMiniWorker({
    servers: [proxy.server],
    backend,
    busLostMs: 1_000,
  });
  const answered = chat(edge, { stream: true });
  await answered; // The 200 comes with the first byte: from now on nothing is repeated.
  const call = await waitFor(() => backend.calls[0], { what: "the call" });
  proxy.set({ refuse: true });
  proxy.cut();
  assert.partialDeepStrictEqual(await outcomeOf(answered), {
    kind: "sse_error",
    errorCode: "worker_lost",
  });
  await waitFor(() => call.abortedAtMs, { what: "the abort" });
  await waitFor(() => worker.worker.inFlight === 0, { what: "the slot" });
  assert.equal(worker.worker.unfinished, 0);
});

for (const failedDials of [0, 1, 2]) {
  Deno.test(`a cut connection of the only worker, back after ${failedDials} failed dials: streams go on, requests wait`, async () => {
    await using nats = await startNatsServer();
    await using proxy = startTcpProxy(nats.port);
    await using edge = await startMiniEdge({ servers: [nats.server] });
    const backend = tokenBackend({ tokenMs: 10 });
    await using _worker = await startMiniWorker({
      servers: [proxy.server],
      backend,
    });
    const running = ask(edge, { stream: true, seed: 1, max_tokens: 100 });
    // A connection that was made a moment ago is not dialled again at once.
    await waitFor(() => (backend.produced.get(1) ?? 0) > 20, {
      what: "tokens",
    });
    proxy.set({ refuse: failedDials > 0 });
    // Sent before, so that they find the worker gone.
    const asked = Array.from(
      { length: 20 },
      () => ask(edge, { stream: true, seed: 2, max_tokens: 5 }),
    );
    proxy.cut();
    await waitFor(() => proxy.refusals() >= failedDials, { what: "the dials" });
    proxy.set({});
    for (const answer of await Promise.all(asked)) {
      assert.partialDeepStrictEqual(answer, {
        kind: "complete",
        content: answerOf(2, 5),
      });
    }
    assert.partialDeepStrictEqual(await running, {
      kind: "complete",
      content: answerOf(1, 100),
    });
  });
}

Deno.test("lost, doubled and reordered frames change nothing that a client sees", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const random = seededRandom(3);
  const isFrame = (subject: string) => subject.startsWith("gw.v1.edge.");
  const tamper = (publish: BusLink["publish"]): BusLink["publish"] => {
    let held: (() => void) | undefined;
    return (subject, payload, options) => {
      const send = () => publish(subject, payload.slice(), options);
      if (!isFrame(subject) || payload.length < FRAME_HEADER_BYTES) {
        return send();
      }
      const dice = random();
      // An offer is given up when two ACCEPT frames are lost: repeats_test.ts.
      const mayBeLost = payload[TYPE_OFFSET] !== FrameType.ACCEPT;
      if (dice < 0.1 && mayBeLost) return;
      if (dice < 0.2) send(); // Twice.
      if (dice < 0.3 && held === undefined) {
        held = send; // After the next one.
        return;
      }
      send();
      held?.();
      held = undefined;
    };
  };
  const backend = tokenBackend({ tokenMs: 3 });
  await using worker = await startMiniWorker({ servers, backend, tamper });
  const answers = await Promise.all(
    Array.from(
      { length: 20 },
      (_, seed) => ask(edge, { seed, max_tokens: 60, stream: seed % 2 === 0 }),
    ),
  );
  for (const [seed, answer] of answers.entries()) {
    assert.partialDeepStrictEqual(answer, {
      kind: "complete",
      content: answerOf(seed, 60),
    });
  }
  await waitFor(() => worker.worker.unfinished === 0, { what: "every END" });
});

Deno.test("a request in pieces whose worker dies meanwhile is sent again to another", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const deaf = await startMiniWorker({
    servers,
    backend: scriptedBackend(),
    tamper: (publish) => (subject, payload, options) => {
      if (payload.length > 0) publish(subject, payload, options);
    },
  });
  let pieces = 0;
  edge.link.subscribe(chatBodyWildcard(deaf.id), () => pieces += 1);
  await waitFor(() => edge.workers.totals().workers === 1, { what: "a beat" });
  const content = "é".repeat(1_000_000);
  const startedAtMs = performance.now();
  const answer = ask(edge, { messages: [{ role: "user", content }] });
  await waitFor(() => pieces > 0, { what: "a piece" });
  const backend = scriptedBackend(hello);
  await using _other = await startMiniWorker({ servers, backend });
  await deaf.kill();
  assert.equal((await answer).kind, "complete");
  const tookMs = performance.now() - startedAtMs;
  assert.ok(tookMs < 3_000, `took ${tookMs} ms`);
  assert.equal(backend.calls[0]?.request.messages[0]?.content, content);
  assert.equal(edge.settlements.length, 1);
});

Deno.test("a worker of another version: another one, else 503 in two seconds without a storm", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const link = await connectBus({
    servers,
    name: "worker of tomorrow",
    log: silentLog,
    now: monotonicNow,
    random: Math.random,
  });
  const id = "tomorrow";
  let offers = 0;
  link.subscribe(chatControlSubject(id), ({ reply }) => {
    if (reply !== undefined) link.publish(reply, new Uint8Array(0));
  });
  link.subscribe(chatJobSubject(id), ({ reply, data }) => {
    offers += 1;
    const { attempt } = JSON.parse(new TextDecoder().decode(data));
    const reject = {
      worker: id,
      reason: "unsupported_version" as const,
      retryAfterMs: null,
    };
    link.publish(reply ?? "", encodeRejectFrame(attempt, reject));
  });
  const beat = encodeWorkerBeat({
    version: BEAT_VERSION,
    slots: 8,
    inFlight: 0,
    draining: false,
    models: [DEFAULT_MODEL_ID],
  });
  const beats = setInterval(
    () => link.publish(workerBeatSubject(id), beat),
    250,
  );
  try {
    await waitFor(() => edge.workers.totals().workers === 1, {
      what: "a beat",
    });
    assert.partialDeepStrictEqual(await ask(edge, {}), {
      kind: "http_error",
      status: 503,
      errorCode: "overloaded",
      retryAfter: "1",
    });
    assert.ok(offers < 50, `${offers} offers`);
    await using _worker = await startMiniWorker({
      servers,
      backend: scriptedBackend(hello),
    });
    await waitFor(() => edge.workers.totals().workers === 2, {
      what: "both workers",
    });
    for (let number = 0; number < 10; number += 1) {
      assert.equal((await ask(edge, {})).kind, "complete");
    }
  } finally {
    clearInterval(beats);
    await link.close();
  }
});

Deno.test("the whole process is stalled for two seconds: a pause, nothing else", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const backend = scriptedBackend((call) => call.say(text("a")));
  await using _worker = await startMiniWorker({ servers, backend });
  const answered = await chat(edge, { stream: true });
  const untilMs = performance.now() + 2_200;
  while (performance.now() < untilMs);
  const [call] = backend.calls;
  call?.say(text("b"));
  await sleep(0);
  call?.end(usageOf(2));
  assert.partialDeepStrictEqual(await outcomeOf(Promise.resolve(answered)), {
    kind: "complete",
    content: "ab",
  });
});
