/**
 * Guarantee: a client with one slot may send its next request as soon as it has
 * the end of the last answer, to any edge, and is never told that it still runs.
 */
import assert from "node:assert/strict";
import { ApiError } from "@gateway/shared/openai/error";
import type { KeyOptions } from "../support/admission_fixture.ts";
import { waitFor } from "../support/wait_for.ts";
import { pong, startGatedCluster } from "../support/gated_cluster.ts";

const REQUESTS = 300;
/** How much later than the second edge the first one reaches Redis: its settlement would lose the race. */
const BEHIND_MS = 5;
const SLOW_REDIS_MS = 100;
/** What an answer may wait for a slow Redis, with room for a busy machine. */
const HELD_MS_MAX = 350;

const OF_ONE_SLOT: { name: string; options: KeyOptions }[] = [
  { name: "of the key", options: { limits: { concurrency: 1 } } },
  { name: "of the owner", options: { ownerLimits: { concurrency: 1 } } },
];

for (const { name, options } of OF_ONE_SLOT) {
  Deno.test(`one slot ${name}: ${REQUESTS} requests in a row over two edges, none is refused`, async () => {
    await using cluster = await startGatedCluster({ edges: 2 });
    cluster.edges[0]?.proxy.set({ delayMs: BEHIND_MS });
    const key = await cluster.addKey(options);
    for (let number = 0; number < REQUESTS; number += 1) {
      const stream = number % 4 < 2;
      const response = await cluster.ask(key, {
        edge: number % 2,
        body: { stream },
      });
      const answer = await response.text();
      assert.equal(response.status, 200, `request ${number}: ${answer}`);
      assert.equal(answer.endsWith("data: [DONE]\n\n"), stream);
    }
  });
}

Deno.test("one slot: a request that failed may be tried again at once", async () => {
  const failure = new ApiError("upstream_error", "The model server failed.");
  await using cluster = await startGatedCluster({
    edges: 2,
    onCall: (call) => call.fail(failure),
  });
  cluster.edges[0]?.proxy.set({ delayMs: BEHIND_MS });
  const key = await cluster.addKey({ limits: { concurrency: 1 } });
  for (let number = 0; number < 60; number += 1) {
    const body = { stream: number % 4 < 2 };
    const response = await cluster.ask(key, { edge: number % 2, body });
    const answer = await response.text();
    assert.equal(response.status, 502, `request ${number}: ${answer}`);
  }
});

Deno.test("a slow Redis does not hold an answer up, and one without a limit waits for nothing", async () => {
  await using cluster = await startGatedCluster({
    onCall(call) {
      // The admission is over: from here on Redis is slow.
      cluster.proxy.set({ delayMs: SLOW_REDIS_MS });
      pong(call);
    },
  });
  const [limited, free] = [
    await cluster.addKey({ limits: { concurrency: 1 } }),
    await cluster.addKey(),
  ];
  const tookMs = async (key: typeof free) => {
    cluster.proxy.set({});
    await waitFor(
      () => cluster.edges.every(({ gate }) => gate.unsettled === 0),
      {
        what: "the last answers of the slow Redis",
      },
    );
    const startedAtMs = performance.now();
    const response = await cluster.ask(key);
    assert.equal(response.status, 200);
    await response.text();
    return performance.now() - startedAtMs;
  };
  await tookMs(free);
  const [freeMs, limitedMs] = [await tookMs(free), await tookMs(limited)];
  assert.ok(freeMs < SLOW_REDIS_MS, `without a limit ${freeMs} ms`);
  assert.ok(limitedMs < HELD_MS_MAX, `with a limit ${limitedMs} ms`);
});
