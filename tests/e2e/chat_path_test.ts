/**
 * Guarantee: an answer reaches the client as the backend gave it, and every
 * request ends in exactly one way, whatever fails on the way between.
 */
import assert from "node:assert/strict";
import {
  chat,
  startMiniEdge,
  startMiniWorker,
} from "../support/mini_cluster.ts";
import { startNatsServer } from "../support/nats_server.ts";
import {
  scriptedBackend,
  type ScriptedCall,
  text,
  usageOf,
} from "../support/scripted_backend.ts";
import { waitFor } from "../support/wait_for.ts";

/** An answer that waits for nothing and nobody. */
const AT_ONCE_MS = 10;

/** The events of a stream: parsed chunks, error frames, and "[DONE]". */
async function eventsOf(response: Response): Promise<unknown[]> {
  const body = await response.text();
  return body.split("\n\n").filter((event) => event.startsWith("data: "))
    .map((event) => event.slice("data: ".length))
    .map((data) => data === "[DONE]" ? data : JSON.parse(data));
}

function contentOf(events: unknown[]): string {
  let content = "";
  for (const event of events) {
    const choices = Reflect.get(Object(event), "choices");
    if (Array.isArray(choices)) content += choices[0]?.delta?.content ?? "";
  }
  return content;
}

function hello(call: ScriptedCall): void {
  call.say(text("Hello"), text(", "), text("world"));
  call.end(usageOf(3));
}

Deno.test("a streamed answer arrives whole, in order, ended by [DONE]", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  await using _worker = await startMiniWorker({
    servers,
    backend: scriptedBackend(hello),
  });
  const response = await chat(edge, { stream: true });
  assert.equal(response.status, 200);
  assert.equal(
    response.headers.get("content-type"),
    "text/event-stream; charset=utf-8",
  );
  const events = await eventsOf(response);
  assert.equal(contentOf(events), "Hello, world");
  assert.equal(events.at(-1), "[DONE]");
  await waitFor(() => edge.settlements.length === 1, {
    what: "the settlement",
  });
  assert.deepEqual(edge.settlements, [{
    usage: usageOf(3),
    completionTokens: 3,
    kind: "complete",
    hasRun: true,
    isStopped: false,
    isFinal: true,
  }]);
});

Deno.test("an answer of many megabytes passes through the credit window", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const line = "0123456789abcdef".repeat(64);
  const lines = 5_000;
  const backend = scriptedBackend((call) => {
    for (let i = 0; i < lines; i += 1) call.say(text(line));
    call.end(usageOf(lines));
  });
  await using _worker = await startMiniWorker({ servers, backend });
  const events = await eventsOf(await chat(edge, { stream: true }));
  assert.equal(contentOf(events).length, line.length * lines);
  assert.equal(events.at(-1), "[DONE]");
});

Deno.test("one chunk larger than a bus message arrives whole", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const long = "é".repeat(300_000);
  const backend = scriptedBackend((call) => {
    call.say(text(long));
    call.end();
  });
  await using _worker = await startMiniWorker({ servers, backend });
  assert.equal(
    contentOf(await eventsOf(await chat(edge, { stream: true }))),
    long,
  );
  const whole = await (await chat(edge, {})).json();
  assert.equal(whole.choices[0].message.content, long);
});

Deno.test("a request of almost 20 MiB passes over a default nats-server", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const content = "0123456789abcdef".repeat(20 * 1024 * 64 - 64);
  const backend = scriptedBackend((call) => {
    call.say(text(String(call.request.messages[0]?.content?.length)));
    call.end();
  });
  await using _worker = await startMiniWorker({ servers, backend });
  const response = await chat(edge, { messages: [{ role: "user", content }] });
  assert.equal(response.status, 200);
  assert.equal(
    (await response.json()).choices[0].message.content,
    String(content.length),
  );
});

