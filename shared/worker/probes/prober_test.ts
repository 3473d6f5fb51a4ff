/**
 * Promise: a server that is probed and has failed is known before a request meets it,
 * one that is well again is used again, and workers together hardly ask more than one.
 */
import assert from "node:assert/strict";
import { CircuitBreaker } from "../../backends/breaker.ts";
import { Proofs } from "../../server_limits/proofs.ts";
import {
  UpstreamError,
  type UpstreamFault,
} from "../../upstream/http/errors.ts";
import {
  noteProofs,
  type ProbedBackend,
  type ProbedPool,
  Prober,
  type ProbeResult,
} from "./prober.ts";

const EVERY_MS = 30_000;
const GPU: ProbedBackend = {
  name: "gpu",
  base_url: "http://gpu/v1",
  model: "m",
  probe: { every_seconds: EVERY_MS / 1_000 },
};

/** One server, asked by some workers, and a clock that the test moves. */
class Rig {
  nowMs = 1_000_000;
  /** How the server answers; null: as it should. */
  fault: UpstreamFault | null = null;
  /** When the server was asked. */
  readonly askedAtMs: number[] = [];
  readonly results: Pick<ProbeResult, "outcome" | "isNew">[] = [];
  readonly state = { running: 0, isDrained: false };
  /** Whether workers hear each other. */
  isTelling = true;
  /** What a probe waits for. */
  held: Promise<void> | undefined;
  backends = [GPU];
  readonly workers;
  #chance = 0;

  constructor(workers = 1) {
    this.workers = Array.from({ length: workers }, () => this.#start());
  }

  get first() {
    return this.workers[0] ?? assert.fail("no worker");
  }

  /** Lets time pass in the steps of workers. */
  async pass(ms: number): Promise<void> {
    const endMs = this.nowMs + ms;
    while (this.nowMs < endMs) {
      this.nowMs = Math.min(endMs, this.nowMs + 250);
      for (const { prober, proofs } of this.workers) {
        prober.tick();
        for (let turn = 0; turn < 4; turn += 1) await Promise.resolve();
        if (this.isTelling) this.#tell(proofs);
      }
    }
  }

  #tell(from: Proofs): void {
    for (const { proofs } of this.workers) {
      if (proofs !== from) proofs.add(from.report());
    }
  }

  #start() {
    const now = () => this.nowMs;
    const breaker = new CircuitBreaker(now);
    const proofs = new Proofs(now);
    const pool: ProbedPool = {
      states: () => [{
        name: "gpu",
        breaker: breaker.state,
        ...this.state,
      }],
      probe: async () => {
        const enteredAtMs = breaker.enter();
        if (enteredAtMs === null) return false;
        this.askedAtMs.push(this.nowMs);
        await this.held;
        const outcome = this.fault ?? "success";
        breaker.end(enteredAtMs, outcome, { isProbe: true });
        if (this.fault !== null) throw new UpstreamError(this.fault);
        return true;
      },
    };
    const prober = new Prober({
      models: () => [{ id: "m", backends: this.backends, pool }],
      poolOf: () => pool,
      proofs,
      now,
      random: () => {
        this.#chance = (this.#chance + 0.37) % 1;
        return this.#chance;
      },
      onProbe: (_model, _backend, { outcome, isNew }) =>
        this.results.push({ outcome, isNew }),
    });
    return { prober, proofs, breaker };
  }
}

Deno.test("a server is asked once in its interval, by one worker or by ten together", async () => {
  for (const workers of [1, 10]) {
    const t = new Rig(workers);
    await t.pass(20 * EVERY_MS);
    const { length } = t.askedAtMs;
    assert.ok(length >= 14 && length <= 24, `${workers}: ${length} times`);
  }
});

Deno.test("workers that do not hear each other ask all the same", async () => {
  const t = new Rig(3);
  t.isTelling = false;
  await t.pass(20 * EVERY_MS);
  assert.ok(t.askedAtMs.length >= 3 * 14, `${t.askedAtMs.length} times`);
});

