// Promise: a slot never stays with a request that is over, whichever way it ended,
// and nothing else of it stays either.
import assert from "node:assert/strict";
import v8 from "node:v8";
import vm from "node:vm";
import { limiterKey, ownerLimiterKey } from "@gateway/shared/keys/record";
import { amountOf } from "../support/amount.ts";
import {
  readState,
  usageCounted,
} from "../support/limits/admission_fixture.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LimitedGateway, TestKey } from "../support/gateway/limited.ts";
import { sleep, until } from "../support/wait_for.ts";

const CLIENTS = 50;
/** How many leave before the heap is measured, and after that. */
const FIRST = amountOf({ usual: 1_000, full: 2_000 });
const OTHERS = amountOf({ usual: 2_500, full: 8_000 });
/**
 * A MiB for code that is still being compiled, and for each request an eighth of a KiB:
 * less than any object that it could leave behind.
 */
const HEAP_GROWTH_BYTES_MAX = 1024 * 1024 + 128 * OTHERS;

/** Clients that ask, and leave before their answer ends. */
class Leavers {
  /** Called by the model server, by the seed of a request, when it is asked. */
  readonly #calls = new Map<number, () => void>();

  /** Says that the model server was asked with a seed. */
  called(seed: number): void {
    this.#calls.get(seed)?.();
  }

  /** Sends requests, whose clients leave one after the other. */
  async leaveAll(
    gateway: LimitedGateway,
    key: TestKey,
    requests: number,
  ): Promise<void> {
    await Promise.all(Array.from({ length: CLIENTS }, async (_, client) => {
      for (let count = 0; count < requests / CLIENTS; count += 1) {
        await this.#leave(gateway, key, client + count * CLIENTS);
      }
    }));
  }

  async #leave(
    gateway: LimitedGateway,
    key: TestKey,
    number: number,
  ): Promise<void> {
    const controller = new AbortController();
    const called = new Promise<void>((resolve) =>
      this.#calls.set(number, resolve)
    );
    const asking = gateway.ask(key, {
      edge: number % 2,
      body: { stream: number % 3 !== 0, seed: number },
      signal: controller.signal,
    }).then((response) => response.text());
    const outcome = asking.catch(({ name }) => name);
    // Every fourth at once, others whenever it is, and some of them not before the
    // call, unless they are refused, which fails below.
    if (number % 8 === 1) await Promise.race([called, outcome]);
    await sleep(number % 4 === 0 ? 0 : number % 23);
    controller.abort();
    assert.equal(await outcome, "AbortError");
    this.#calls.delete(number);
  }
}

/** As many requests are counted as were admitted, and as many tokens as are charged. */
async function assertCountedOnce(
  { world, edges }: LimitedGateway,
  key: TestKey,
): Promise<void> {
  const use = await usageCounted(world, key);
  const admitted = edges.reduce((sum, each) => sum + each.admissions, 0);
  assert.partialDeepStrictEqual(use, { requests: admitted, errors: 0 });
  for (const name of [limiterKey(key), ownerLimiterKey(key.ownerId)]) {
    const state = await readState(world, name);
    assert.equal(state?.dayTokens, use.promptTokens + use.completionTokens);
  }
}

/** The bytes of the heap that are in use, without what the test itself keeps. */
async function heapUsed({ backend, edges }: LimitedGateway): Promise<number> {
  assert.ok(backend.calls.length > 0, "nobody reached the backend");
  // A worker may have taken a job just when its client was given up.
  const isOver = () => backend.calls.every((call) => call.abortedAtMs !== null);
  await until(isOver, 1_000);
  backend.calls.splice(0);
  for (const { log } of edges) log.lines.splice(0);
  // So that what somebody holds can be counted.
  v8.setFlagsFromString("--expose-gc");
  vm.runInNewContext("gc")();
  return Deno.memoryUsage().heapUsed;
}

Deno.test("thousands of clients that leave at any moment leave nothing behind, and each is settled once", async () => {
  const leavers = new Leavers();
  await using gateway = await startGateway("limited", {
    edges: 2,
    onCall(call) {
      // Some answers begin, none ends.
      if (gateway.backend.calls.length % 2 === 0) call.say("begun", "going on");
      leavers.called(call.request.seed ?? -1);
    },
  });
  const wide = { concurrency: 1_000_000, tokensPerDay: 1_000_000_000 };
  const key = await gateway.addKey({ limits: wide, ownerLimits: wide });
  const heapAfter = async (requests: number) => {
    await leavers.leaveAll(gateway, key, requests);
    await gateway.settled(key, 1_000);
    for (const { limiter, dispatcher } of gateway.edges) {
      assert.equal(limiter.leases.running, 0);
      assert.equal(dispatcher.running, 0);
    }
    await assertCountedOnce(gateway, key);
    return await heapUsed(gateway);
  };
  const warmBytes = await heapAfter(FIRST);
  const bytes = await heapAfter(OTHERS) - warmBytes;
  assert.ok(bytes < HEAP_GROWTH_BYTES_MAX, `${bytes} bytes more`);
  const use = await usageCounted(gateway.world, key);
  assert.ok(use.promptTokens > 0 && use.completionTokens > 0);
  for (const { limiter } of gateway.edges) {
    assert.equal(await limiter.leases.stop(0), 0);
  }
});
