// Promise: a slot never stays with a request that is over, whichever way it ended,
// and nothing else of it stays either.
import assert from "node:assert/strict";
import v8 from "node:v8";
import vm from "node:vm";
import { limiterKey, ownerLimiterKey } from "@gateway/shared/keys/record";
import { readState, usageCounted } from "../support/admission_fixture.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { sleep, until } from "../support/wait_for.ts";

const CLIENTS = 50;
/** A quarter of a KiB each: less than any object that a request could leave behind. */
const HEAP_GROWTH_BYTES_MAX = 2 * 1024 * 1024;

Deno.test("10,000 clients that leave at any moment leave nothing behind, and each is settled once", async () => {
  /** What a client waits for, by the seed of its request. */
  const awaited = new Map<number, () => void>();
  await using gateway = await startGateway("limited", {
    edges: 2,
    onCall(call) {
      // Some answers begin, none ends.
      if (gateway.backend.calls.length % 2 === 0) call.say("begun", "going on");
      awaited.get(call.request.seed ?? -1)?.();
    },
  });
  const wide = { concurrency: 1_000_000, tokensPerDay: 1_000_000_000 };
  const key = await gateway.addKey({ limits: wide, ownerLimits: wide });
  const leave = async (number: number) => {
    const controller = new AbortController();
    const called = new Promise<void>((resolve) => awaited.set(number, resolve));
    const asking = gateway.ask(key, {
      edge: number % 2,
      body: { stream: number % 3 !== 0, seed: number },
      signal: controller.signal,
    }).then((response) => response.text());
    const outcome = asking.catch(({ name }) => name);
    // Every fourth at once, others whenever it is, and some of them not before the
    // call.
    if (number % 8 === 1) await called;
    await sleep(number % 4 === 0 ? 0 : number % 23);
    controller.abort();
    assert.equal(await outcome, "AbortError");
    awaited.delete(number);
  };
  const heapAfter = async (requests: number) => {
    await Promise.all(Array.from({ length: CLIENTS }, async (_, client) => {
      for (let count = 0; count < requests / CLIENTS; count += 1) {
        await leave(client + count * CLIENTS);
      }
    }));
    await gateway.settled(key, 1_000);
    for (const { limiter, dispatcher } of gateway.edges) {
      assert.equal(limiter.leases.running, 0);
      assert.equal(dispatcher.running, 0);
    }
    // As many requests are counted as were admitted, and as many tokens as are charged.
    const { world, edges } = gateway;
    const use = await usageCounted(world, key);
    const admitted = edges.reduce((sum, each) => sum + each.admissions, 0);
    assert.partialDeepStrictEqual(use, { requests: admitted, errors: 0 });
    for (const name of [limiterKey(key), ownerLimiterKey(key.ownerId)]) {
      const state = await readState(world, name);
      assert.equal(state?.dayTokens, use.promptTokens + use.completionTokens);
    }
    assert.ok(gateway.backend.calls.length > 0, "nobody reached the backend");
    // A worker may have taken a job just when its client was given up.
    const { calls } = gateway.backend;
    await until(() => calls.every((call) => call.abortedAtMs !== null), 1_000);
    // What the test itself keeps.
    gateway.backend.calls.splice(0);
    for (const { log } of gateway.edges) log.lines.splice(0);
    // So that what somebody holds can be counted.
    v8.setFlagsFromString("--expose-gc");
    vm.runInNewContext("gc")();
    return Deno.memoryUsage().heapUsed;
  };
  const warmBytes = await heapAfter(2_000);
  const bytes = await heapAfter(8_000) - warmBytes;
  assert.ok(bytes < HEAP_GROWTH_BYTES_MAX, `${bytes} bytes more`);
  const use = await usageCounted(gateway.world, key);
  assert.ok(use.promptTokens > 0 && use.completionTokens > 0);
  for (const { limiter } of gateway.edges) {
    assert.equal(await limiter.leases.stop(0), 0);
  }
});