Deno.test("a server that answers requests is not asked, by any worker", async () => {
  const t = new Rig(2);
  await t.pass(1_000);
  const note = noteProofs([GPU], t.first.proofs);
  t.askedAtMs.splice(0);
  for (let each = 0; each < 20; each += 1) {
    note({ backend: "gpu", outcome: "success" });
    await t.pass(EVERY_MS / 2);
  }
  assert.deepEqual(t.askedAtMs, []);
  note({ backend: "gpu", outcome: "server_error" });
  note({ backend: "other", outcome: "success" });
  await t.pass(2 * EVERY_MS);
  assert.ok(
    t.askedAtMs.length > 0,
    "a failure and another server prove nothing",
  );
});

Deno.test("a server that runs requests, or is drained, is not asked", async () => {
  for (const state of [{ running: 1 }, { isDrained: true }]) {
    const t = new Rig();
    Object.assign(t.state, state);
    await t.pass(5 * EVERY_MS);
    assert.deepEqual(t.askedAtMs, [], JSON.stringify(state));
  }
});

Deno.test("a probe that fails opens the breaker, and one that succeeds closes it when it is half-open", async () => {
  const t = new Rig();
  t.fault = "unreachable";
  await t.pass(2 * EVERY_MS);
  assert.equal(t.first.breaker.state, "open");
  const failed = t.askedAtMs.length;
  assert.ok(failed >= 4, `${failed}: again whenever it is half-open`);
  assert.deepEqual(t.first.prober.stateOf("m", "gpu")?.isFailed, true);
  assert.deepEqual([...t.first.prober.results()], [
    { model: "m", backend: "gpu", isFailed: true },
  ]);
  t.fault = null;
  await t.pass(31_000);
  assert.equal(t.first.breaker.state, "closed");
  assert.equal(t.first.prober.stateOf("m", "gpu")?.isFailed, false);
  const changes = t.results.filter(({ isNew }) => isNew);
  assert.deepEqual(changes.map(({ outcome }) => outcome), [
    "failure",
    "success",
  ]);
});

/** What a refusal says about the health of the server. */
const FAULTS: readonly {
  fault: UpstreamFault;
  outcome: ProbeResult["outcome"];
}[] = [
  { fault: "request", outcome: "success" },
  { fault: "rate_limited", outcome: "unclear" },
  { fault: "overloaded", outcome: "unclear" },
  { fault: "credentials", outcome: "failure" },
  { fault: "unknown_model", outcome: "failure" },
  { fault: "timeout", outcome: "failure" },
];

for (const { fault, outcome } of FAULTS) {
  Deno.test(`a probe that ends with ${fault} is a ${outcome}`, async () => {
    const t = new Rig();
    t.fault = fault;
    await t.pass(EVERY_MS);
    assert.equal(t.results[0]?.outcome, outcome);
    const isOpen = t.first.breaker.state !== "closed";
    assert.equal(isOpen, outcome === "failure");
  });
}

Deno.test("a server is not asked again while it has not answered, nor after the worker has stopped", async () => {
  const t = new Rig();
  const { promise, resolve } = Promise.withResolvers<void>();
  t.held = promise;
  await t.pass(5 * EVERY_MS);
  assert.equal(t.askedAtMs.length, 1);
  t.first.prober.stop();
  resolve();
  await t.pass(5 * EVERY_MS);
  assert.equal(t.askedAtMs.length, 1);
});

Deno.test("a server that is probed no more, or is gone, is forgotten", async () => {
  const t = new Rig();
  await t.pass(2 * EVERY_MS);
  assert.equal(t.first.proofs.isEmpty, false);
  t.backends = [{ ...GPU, probe: undefined }];
  await t.pass(500);
  assert.equal(t.first.prober.stateOf("m", "gpu"), undefined);
  assert.equal(t.first.proofs.isEmpty, true);
  assert.deepEqual(t.first.proofs.report(), []);
});

Deno.test("a probe of a server says nothing of another one that has its name now", async () => {
  const t = new Rig();
  t.fault = "unreachable";
  await t.pass(2 * EVERY_MS);
  assert.equal(t.first.prober.stateOf("m", "gpu")?.isFailed, true);
  t.backends = [{ ...GPU, base_url: "http://new-gpu/v1" }];
  await t.pass(250);
  assert.equal(t.first.prober.stateOf("m", "gpu"), undefined);
  assert.deepEqual([...t.first.prober.results()], []);
});
