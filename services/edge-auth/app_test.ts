import assert from "node:assert/strict";
import { createClientAddress } from "@gateway/shared/process/client_address";
import { randomBytes } from "@gateway/shared/process/ids";
import { mintKey } from "@gateway/shared/keys/key";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { createRecordingLog } from "../../tests/support/recording_log.ts";
import { CATALOG, startApp } from "./app_fixture.ts";
import { RunOutcome } from "./dispatch/outcome.ts";
import { createEdgeMetrics } from "./metrics.ts";

const RUN_MS = 3;
const LOOKUP_MS = 400;
const HOST = "127.0.0.1";

/** An app whose parts move the clock. */
async function start({ models = [], isSampled = true }: {
  models?: readonly string[];
  isSampled?: boolean;
} = {}) {
  let nowMs = 0;
  const log = { ...createRecordingLog(), isSampled: () => isSampled };
  const registry = new MetricRegistry();
  const drain = { hasBegun: false };
  const lease = { headers: {}, video: null, settle: () => {} };
  const app = await startApp({
    now: () => nowMs,
    log,
    metrics: createEdgeMetrics(registry),
    clientAddress: createClientAddress([{ address: HOST, bits: 32 }]),
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
      admit: () => Promise.resolve(lease),
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
  const ask = (path: string, init?: RequestInit) =>
    fetch(`${app.origin}${path}`, init);
  return { ...app, log, registry, drain, ask };
}

/** A request with a key, from behind a proxy. */
const chat = (model = DEFAULT_MODEL_ID) => ({
  method: "POST",
  headers: {
    authorization: `Bearer ${mintKey(randomBytes)}`,
    "content-type": "application/json",
    "x-forwarded-for": "203.0.113.9",
  },
  body: JSON.stringify({
    model,
    messages: [{ role: "user", content: "ping" }],
  }),
});

Deno.test("the duration of a request begins with its arrival, before its key is looked up", async () => {
  await using edge = await start();
  const response = await edge.ask("/v1/chat/completions", chat());
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
    [[], [...CATALOG.keys()], 200],
    [[DEFAULT_MODEL_ID], [DEFAULT_MODEL_ID], 200],
    [["another-model"], [], 404],
  ];
  for (const [models, listed, status] of rows) {
    await using edge = await start({ models });
    const headers = { authorization: `Bearer ${mintKey(randomBytes)}` };
    const get = (path: string) => edge.ask(path, { headers });
    const { data } = await (await get("/v1/models")).json();
    assert.deepEqual(data.map(({ id }: { id: string }) => id), listed);
    const response = await get(`/v1/models/${DEFAULT_MODEL_ID}`);
    assert.equal(response.status, status);
    await response.body?.cancel();
  }
});

Deno.test("a line about a request says who sent it and from where; only lines about failures are certain", async () => {
  const client = { clientAddress: "203.0.113.9" };
  const owner = { keyId: "key_a", ownerId: "own_a" };
  const { headers } = chat();
  const rows: [path: string, init: RequestInit, event: string, who: object][] =
    [
      ["/v1/chat/completions", chat(), "chat", { ...client, ...owner }],
      ["/v1/models", { headers }, "request", { ...client, ...owner }],
      ["/v1/chat/completions", chat("none"), "request", {
        ...{ ...client, ...owner },
        errorCode: "model_not_found",
      }],
      ["/", {}, "request", {
        ...{ clientAddress: HOST, keyId: undefined, ownerId: undefined },
        errorCode: "not_found",
      }],
    ];
  for (const [path, init, event, who] of rows) {
    for (const isSampled of [true, false]) {
      await using edge = await start({ isSampled });
      const response = await edge.ask(path, init);
      await response.body?.cancel();
      const isExpected = isSampled || !response.ok;
      assert.equal(edge.log.lines.length, Number(isExpected), path);
      if (!isExpected) continue;
      assert.partialDeepStrictEqual(edge.log.find(event), who);
    }
  }
});

Deno.test("GET /openapi.json needs no key, and is sent again only when it has changed", async () => {
  await using edge = await start();
  const ask = (method: string, headers: HeadersInit = {}) =>
    edge.ask("/openapi.json", { method, headers });
  const whole = await ask("GET");
  const etag = whole.headers.get("etag") ?? "";
  assert.equal((await whole.json()).openapi, "3.1.1");
  const rows: [method: string, known: string, status: number][] = [
    ["HEAD", "", 200],
    ["GET", '"another", W/"third"', 200],
    ["GET", etag, 304],
    ["HEAD", `"another", W/${etag}`, 304],
    ["GET", "*", 304],
  ];
  for (const [method, known, status] of rows) {
    const response = await ask(method, known ? { "if-none-match": known } : {});
    const header = (name: string) => response.headers.get(name);
    assert.equal(response.status, status, known);
    assert.equal(header("etag"), etag);
    assert.equal(header("cache-control"), "public, max-age=300");
    assert.equal(header("x-content-type-options"), "nosniff");
    assert.match(header("content-type") ?? "", /^application\/json/);
    const isWhole = status === 200 && method === "GET";
    assert.equal((await response.text()).length > 0, isWhole);
  }
  for (const [method, status] of [["OPTIONS", 204], ["POST", 405]] as const) {
    const response = await ask(method);
    assert.equal(response.status, status);
    assert.equal(response.headers.get("allow"), "GET, HEAD, OPTIONS");
    await response.body?.cancel();
  }
});
