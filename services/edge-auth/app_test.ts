/** What all routes have in common: keys, headers, refusals, log lines and metrics. */
import assert from "node:assert/strict";
import { createClientAddress } from "@gateway/shared/process/client_address";
import { randomBytes } from "@gateway/shared/process/ids";
import { ApiError } from "@gateway/shared/openai/error";
import { mintKey } from "@gateway/shared/keys/key";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { callApi, postChat } from "../../tests/support/chat_request.ts";
import {
  createRecordingLog,
  type RecordingLog,
} from "../../tests/support/recording_log.ts";
import { until } from "../../tests/support/wait_for.ts";
import type { AppDependencies } from "./api/dependencies.ts";
import { CATALOG, type ServedApp, startApp } from "./app_fixture.ts";
import { leaseOf } from "./requests/lease_fixture.ts";
import { type RunJob, RunOutcome } from "./dispatch/outcome.ts";
import { EdgeMetrics } from "./metrics.ts";

const RUN_MS = 3;
const LOOKUP_MS = 400;
const HOST = "127.0.0.1";

const PRINCIPAL = { keyId: "key_a", ownerId: "own_a" };

/** An edge whose parts move the clock, and what it noted. */
interface TestEdge extends ServedApp {
  log: RecordingLog;
  registry: MetricRegistry;
  drain: { hasBegun: boolean };
  /** How requests failed. */
  failures: string[];
  /** Sends a request without a key. */
  ask(path: string, init?: RequestInit): Promise<Response>;
}

async function start({ models = [], isSampled = true, ...overrides }: {
  models?: readonly string[];
  isSampled?: boolean;
  admit?: AppDependencies["admission"]["admit"];
  modelsOf?: AppDependencies["admission"]["modelsOf"];
  start?: AppDependencies["dispatcher"]["start"];
} = {}): Promise<TestEdge> {
  let nowMs = 0;
  const failures: string[] = [];
  const log = { ...createRecordingLog(), isSampled: () => isSampled };
  const registry = new MetricRegistry();
  const drain = { hasBegun: false };
  const app = await startApp({
    now: () => nowMs,
    log,
    metrics: new EdgeMetrics(registry),
    clientAddress: createClientAddress([{ address: HOST, bits: 32 }]),
    isDraining: () => drain.hasBegun,
    failedRequests: { add: (_, { how }) => void failures.push(how) },
    keys: {
      find() {
        nowMs += LOOKUP_MS;
        return Promise.resolve(PRINCIPAL);
      },
    },
    admission: {
      modelsOf: () => Promise.resolve(models),
      checkRefused: () => Promise.resolve(),
      admit: () => Promise.resolve(leaseOf(PRINCIPAL)),
      ...overrides,
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
      ...overrides,
    },
  });
  const ask = (path: string, init?: RequestInit) =>
    fetch(`${app.origin}${path}`, init);
  return { ...app, log, registry, drain, failures, ask };
}

/** Requests with a key, from behind a proxy. */
const KEY = mintKey(randomBytes);
const headers = { "x-forwarded-for": "203.0.113.9" };
const get = ({ origin }: { origin: string }, path: string) =>
  callApi(`${origin}/v1/${path}`, KEY, { headers });
const chat = ({ origin }: { origin: string }, body = {}) =>
  postChat(`${origin}/v1`, KEY, { body, headers });

Deno.test("the duration of a request begins with its arrival, before its key is looked up", async () => {
  await using edge = await start();
  const response = await chat(edge);
  assert.equal(await response.text(), "{}\n");
  assert.equal(response.status, 200);
  assert.equal(edge.log.find("chat")?.durationMs, LOOKUP_MS + RUN_MS);
  const duration = /request_duration_seconds_sum\{route="chat"\} 0\.403/;
  await until(() => duration.test(edge.registry.text()));
});

Deno.test("X-Gateway-Timeout counts from the arrival of a request and must be a number", async () => {
  const jobs: RunJob[] = [];
  await using edge = await start({
    start(job, sink, onEnded) {
      jobs.push(job);
      queueMicrotask(() => {
        sink.onPayload(new TextEncoder().encode("{}\n"), 1);
        sink.onEnd();
        onEnded(new RunOutcome());
      });
      return { delivered: () => {}, cancel: () => {} };
    },
  });
  const ask = (path: string, timeout: string) =>
    callApi(`${edge.origin}/v1/${path}`, KEY, {
      headers: { "x-gateway-timeout": timeout },
      body: { model: DEFAULT_MODEL_ID, messages: [], input: "x" },
    });
  const requestHeaders = { ...headers, "x-gateway-timeout": "1.5" };
  const response = await postChat(`${edge.origin}/v1`, KEY, {
    headers: requestHeaders,
  });
  assert.equal(response.status, 200, await response.text());
  assert.equal(jobs[0]?.endsByMs, 1_500);
  for (const path of ["chat/completions", "embeddings", "responses"]) {
    const refused = await ask(path, "soon");
    assert.equal(refused.status, 400);
    const { error } = await refused.json();
    assert.equal(error.code, "invalid_value");
    assert.match(error.message, /'X-Gateway-Timeout'.+'soon'/);
  }
  assert.deepEqual(edge.failures, ["refused", "refused", "refused"]);
  const refused = await ask("messages", "-1");
  assert.equal(refused.status, 400);
  const { error } = await refused.json();
  assert.equal(error.type, "invalid_request_error");
  assert.equal(jobs.length, 1);
});