Deno.test("a failure before the first token is an HTTP error, stream or not", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const backend = scriptedBackend((call) => call.fail());
  await using _worker = await startMiniWorker({ servers, backend });
  for (const stream of [true, false]) {
    const response = await chat(edge, { stream });
    assert.equal(response.status, 502);
    assert.deepEqual(await response.json(), {
      error: {
        message: "The model server failed",
        type: "server_error",
        param: null,
        code: "upstream_error",
      },
    });
  }
});

Deno.test("a failure after the first token is one error frame and no [DONE]", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const backend = scriptedBackend((call) => {
    call.say(text("begin"));
    call.fail("Out of memory");
  });
  await using _worker = await startMiniWorker({ servers, backend });
  const response = await chat(edge, { stream: true });
  assert.equal(response.status, 200);
  const events = await eventsOf(response);
  assert.equal(contentOf(events), "begin");
  assert.deepEqual(events.at(-1), {
    error: {
      message: "Out of memory",
      type: "server_error",
      param: null,
      code: "upstream_error",
    },
  });
  assert.ok(!events.includes("[DONE]"));
});

Deno.test("an edge that has heard of no worker reaches one through the queue group", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const backend = scriptedBackend(hello);
  await using _worker = await startMiniWorker({
    servers,
    backend,
    tamper: (publish) => (subject, payload, options) => {
      if (!subject.startsWith("gw.v1.beat.")) {
        publish(subject, payload, options);
      }
    },
  });
  const response = await chat(edge, {});
  assert.equal(response.status, 200);
  assert.equal(
    (await response.json()).choices[0].message.content,
    "Hello, world",
  );
  assert.equal(edge.workers.totals().workers, 0);
});

Deno.test("without any worker the answer is 503 at once", async () => {
  await using nats = await startNatsServer();
  await using edge = await startMiniEdge({ servers: [nats.server] });
  await chat(edge, {}).then((response) => response.body?.cancel()); // Warm.
  const tookMs: number[] = [];
  for (let number = 0; number < 20; number += 1) {
    const startedAtMs = performance.now();
    const response = await chat(edge, {});
    tookMs.push(performance.now() - startedAtMs);
    assert.equal(response.status, 503);
    assert.equal(response.headers.get("retry-after"), "1");
    assert.equal((await response.json()).error.code, "overloaded");
  }
  // The quickest of them: others may have waited for the machine, not for us.
  assert.ok(Math.min(...tookMs) < AT_ONCE_MS, `took ${tookMs} ms`);
});

Deno.test("a request that finds no slot in time is answered 503 overloaded", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const backend = scriptedBackend();
  await using _worker = await startMiniWorker({ servers, backend, slots: 1 });
  const first = chat(edge, {});
  const running = await waitFor(() => backend.calls[0], {
    what: "the first call",
  });
  const second = await chat(edge, {});
  assert.equal(second.status, 503);
  assert.equal((await second.json()).error.code, "overloaded");
  running.end();
  await (await first).body?.cancel();
});

Deno.test("a worker that drains finishes its streams and gets no new ones", async () => {
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const leavingBackend = scriptedBackend();
  await using leaving = await startMiniWorker({
    servers,
    backend: leavingBackend,
  });
  const old = chat(edge, { stream: true });
  const call = await waitFor(() => leavingBackend.calls[0], {
    what: "the call",
  });
  call.say(text("a"));
  await old;
  await using _fresh = await startMiniWorker({
    servers,
    backend: scriptedBackend(hello),
  });
  const drained = leaving.worker.drain({ graceMs: 10_000, lastWordMs: 100 });
  for (let i = 0; i < 10; i += 1) {
    const response = await chat(edge, {});
    assert.equal(response.status, 200);
    await response.body?.cancel();
  }
  assert.equal(leavingBackend.calls.length, 1);
  call.say(text("b"));
  call.end(usageOf(2));
  const events = await eventsOf(await old);
  assert.equal(contentOf(events), "ab");
  assert.equal(events.at(-1), "[DONE]");
  await drained;
});
