// Promise: a probe goes the way of a request: through the client, the keys and the
// limits of the server, with the smallest request of the model's kind.
import assert from "node:assert/strict";
import {
  startScriptedServer,
  type WholeRequest,
} from "../../../tests/support/model_servers/scripted_server.ts";
import { jsonResponse } from "../../../tests/support/model_servers/model_answers.ts";
import { createRecordingLog } from "../../../tests/support/recording_log.ts";
import { until } from "../../../tests/support/wait_for.ts";
import { parseCatalog } from "../../models/catalog.ts";
import { MODEL_KINDS, type ModelKind } from "../../models/kinds.ts";
import { monotonicNow } from "../../process/clock.ts";
import { UseTable } from "../../server_limits/use_table.ts";
import { ModelServer } from "../../upstream/model_server.ts";
import { BackendPool } from "../../upstream/pool.ts";
import { Keyrings } from "../server_limits/keyrings.ts";
import { createProber } from "./probing.ts";

/** A worker's pool with one probed server, which has a key and may have a limit. */
function probing(
  { baseUrl, kind = "chat", concurrency, probe = { every_seconds: 5 } }: {
    baseUrl: string;
    probe?: { every_seconds: number; timeout_seconds?: number };
    kind?: ModelKind;
    concurrency?: number;
  },
) {
  const backend = {
    type: "openai",
    name: "gpu",
    base_url: baseUrl,
    model: "theirs",
    api_key_env: "KEY",
    probe,
    ...concurrency !== undefined && { concurrency },
  };
  const models = [{ id: "m", kind, backends: [backend] }];
  const catalog = parseCatalog({ models });
  const { backends } = catalog.get("m") ?? assert.fail("no model");
  const table = new UseTable(monotonicNow);
  const keyrings = new Keyrings({ table, random: () => 0, onEvent() {} });
  const attempts: string[] = [];
  const outcomes: string[] = [];
  const pool = new BackendPool<ModelServer>({
    ...keyrings.open("m", backends, {
      keys: new Map([["KEY", "secret-of-the-server"]]),
      create: (config, credential) =>
        new ModelServer({
          config,
          publicModel: "m",
          now: monotonicNow,
          ...credential,
        }),
    }),
    now: monotonicNow,
    random: () => 0,
    sleep: () => Promise.resolve(),
    onStart: () => assert.fail("a probe is no request"),
    onAttempt: ({ outcome, isProbe }) => attempts.push(`${outcome} ${isProbe}`),
    onOddity() {},
  });
  const log = createRecordingLog();
  const prober = createProber({
    pools: {
      get: () => pool,
      models: () => [{ id: "m", backends, pool }],
    },
    catalog,
    proofs: table.proofs,
    now: monotonicNow,
    // The first probe is due at once.
    random: () => 1,
    metrics: { probed: (_model, _backend, outcome) => outcomes.push(outcome) },
    log,
  });
  return { prober, pool, outcomes, attempts, log, table };
}

/** What a probe of each kind asks for. */
const PATHS: Readonly<Record<ModelKind, string>> = {
  chat: "POST /v1/chat/completions",
  embedding: "POST /v1/embeddings",
  rerank: "POST /v1/rerank",
  image: "GET /v1/models",
  speech: "GET /v1/models",
  transcription: "GET /v1/models",
  video: "GET /v1/models",
};

for (const kind of MODEL_KINDS) {
  Deno.test(`the probe of a server of a model for ${kind} is the smallest request`, async () => {
    const seen: WholeRequest[] = [];
    await using server = startScriptedServer({
      reply(request) {
        seen.push(request);
        return jsonResponse({});
      },
    });
    const { prober, outcomes, attempts, pool } = probing({
      baseUrl: server.baseUrl,
      kind,
    });
    prober.tick();
    await until(() => outcomes.length === 1);
    assert.deepEqual(outcomes, ["success"]);
    assert.deepEqual(attempts, ["success true"]);
    const [{ method, path, headers, body } = assert.fail("none")] = seen;
    assert.equal(`${method} ${path}`, PATHS[kind]);
    assert.equal(headers.get("authorization"), "Bearer secret-of-the-server");
    if (kind === "chat") assert.equal(JSON.parse(body).max_tokens, 1);
    pool.close();
  });
}

Deno.test("a probe that fails says so once, without the key, and opens the breaker", async () => {
  await using server = startScriptedServer({
    reply: () =>
      jsonResponse({ error: { message: "CUDA is gone" } }, { status: 500 }),
  });
  const { prober, outcomes, pool, log } = probing({ baseUrl: server.baseUrl });
  prober.tick();
  await until(() => outcomes.length === 1);
  assert.deepEqual(outcomes, ["failure"]);
  assert.equal(pool.breakerStates().get("gpu"), "open");
  const [line] = log.lines.filter(({ event }) => event === "probe_failed");
  assert.match(JSON.stringify(line), /status 500/);
  assert.doesNotMatch(JSON.stringify(log.lines), /secret-of-the-server/);
  pool.close();
});

Deno.test("a probe that a server does not answer in time has failed", async () => {
  const { promise: never, resolve } = Promise.withResolvers<void>();
  await using server = startScriptedServer({
    async *reply() {
      yield { until: never };
      yield* jsonResponse({});
    },
  });
  const { prober, outcomes, pool } = probing({
    baseUrl: server.baseUrl,
    probe: { every_seconds: 5, timeout_seconds: 1 },
  });
  prober.tick();
  // The first token of a request may take 300 s.
  await until(() => outcomes.length === 1);
  assert.deepEqual(outcomes, ["failure"]);
  assert.equal(pool.breakerStates().get("gpu"), "open");
  resolve();
  pool.close();
});

Deno.test("a probe takes a place of the server's limit, and is not sent without one", async () => {
  const { promise: held, resolve } = Promise.withResolvers<void>();
  let requests = 0;
  await using server = startScriptedServer({
    async *reply() {
      requests += 1;
      yield { until: held };
      yield* jsonResponse({});
    },
  });
  const { prober, outcomes, pool } = probing({
    baseUrl: server.baseUrl,
    concurrency: 1,
  });
  prober.tick();
  await until(() => requests === 1);
  assert.ok(pool.saturatedMs > 0, "it counts");
  const { signal } = new AbortController();
  const isSent = await pool.probe(
    "gpu",
    { requestId: "r", signal },
    () => assert.fail("there is no place"),
  );
  assert.equal(isSent, false);
  resolve();
  await until(() => outcomes.length === 1);
  assert.equal(pool.saturatedMs, 0);
  pool.close();
});