Deno.test("a key without rights hears of that, not of its X-Gateway-Timeout", async () => {
  const forbid = () => Promise.reject(new ApiError("forbidden", "Disabled."));
  await using edge = await start({ modelsOf: forbid });
  const requestHeaders = { "x-gateway-timeout": "soon" };
  const refused = await callApi(`${edge.origin}/v1/models`, KEY, {
    headers: requestHeaders,
  });
  assert.equal(refused.status, 403, await refused.text());
});

Deno.test("the duration of a request is counted for its route", async () => {
  await using edge = await start();
  const images = [{ image_url: "data:image/png;base64,AA==" }];
  const fields = { model: "simulated-image-1", prompt: "A fox", images };
  await (await callApi(`${edge.origin}/v1/images/edits`, KEY, { body: fields }))
    .text();
  const count = /request_duration_seconds_count\{route="image_edit"\} 1/;
  await until(() => count.test(edge.registry.text()));
});

Deno.test("the health check and the description of the API need no key", async () => {
  await using edge = await start();
  const paths = [
    { path: "/health", caching: "no-store" },
    { path: "/healthz", caching: "no-store" },
    { path: "/openapi.json", caching: "public, max-age=300" },
  ];
  for (const { path, caching } of paths) {
    for (const method of ["GET", "HEAD"]) {
      const response = await edge.ask(path, { method });
      const { status, headers } = response;
      assert.equal(status, 200);
      const length = method === "GET" ? headers.get("content-length") : "0";
      assert.equal(String((await response.bytes()).length), length);
      assert.equal(headers.get("cache-control"), caching);
      assert.match(headers.get("x-request-id") ?? "", /^req_/);
      assert.equal(headers.get("connection"), "keep-alive");
    }
    // Load balancers ask every second.
    if (path === "/healthz") assert.deepEqual(edge.log.lines, []);
  }
  const refused = await edge.ask("/openapi.json", { method: "POST" });
  assert.equal(refused.status, 405, await refused.text());
  assert.equal(refused.headers.get("allow"), "GET, HEAD, OPTIONS");
  edge.drain.hasBegun = true;
  const response = await edge.ask("/health");
  assert.equal(await response.text(), "ok\n");
  assert.equal(response.headers.get("connection"), "close");
});

Deno.test("a key is shown the models that it may use, and no others", async () => {
  const rows: { models: string[]; listed: string[]; status: number }[] = [
    { models: [], listed: [...CATALOG.keys()], status: 200 },
    { models: [DEFAULT_MODEL_ID], listed: [DEFAULT_MODEL_ID], status: 200 },
    { models: ["another-model"], listed: [], status: 404 },
  ];
  for (const { models, listed, status } of rows) {
    await using edge = await start({ models });
    const { data } = await (await get(edge, "models")).json();
    assert.deepEqual(data.map(({ id }: { id: string }) => id), listed);
    const response = await get(edge, `models/${DEFAULT_MODEL_ID}`);
    assert.equal(response.status, status);
    await response.body?.cancel();
    const { error } = await (await get(edge, "models/two%0Alines")).json();
    assert.equal(error.code, "model_not_found");
  }
});

Deno.test("the admission hears the address that a trusted proxy wrote, and no other", async () => {
  const addresses: (string | undefined)[] = [];
  await using edge = await start({
    modelsOf: ({ clientAddress }) => {
      addresses.push(clientAddress);
      return Promise.resolve([]);
    },
    admit: ({ clientAddress }) => {
      addresses.push(clientAddress);
      return Promise.resolve(leaseOf(PRINCIPAL));
    },
  });
  for (const response of [await get(edge, "models"), await chat(edge)]) {
    await response.body?.cancel();
  }
  const spoofed = { "x-forwarded-for": "198.51.100.1, 203.0.113.9" };
  const more = await callApi(`${edge.origin}/v1/models`, KEY, {
    headers: spoofed,
  });
  await more.body?.cancel();
  assert.deepEqual([...new Set(addresses)], ["203.0.113.9"]);
});

Deno.test("a request whose client leaves before its answer is counted as 499", async () => {
  const client = new AbortController();
  await using edge = await start({
    start(_job, sink, onEnded) {
      client.abort();
      const cancel = () => {
        sink.onAbandoned();
        onEnded(new RunOutcome());
      };
      return { delivered: () => {}, cancel };
    },
  });
  const { signal } = client;
  await assert.rejects(postChat(`${edge.origin}/v1`, KEY, { signal }));
  const counted = 'gateway_requests_total{route="chat",status="499"} 1';
  await until(() => edge.registry.text().includes(counted));
});

Deno.test("a line about a request says who sent it and from where; only lines about failures are certain", async () => {
  const who = { ...PRINCIPAL, clientAddress: "203.0.113.9" };
  const nobody = { keyId: undefined, ownerId: undefined, clientAddress: HOST };
  const rows: {
    ask: (edge: TestEdge) => Promise<Response>;
    event: string;
    fields: object;
  }[] = [
    { ask: chat, event: "chat", fields: who },
    { ask: (edge) => get(edge, "models"), event: "request", fields: who },
    {
      ask: (edge) => chat(edge, { model: "none" }),
      event: "request",
      fields: { ...who, errorCode: "model_not_found" },
    },
    {
      ask: (edge) => edge.ask("/"),
      event: "request",
      fields: { ...nobody, errorCode: "not_found" },
    },
  ];
  for (const { ask, event, fields } of rows) {
    for (const isSampled of [true, false]) {
      await using edge = await start({ isSampled });
      const response = await ask(edge);
      await response.body?.cancel();
      const isExpected = isSampled || !response.ok;
      assert.equal(edge.log.lines.length, Number(isExpected), event);
      if (!isExpected) continue;
      assert.partialDeepStrictEqual(edge.log.find(event), fields);
    }
  }
});
