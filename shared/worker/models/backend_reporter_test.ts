/** When a worker reports on its backends, and what. */
import assert from "node:assert/strict";
import { BACKEND_LIMITS } from "../../backends/limits.ts";
import { decodeReport } from "../../backends/report.ts";
import { Overrides } from "../../backends/overrides.ts";
import { BackendTable } from "../../backends/statistics.ts";
import { parseCatalog } from "../../models/catalog.ts";
import { UpstreamError } from "../../upstream/http/errors.ts";
import { BackendPool, type PoolBackend } from "../../upstream/pool.ts";
import { BackendReporter, countAttempt } from "./backend_reporter.ts";
import { ModelPools } from "./model_pools.ts";

const TICK_MS = 50;
const ID = "0".repeat(32);

/** Two models on the servers a and b. */
const CATALOG = parseCatalog({
  models: ["m1", "m2"].map((id) => ({
    id,
    backends: ["a", "b"].map((name, preference) => ({
      type: "openai",
      name,
      base_url: `http://${name}/v1`,
      model: id,
      preference,
      weight: 3,
    })),
  })),
});

/** A worker, and what it has told. */
function rig() {
  let nowMs = 100_000;
  const now = () => nowMs;
  const statistics = new BackendTable(now);
  const overrides = new Overrides();
  const messages: Uint8Array[] = [];
  const pools = new ModelPools<PoolBackend>({
    open: (id, backends) =>
      new BackendPool({
        backends: backends.map((config) => ({ config, close() {} })),
        now,
        random: () => 0,
        sleep: () => Promise.resolve(),
        overrideOf: (backend) => overrides.forBackend(id, backend),
        onStart: (backend) => statistics.begin(id, backend),
        onAttempt: (report) => countAttempt(statistics, id, report),
        onOddity() {},
      }),
    identify: ({ name }) => name,
    now: () => 0,
  });
  pools.follow(CATALOG.values());
  const reporter = new BackendReporter({
    overrides,
    family: "chat",
    pools,
    statistics,
    now,
    publish: (message) => messages.push(message),
  });
  return {
    overrides,
    reporter,
    messages,
    wait(ms: number) {
      for (const endMs = nowMs + ms; nowMs < endMs;) {
        nowMs += TICK_MS;
        reporter.tick();
      }
    },
    /** Runs a request; the server that is asked does this. */
    run: (act: () => void) =>
      pools.get("m1")?.run(
        { requestId: ID, signal: new AbortController().signal },
        (_backend, progress) => {
          nowMs += 100;
          progress.onBegun();
          progress.usage = {
            prompt_tokens: 1,
            completion_tokens: 11,
            total_tokens: 12,
          };
          nowMs += 100;
          act();
          return Promise.resolve();
        },
      ),
    rows: () => decodeReport(messages.at(-1) ?? new Uint8Array(0))?.rows ?? [],
  };
}

Deno.test("a worker tells every backend at its first tick, used or not", () => {
  const { reporter, rows, messages } = rig();
  reporter.tick();
  assert.equal(messages.length, 1);
  assert.deepEqual(
    rows().map(({ model, backend, weight, state }) =>
      `${model} ${backend} ${weight} ${state}`
    ),
    [
      "m1 a 3 closed",
      "m1 b 3 closed",
      "m2 a 3 closed",
      "m2 b 3 closed",
    ],
  );
});

Deno.test("a worker to which nothing happens repeats itself every five seconds", () => {
  const { wait, messages } = rig();
  wait(10 * BACKEND_LIMITS.repeatMs);
  assert.ok(
    messages.length >= 10 && messages.length <= 11,
    `${messages.length}`,
  );
});

Deno.test("figures are told two seconds later, with the fault in the server's words", async () => {
  const { wait, messages, run, rows, reporter } = rig();
  reporter.tick();
  let calls = 0;
  await run(() => {
    calls += 1;
    if (calls > 1) return;
    throw new UpstreamError("server_error", {
      message: "Out of\nmemory\u202e, key sk-abcdefghijkl",
    });
  });
  wait(BACKEND_LIMITS.tellMs + BACKEND_LIMITS.lookMs);
  assert.equal(messages.length, 2);
  const [a, b] = rows();
  assert.equal(a?.requests, 1);
  assert.equal(a?.failures, 1);
  assert.equal(a?.error?.text, "Out of memory, key sk-[redacted]");
  assert.equal(b?.requests, 1);
  assert.equal(b?.failures, 0);
  assert.equal(b?.firstTokens.length, 1);
  assert.equal(b?.rates.length, 1);
});

Deno.test("a breaker that opens is told at the next look, and also that it has closed", async () => {
  const { wait, run, rows, messages, reporter } = rig();
  reporter.tick();
  for (let n = 0; n < 5; n++) {
    await run(() => {
      throw new UpstreamError("server_error");
    })?.catch(() => {});
  }
  const before = messages.length;
  wait(BACKEND_LIMITS.lookMs);
  assert.equal(messages.length, before + 1);
  const [a] = rows();
  assert.equal(a?.state, "open");
  assert.ok((a?.openMs ?? 0) > 0);
  wait(2_000);
  assert.equal(rows()[0]?.state, "half-open");
  await run(() => {});
  wait(BACKEND_LIMITS.lookMs);
  assert.equal(rows()[0]?.state, "closed");
});

Deno.test("whoever wants to know is told at the next tick", () => {
  const { reporter, messages, wait } = rig();
  reporter.tick();
  reporter.want();
  wait(TICK_MS);
  assert.equal(messages.length, 2);
});

Deno.test("a client that leaves, and one whose request is refused, are no failures of the server", () => {
  const statistics = new BackendTable(() => 0);
  for (const outcome of ["aborted", "request", "internal"] as const) {
    statistics.begin("m", "a");
    countAttempt(statistics, "m", {
      requestId: ID,
      backend: "a",
      outcome,
      durationMs: 5,
      error: new Error("left"),
    });
  }
  const figures = statistics.get("m", "a");
  assert.equal(figures?.hour()?.requests, 3);
  assert.equal(figures?.hour()?.failures, 0);
  assert.equal(figures?.error, null);
});

Deno.test("a server that is drained, or has another weight, is told at the next look, used or not", () => {
  const { reporter, overrides, rows, wait } = rig();
  reporter.tick();
  overrides.take([
    { what: "drain", model: "m1", backend: "a" },
    { what: "weight", model: "m2", backend: "b", weight: 7 },
  ]);
  wait(BACKEND_LIMITS.lookMs);
  assert.deepEqual(
    rows().map(({ isDrained = false, weight }) => `${isDrained} ${weight}`),
    ["true 3", "false 3", "false 3", "false 7"],
  );
});
