// Promise: a client with one slot may send its next request as soon as it has
// the end of the last answer, to any edge, and is never refused because of that.
import assert from "node:assert/strict";
import type { KeyOptions } from "../support/admission_fixture.ts";
import { startGatedCluster } from "../support/gated_cluster.ts";
import { hello } from "../support/scripted_model_server.ts";
import { startStopwatch } from "../support/wait_for.ts";

const REQUESTS = 100;
const FAILURES = 40;
/** How much later than the second edge the first one reaches Redis: its settlement would lose the race. */
const BEHIND_MS = 5;
const SLOW_REDIS_MS = 100;
/** For how long a request waits for its slot, see `admission.ts`. */
const SLOT_WAIT_MS = 100;

const LIMITS = { concurrency: 1 };
const CASES: [name: string, options: KeyOptions, requests: number][] = [
  ["of the key", { limits: LIMITS }, REQUESTS],
  ["of the owner", { ownerLimits: LIMITS }, REQUESTS],
  ["after failures", { limits: LIMITS }, FAILURES],
];

for (const [name, options, requests] of CASES) {
  Deno.test(`one slot ${name}: ${requests} requests in a row over two edges, none is refused`, async () => {
    const fails = requests === FAILURES;
    await using cluster = await startGatedCluster({
      edges: 2,
      onCall: (call) => fails ? call.fail() : hello(call),
    });
    const key = await cluster.addKey(options);
    cluster.edge.proxy.set({ delayMs: BEHIND_MS });
    let waited = 0;
    for (let number = 0; number < requests; number += 1) {
      const stream = number % 4 < 2;
      using watch = startStopwatch();
      const ask = { edge: number % 2, body: { stream } };
      const response = await cluster.ask(key, ask);
      const answer = await response.text();
      assert.equal(response.status, fails ? 502 : 200, answer);
      const isDone = answer.endsWith("data: [DONE]\n\n");
      assert.equal(isDone, stream && !fails);
      if (watch.ms >= SLOT_WAIT_MS) waited += 1;
    }
    assert.ok(waited < requests / 2, `${waited} waited as long as any may`);
  });
}

Deno.test("no answer waits for a slow Redis, with or without a limit", async () => {
  await using cluster = await startGatedCluster({
    onCall(call) {
      // The admission is over: from here on Redis is slow.
      cluster.proxy.set({ delayMs: SLOW_REDIS_MS });
      hello(call);
    },
  });
  const limited = await cluster.addKey({ limits: { concurrency: 1 } });
  const free = await cluster.addKey();
  const tookMs = async (key: typeof free) => {
    cluster.proxy.set({});
    await cluster.settled(key);
    using watch = startStopwatch();
    const response = await cluster.ask(key);
    assert.equal(response.status, 200);
    await response.text();
    return watch.ms;
  };
  await tookMs(free);
  const [freeMs, limitedMs] = [await tookMs(free), await tookMs(limited)];
  assert.ok(freeMs < SLOW_REDIS_MS, `without a limit ${freeMs} ms`);
  assert.ok(limitedMs < SLOW_REDIS_MS, `with a limit ${limitedMs} ms`);
});
