/**
 * Guarantee: whatever happens to the bus, running answers continue where they were or
 * end with one error, and no edge or worker is considered dead because of the bus.
 */
import assert from "node:assert/strict";
import { ask, outcomeOf } from "../support/chat_outcome.ts";
import {
  chat,
  startMiniEdge,
  startMiniWorker,
} from "../support/mini_cluster.ts";
import { startNatsServer } from "../support/nats_server.ts";
import { scriptedBackend, text, usageOf } from "../support/scripted_backend.ts";
import { seededRandom } from "../support/seeded_random.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp_proxy.ts";
import { answerOf, tokenBackend } from "../support/scripted_backend.ts";
import { sleep, waitFor } from "../support/wait_for.ts";

Deno.test("a frozen bus: answers pause, no edge or worker is considered dead", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const backend = scriptedBackend();
  await using worker = await startMiniWorker({ servers, backend });
  const answered = chat(edge, { stream: true });
  const call = await waitFor(() => backend.calls[0], { what: "the call" });
  call.say(text("before "));
  const answer = outcomeOf(Promise.resolve(await answered));
  await nats.freeze();
  call.say(text("during "));
  const newcomer = ask(edge, {});
  // Longer than it takes to miss a worker (2 s) and an edge (3 s).
  await sleep(3_500);
  assert.equal(call.abortedAtMs, null, "the worker gave its edge up");
  nats.thaw();
  assert.partialDeepStrictEqual(await newcomer, {
    kind: "http_error",
    status: 503,
    errorCode: "bus_unavailable",
    retryAfter: "1",
  });
  call.say(text("after"));
  call.end(usageOf(3));
  assert.partialDeepStrictEqual(await answer, {
    kind: "complete",
    content: "before during after",
  });
  await waitFor(() => worker.worker.inFlight === 0, { what: "the slot" });
});

Deno.test("a worker that reconnects to the bus later than its edge keeps its streams", async () => {
  await using nats = await startNatsServer();
  await using proxy = startTcpProxy(nats.port);
  await using edge = await startMiniEdge({ servers: [nats.server] });
  const backend = scriptedBackend();
  await using _worker = await startMiniWorker({
    servers: [proxy.server],
    backend,
  });
  const answered = chat(edge, { stream: true });
  const call = await waitFor(() => backend.calls[0], { what: "the call" });
  call.say(text("before "));
  const answer = outcomeOf(Promise.resolve(await answered));
  proxy.set({ refuse: true });
  await nats.restart();
  await waitFor(() => edge.link.isConnected, { what: "the edge" });
  // Finds that nobody listens where the worker was.
  const newcomer = ask(edge, {});
  await sleep(800);
  proxy.set({});
  call.say(text("after"));
  call.end(usageOf(2));
  assert.partialDeepStrictEqual(await answer, {
    kind: "complete",
    content: "before after",
  });
  (await waitFor(() => backend.calls[1], { what: "the new call" })).end();
  assert.equal((await newcomer).kind, "complete");
});

Deno.test("a network that loses packets costs time and nothing else", async () => {
  await using nats = await startNatsServer();
  await using stack = new AsyncDisposableStack();
  const lossy = [1, 2].map((seed) => {
    const proxy = stack.use(startTcpProxy(nats.port));
    stack.use(losePackets(proxy, seed));
    return proxy;
  });
  const [near, far] = lossy.map(({ server }) => [server]);
  await using edge = await startMiniEdge({ servers: near ?? [] });
  const backend = tokenBackend({ tokenMs: 10 });
  await using worker = await startMiniWorker({ servers: far ?? [], backend });
  const tokens = 100;
  const answers = await Promise.all(
    Array.from(
      { length: 10 },
      (_, seed) =>
        ask(edge, { seed, max_tokens: tokens, stream: seed % 2 === 0 }),
    ),
  );
  for (const [seed, answer] of answers.entries()) {
    assert.partialDeepStrictEqual(answer, {
      kind: "complete",
      content: answerOf(seed, tokens),
    });
  }
  await waitFor(() => worker.worker.unfinished === 0, { what: "every END" });
});

/** Time until a lost packet is sent again, on a network that is otherwise fast. */
const RETRANSMIT_MS = 200;
/** Of segments, tried once in this time. */
const LOSS = 0.05;
const SEGMENT_MS = 10;

/**
 * What TCP makes of loss: nothing is missing, but all of a direction stands still
 * until the lost packet has come; twice as long when it is lost again.
 */
function losePackets(proxy: TcpProxy, seed: number): AsyncDisposable {
  const random = seededRandom(seed);
  let isOver = false;
  const losing = (async () => {
    while (!isOver) {
      await sleep(SEGMENT_MS);
      if (random() >= LOSS) continue;
      proxy.set({ blackHole: random() < 0.5 ? "up" : "down" });
      await sleep(random() < LOSS ? 2 * RETRANSMIT_MS : RETRANSMIT_MS);
      proxy.set({});
    }
  })();
  return {
    [Symbol.asyncDispose]: () => {
      isOver = true;
      return losing;
    },
  };
}
