import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { createClientAddress } from "@gateway/shared/process/client_address";
import { createDeadlines } from "@gateway/shared/process/deadlines";
import { randomBytes } from "@gateway/shared/process/ids";
import { mintKey } from "@gateway/shared/keys/key";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { createRecordingLog } from "../../tests/support/recording_log.ts";
import { createApp } from "./app.ts";
import { createRefusedBodies } from "./chat/refused_bodies.ts";
import type { RunOutcome } from "./dispatch/run.ts";
import { createBodyBudget } from "./http/body_budget.ts";
import type { Exchange } from "./http/server.ts";
import { createEdgeMetrics } from "./metrics.ts";
import { RunningRequests } from "./dispatch/running_requests.ts";

const OUTCOME: RunOutcome = {
  kind: "complete",
  usage: null,
  completionTokens: 0,
  isHeard: true,
  error: null,
  workerId: "w",
  offers: 1,
  dispatchMs: 1,
  firstByteMs: 2,
  durationMs: 3,
  repeats: 0,
  rejects: [],
  naks: 0,
  cancelReason: null,
};

/** An app whose parts take as long as `took` says, by a clock that only they move. */
function setup(took: { lookupMs: number; bodyMs: number }) {
  let nowMs = 0;
  const now = () => nowMs;
  const log = createRecordingLog();
  const registry = new MetricRegistry();
  const principal = { keyId: "key_a", ownerId: "own_a" };
  const deadlines = createDeadlines(now);
  const app = createApp({
    catalog: catalogFromSimulator("http://127.0.0.1:9/v1"),
    now,
    log,
    metrics: createEdgeMetrics(registry),
    deadlines,
    running: new RunningRequests(),
    bodyBytesMax: 1_000,
    streamHeadMs: 0,
    bodyBudget: createBodyBudget({ processBytesMax: 1e6, keyBytesMax: 1e6 }),
    refusedBodies: createRefusedBodies(now),
    clientAddress: createClientAddress([]),
    allowedHosts: ["api.example.org"],
    corsOrigins: [],
    keys: {
      remembered: () => undefined,
      find() {
        nowMs += took.lookupMs;
        return Promise.resolve(principal);
      },
      check: () => Promise.resolve([]),
    },
    admission: {
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
      start(_job, sink, onEnded) {
        nowMs += OUTCOME.durationMs;
        const run = { delivered: () => {}, cancel: () => {} };
        queueMicrotask(() => {
          sink.onPayload(new TextEncoder().encode("{}\n"), 1);
          sink.onEnd();
          onEnded(OUTCOME);
        });
        return run;
      },
    },
  });
  const exchange: Exchange = {
    connection: {
      address: "192.0.2.1",
      hasLeft: false,
      onLeft: () => () => {},
    },
    openBody() {
      nowMs += took.bodyMs;
      return Readable.from([Buffer.from(BODY)]);
    },
  };
  const ask = (path: string, init: RequestInit = {}) =>
    app.fetch(new Request(`http://api.example.org${path}`, init), exchange);
  return { app, ask, log, registry, exchange, deadlines };
}

const BODY = JSON.stringify({
  model: DEFAULT_MODEL_ID,
  messages: [{ role: "user", content: "ping" }],
});

Deno.test("the duration of a request begins with its arrival, before its key is looked up", async () => {
  const { ask, log, registry, deadlines } = setup({
    lookupMs: 400,
    bodyMs: 100,
  });
  const authorization = `Bearer ${mintKey(randomBytes)}`;
  const headers = { authorization, host: "api.example.org" };
  const response = await ask("/v1/chat/completions", {
    method: "POST",
    headers,
  });
  assert.equal(response.status, 200, await response.text());
  assert.equal(log.find("chat")?.durationMs, 503);
  assert.match(
    await registry.text(),
    /gateway_request_duration_seconds_sum\{route="chat"\} 0\.503/,
  );
  deadlines.close();
});

Deno.test("load balancers are told that the edge answers, without a key, under any name, and nothing else", async () => {
  const { app, exchange, log, deadlines } = setup({ lookupMs: 0, bodyMs: 0 });
  for (const path of ["/health", "/healthz"]) {
    for (const method of ["GET", "HEAD"]) {
      const request = new Request(`http://10.0.0.7${path}`, { method });
      const response = await app.fetch(request, exchange);
      assert.equal(response.status, 200);
      assert.equal(await response.text(), method === "GET" ? "ok\n" : "");
      assert.match(response.headers.get("x-request-id") ?? "", /^req_/);
    }
  }
  assert.deepEqual(log.lines, [], "they ask every second");
  deadlines.close();
});
