/**
 * Guarantee: a client with one slot may send its next request as soon as it has
 * the end of the last answer, to any edge, and is never told that it still runs.
 */
import assert from "node:assert/strict";
import { SLOT_HOLD_MS } from "../../services/edge-auth/chat/completions.ts";
import type { KeyOptions } from "../support/admission_fixture.ts";
import { waitFor } from "../support/wait_for.ts";
import {
  type GatedCluster,
  pong,
  startGatedCluster,
  type TestKey,
} from "../support/gated_cluster.ts";

const REQUESTS = 300;
const FAILURES = 60;
/** How much later than the second edge the first one reaches Redis: its settlement would lose the race. */
const BEHIND_MS = 5;
const SLOW_REDIS_MS = 100;
/** What an answer may wait for a slow Redis, with room for a busy machine. */
const HELD_MS_MAX = 350;

const OF_ONE_SLOT: { name: string; options: KeyOptions }[] = [
  { name: "of the key", options: { limits: { concurrency: 1 } } },
  { name: "of the owner", options: { ownerLimits: { concurrency: 1 } } },
];

/** Asks two edges in turn, each as soon as the other has answered, streamed and not. */
async function askInARow(
  cluster: GatedCluster,
  key: TestKey,
  requests: number,
  check: (status: number, answer: string, stream: boolean) => void,
): Promise<void> {
  cluster.edges[0]?.proxy.set({ delayMs: BEHIND_MS });
  let lastMs = 0;
  for (let number = 0; number < requests; number += 1) {
    // On a busy machine Redis may need longer than an answer waits for it.
    if (lastMs >= SLOT_HOLD_MS) {
      await cluster.settled(key);
    }
    const stream = number % 4 < 2;
    const startedAtMs = performance.now();
    const response = await cluster.ask(key, {
      edge: number % 2,
      body: { stream },
    });
    check(response.status, await response.text(), stream);
    lastMs = performance.now() - startedAtMs;
  }
}

for (const { name, options } of OF_ONE_SLOT) {
  Deno.test(`one slot ${name}: ${REQUESTS} requests in a row over two edges, none is refused`, async () => {
    await using cluster = await startGatedCluster({ edges: 2 });
    const key = await cluster.addKey(options);
    await askInARow(cluster, key, REQUESTS, (status, answer, stream) => {
      assert.equal(status, 200, answer);
      assert.equal(answer.endsWith("data: [DONE]\n\n"), stream);
    });
  });
}

Deno.test("one slot: a request that failed may be tried again at once", async () => {
  await using cluster = await startGatedCluster({
    edges: 2,
    onCall: (call) => call.fail(),
  });
  const key = await cluster.addKey({ limits: { concurrency: 1 } });
  await askInARow(cluster, key, FAILURES, (status, answer) => {
    assert.equal(status, 502, answer);
  });
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
      () => cluster.edges.every(({ limiter }) => limiter.unsettled === 0),
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
