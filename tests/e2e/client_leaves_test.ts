/**
 * Guarantee: however a client leaves, and in whatever state its request is, the
 * connection to the model server is closed within 100 ms.
 */
import assert from "node:assert/strict";
import { Socket } from "node:net";
import {
  type FakeModelServer,
  startFakeModelServer,
  type Step,
} from "../support/fake_model_server.ts";
import {
  chat,
  type MiniEdge,
  startMiniEdge,
  startMiniWorker,
  TEST_KEY,
} from "../support/mini_cluster.ts";
import {
  choiceChunk,
  chunk,
  event,
  streamHead,
} from "../support/model_answers.ts";
import { startNatsServer } from "../support/nats_server.ts";
import { scriptedBackend, text } from "../support/scripted_backend.ts";
import { waitFor } from "../support/wait_for.ts";

const CANCEL_MS = 100;
/** The machine may be busy for a moment, so one of this many attempts must succeed. */
const TRIES = 3;

const STATES = [
  "streaming",
  "before the first token",
  "not streaming",
] as const;
type State = typeof STATES[number];
const WAYS = ["fetch abort", "FIN", "RST"] as const;
type Way = typeof WAYS[number];
/** In the packet of the head, and in many after it: Deno's server hears neither client leave by itself. */
const PROMPTS = ["ping", "word ".repeat(20_000)];

/** A client in the middle of its request. */
interface Client {
  /** Settles when the first bytes of the answer are there. */
  answered: Promise<unknown>;
  leave(): void;
}

function* reply(state: State): Iterable<Step> {
  if (state === "streaming") {
    yield streamHead();
    yield chunk(event(choiceChunk({ role: "assistant", content: "one " })));
  }
  yield { stall: true };
}

function fetchClient(
  edge: MiniEdge,
  stream: boolean,
  content = "ping",
): Client {
  const controller = new AbortController();
  const body = { stream, messages: [{ role: "user", content }] };
  const answered = chat(edge, body, { signal: controller.signal });
  answered.catch(() => {}); // It leaves before an answer.
  return { answered, leave: () => controller.abort() };
}

function socketClient(
  edge: MiniEdge,
  stream: boolean,
  way: Way,
  content = "ping",
): Client {
  const { hostname, port, host } = new URL(edge.baseUrl);
  const body = JSON.stringify({
    model: "neutral-3.7-plus",
    messages: [{ role: "user", content }],
    stream,
  });
  const socket = new Socket();
  const first = Promise.withResolvers<void>();
  socket.on("data", () => first.resolve());
  socket.on("error", () => {}); // Its own reset.
  socket.connect(Number(port), hostname, () =>
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: ${host}\r\n` +
        `authorization: Bearer ${TEST_KEY}\r\n` +
        "content-type: application/json\r\n" +
        `content-length: ${body.length}\r\n\r\n${body}`,
    ));
  return {
    answered: first.promise,
    leave: () => {
      if (way === "RST") socket.resetAndDestroy();
      else socket.destroy();
    },
  };
}

function withPrompts(way: Way): [Way, string][] {
  return PROMPTS.map((prompt) => [way, prompt]);
}

/** How long the model server's request lasted after its client had left. */
async function leaveOnce(
  edge: MiniEdge,
  server: FakeModelServer,
  { state, way, prompt }: { state: State; way: Way; prompt: string },
): Promise<number> {
  const number = server.requests.length + 1;
  const stream = state !== "not streaming";
  const client = way === "fetch abort"
    ? fetchClient(edge, stream, prompt)
    : socketClient(edge, stream, way, prompt);
  const request = await server.request(number);
  if (state === "streaming") await client.answered;
  const leftAtMs = performance.now();
  client.leave();
  return await waitFor(() => request.leftAtMs, {
    what: `the model server to be left (${state}, ${way})`,
  }) - leftAtMs;
}

Deno.test("a client that leaves in any way ends the call of the model server", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  let state: State = "streaming";
  await using server = startFakeModelServer({ reply: () => reply(state) });
  await using edge = await startMiniEdge({ servers });
  await using worker = await startMiniWorker({
    servers,
    backend: server,
    slots: 1,
  });
  for (state of STATES) {
    for (const [way, prompt] of WAYS.flatMap(withPrompts)) {
      const tookMs: number[] = [];
      while (tookMs.length < TRIES) {
        tookMs.push(await leaveOnce(edge, server, { state, way, prompt }));
        if (tookMs.some((ms) => ms < CANCEL_MS)) break;
      }
      assert.ok(
        tookMs.some((ms) => ms < CANCEL_MS),
        `${state}, ${way}, ${prompt.length} bytes: left after ${tookMs} ms`,
      );
      await waitFor(() => edge.dispatcher.running === 0, { what: "no runs" });
      await waitFor(() => worker.worker.inFlight === 0, { what: "the slot" });
    }
  }
  const calls = server.requests.length;
  assert.equal(edge.settlements.length, calls);

  // Queued: behind one that holds the only slot.
  const holder = fetchClient(edge, true);
  await server.request(calls + 1);
  for (const [way, prompt] of WAYS.flatMap(withPrompts)) {
    const queued = way === "fetch abort"
      ? fetchClient(edge, true, prompt)
      : socketClient(edge, true, way, prompt);
    await waitFor(() => edge.dispatcher.waiting === 1, { what: "the queue" });
    queued.leave();
    await waitFor(() => edge.dispatcher.waiting === 0, {
      what: `the queue to be empty (${way})`,
      timeoutMs: 1_000,
    });
  }
  holder.leave();
  await waitFor(() => edge.dispatcher.running === 0, { what: "no runs" });
  assert.equal(server.requests.length, calls + 1);
  assert.equal(
    edge.settlements.length,
    calls + WAYS.length * PROMPTS.length + 1,
  );
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
