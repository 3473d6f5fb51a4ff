/** What an operator has changed of the backends of a pool. */
import assert from "node:assert/strict";
import { type Override, Overrides } from "../backends/overrides.ts";
import { seededRandom } from "../../tests/support/seeded_random.ts";
import { UpstreamError } from "./http/errors.ts";
import type { PoolContext } from "./attempt.ts";
import { BackendPool } from "./pool.ts";

function rig() {
  const overrides = new Overrides();
  const servers: string[] = [];
  const pool = new BackendPool({
    backends: ["a", "b"].map((name) => ({
      config: { name, preference: 0, weight: 1 },
      close() {},
    })),
    now: () => 0,
    random: seededRandom(1),
    sleep: () => Promise.resolve(),
    overrideOf: (backend) => overrides.forBackend("m", backend),
    onAttempt() {},
    onOddity() {},
  });
  return {
    overrides,
    servers,
    pool,
    run: (context: Partial<PoolContext> = {}) =>
      pool.run({
        requestId: "0".repeat(32),
        signal: new AbortController().signal,
        ...context,
      }, (backend) => {
        servers.push(backend.config.name);
        return Promise.resolve();
      }),
  };
}

const drain = (backend: string): Override => ({
  what: "drain",
  model: "m",
  backend,
});

Deno.test("a drained backend gets no new requests, and is taken back", async () => {
  const { overrides, servers, run, pool } = rig();
  overrides.take([drain("a")]);
  for (let n = 0; n < 20; n++) await run();
  assert.deepEqual([...new Set(servers)], ["b"]);
  assert.deepEqual(pool.states().map(({ isDrained }) => isDrained), [
    true,
    false,
  ]);
  overrides.take([]);
  for (let n = 0; n < 20; n++) await run();
  assert.deepEqual([...new Set(servers)].sort(), ["a", "b"]);
});

Deno.test("with all backends drained, a request gets 503 with a clear text", async () => {
  const { overrides, run } = rig();
  overrides.take([drain("a"), drain("b")]);
  await assert.rejects(run(), (error) => {
    assert.ok(error instanceof UpstreamError);
    assert.equal(error.code, "service_unavailable");
    assert.match(error.message, /operator.*all servers of this model/);
    return (error.retryAfterMs ?? 0) >= 1_000;
  });
});

Deno.test("a request about a job that runs on a drained backend reaches it", async () => {
  const { overrides, run, servers } = rig();
  overrides.take([drain("a"), drain("b")]);
  await run({ isOfRunningJob: true });
  assert.equal(servers.length, 1);
});

Deno.test("a weight that an operator has set counts from the next request on", async () => {
  const { overrides, servers, run } = rig();
  overrides.take([{ what: "weight", model: "m", backend: "a", weight: 99 }]);
  for (let n = 0; n < 200; n++) await run();
  assert.ok(servers.filter((name) => name === "a").length > 180);
});
