import assert from "node:assert/strict";
import { createClientAddress } from "@gateway/shared/process/client_address";
import { createDeadlines } from "@gateway/shared/process/deadlines";
import { randomBytes } from "@gateway/shared/process/ids";
import { mintKey } from "@gateway/shared/keys/key";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { createRecordingLog } from "../../tests/support/recording_log.ts";
import { createApp } from "./app.ts";
import { RunOutcome } from "./dispatch/outcome.ts";
import { BodyBudget, RefusedBodies } from "./http/read_body.ts";
import { startServer } from "./http/server.ts";
import { createEdgeMetrics } from "./metrics.ts";

const RUN_MS = 3;
const LOOKUP_MS = 400;
const HOST = "127.0.0.1";

/** An app whose parts move the clock. */
async function start(models: readonly string[] = []) {
  let nowMs = 0;
  const now = () => nowMs;
  const log = createRecordingLog();
  const registry = new MetricRegistry();
  const deadlines = createDeadlines(now);
  const drain = { hasBegun: false };
  const app = createApp({
    catalog: catalogFromSimulator("http://127.0.0.1:9/v1"),
    now,
    log,
    metrics: createEdgeMetrics(registry),
    deadlines,
    bodyBytesMax: 1_000,
    streamHeadMs: 0,
    bodyBudget: new BodyBudget(REQUEST_LIMITS),
    refusedBodies: new RefusedBodies(now),
    clientAddress: createClientAddress([]),
    corsOrigins: [],
    isDraining: () => drain.hasBegun,
    keys: {
      find() {
        nowMs += LOOKUP_MS;
        return Promise.resolve({ keyId: "key_a", ownerId: "own_a" });
      },
    },
    admission: {
      modelsOf: () => Promise.resolve(models),
      checkRefused: () => Promise.resolve(),
      admitChat: () =>
        Promise.resolve({
          slotFreed: null,
          headers: {},
          settle: () => {},
          release: () => {},
        }),
    },
    dispatcher: {
      isStoppedSince: () => false,
      start(_job, sink, onEnded) {
        nowMs += RUN_MS;
        queueMicrotask(() => {
          sink.onPayload(new TextEncoder().encode("{}\n"), 1);
          sink.onEnd();
          onEnded(new RunOutcome());
        });
        return { delivered: () => {}, cancel: () => {} };
      },
    },
  });
  const server = await startServer({
    hostname: HOST,
    port: 0,
    deadlines,
    now,
    handler: app,
    onError: (error) => assert.fail(String(error)),
  });
  return {
    log,
    registry,
    drain,
    ask: (path: string, init?: RequestInit) =>
      fetch(`http://${HOST}:${server.port}${path}`, init),
    async [Symbol.asyncDispose]() {
      await server.stop({ graceMs: 0, abortMs: 0 });
      deadlines.close();
    },
  };
}

Deno.test("the duration of a request begins with its arrival, before its key is looked up", async () => {
  await using edge = await start();
  const response = await edge.ask("/v1/chat/completions", {
    method: "POST",
    headers: { authorization: `Bearer ${mintKey(randomBytes)}` },
    body: new TextEncoder().encode(JSON.stringify({
      model: DEFAULT_MODEL_ID,
      messages: [{ role: "user", content: "ping" }],
    })),
  });
  assert.equal(await response.text(), "{}\n");
  assert.equal(response.status, 200);
  assert.equal(
    edge.log.find("chat")?.durationMs,
    LOOKUP_MS + RUN_MS,
  );
  assert.match(
    edge.registry.text(),
    /gateway_request_duration_seconds_sum\{route="chat"\} 0\.403/,
  );
});

Deno.test("the health check of load balancers needs no key and reveals nothing else", async () => {
  await using edge = await start();
  for (const path of ["/health", "/healthz"]) {
    for (const method of ["GET", "HEAD"]) {
      const response = await edge.ask(path, { method });
      assert.equal(response.status, 200);
      assert.equal(await response.text(), method === "GET" ? "ok\n" : "");
      assert.equal(response.headers.get("content-length"), "3");
      assert.equal(response.headers.get("cache-control"), "no-store");
      assert.match(response.headers.get("x-request-id") ?? "", /^req_/);
      assert.equal(response.headers.get("connection"), "keep-alive");
    }
  }
  assert.deepEqual(edge.log.lines, [], "they ask every second");
  edge.drain.hasBegun = true;
  const response = await edge.ask("/health");
  assert.equal(response.headers.get("connection"), "close");
  await response.body?.cancel();
});

Deno.test("a key is shown the models that it may use, and no others", async () => {
  const rows: [models: string[], listed: string[], status: number][] = [
    [[], [DEFAULT_MODEL_ID], 200],
    [[DEFAULT_MODEL_ID], [DEFAULT_MODEL_ID], 200],
    [["another-model"], [], 404],
  ];
  for (const [models, listed, status] of rows) {
    await using edge = await start(models);
    const headers = { authorization: `Bearer ${mintKey(randomBytes)}` };
    const get = (path: string) => edge.ask(path, { headers });
    const { data } = await (await get("/v1/models")).json();
    assert.deepEqual(data.map(({ id }: { id: string }) => id), listed);
    const response = await get(`/v1/models/${DEFAULT_MODEL_ID}`);
    assert.equal(response.status, status);
    await response.body?.cancel();
  }
});
