// Promise: requests and answers of any size pass, and nobody waits without need.
import assert from "node:assert/strict";
import { ask } from "../support/chat_outcome.ts";
import { startMiniCluster } from "../support/mini_cluster.ts";
import { scriptedModelServer } from "../support/scripted_model_server.ts";

/** An answer that waits for nothing and nobody. */
const AT_ONCE_MS = 10;
const SIXTEEN = "0123456789abcdef";

Deno.test("a request of almost 20 MiB, and an answer of many megabytes with a chunk larger than a bus message, arrive whole over a default nats-server", async () => {
  await using cluster = await startMiniCluster();
  const content = SIXTEEN.repeat(20 * 1024 * 64 - 64);
  const chunks = [
    ...Array(5_000).fill(SIXTEEN.repeat(64)),
    "é".repeat(300_000),
  ];
  await cluster.addWorker(scriptedModelServer((call) => {
    call.say(String(call.request.messages[0]?.content === content));
    for (const chunk of chunks) call.say(chunk);
    call.end();
  }));
  const messages = [{ role: "user", content }];
  for (const stream of [true, false]) {
    const outcome = await ask(cluster.edge, { stream, messages });
    assert.equal(outcome.kind, "complete");
    const { length } = outcome.content;
    assert.ok(
      outcome.content === `true${chunks.join("")}`,
      `${length} characters`,
    );
  }
});

Deno.test("without any worker the answer is 503 at once", async () => {
  await using cluster = await startMiniCluster();
  await ask(cluster.edge, {}); // Warm.
  const tookMs: number[] = [];
  for (let number = 0; number < 20; number += 1) {
    const startedAtMs = performance.now();
    const { status, errorCode, retryAfter } = await ask(cluster.edge, {});
    tookMs.push(performance.now() - startedAtMs);
    assert.deepEqual([status, errorCode, retryAfter], [503, "overloaded", "1"]);
  }
  // The quickest of them: others may have waited for the machine, not for us.
  assert.ok(Math.min(...tookMs) < AT_ONCE_MS, `took ${tookMs} ms`);
});
