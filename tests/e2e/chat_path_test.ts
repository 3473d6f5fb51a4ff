// Promise: requests and answers of any size pass, and nobody waits without need.
import assert from "node:assert/strict";
import { ask, endsAs } from "../support/chat_outcome.ts";
import { startMiniCluster } from "../support/mini_cluster.ts";
import { scriptedModelServer, text } from "../support/scripted_model_server.ts";

/** An answer that waits for nothing and nobody. */
const AT_ONCE_MS = 10;

const ANSWERS: [name: string, chunks: string[]][] = [
  ["many megabytes", Array(5_000).fill("0123456789abcdef".repeat(64))],
  ["one chunk larger than a bus message", ["é".repeat(300_000)]],
];

for (const [name, chunks] of ANSWERS) {
  Deno.test(`an answer of ${name} arrives whole`, async () => {
    await using cluster = await startMiniCluster();
    await cluster.addWorker(scriptedModelServer((call) => {
      for (const chunk of chunks) call.say(text(chunk));
      call.end();
    }));
    for (const stream of [true, false]) {
      const { kind, content } = await ask(cluster.edge, { stream });
      assert.equal(kind, "complete");
      assert.ok(content === chunks.join(""), `${content.length} characters`);
    }
  });
}

Deno.test("a request of almost 20 MiB passes over a default nats-server", async () => {
  await using cluster = await startMiniCluster();
  const content = "0123456789abcdef".repeat(20 * 1024 * 64 - 64);
  await cluster.addWorker(scriptedModelServer((call) => {
    call.say(text(String(call.request.messages[0]?.content === content)));
    call.end();
  }));
  const messages = [{ role: "user", content }];
  await endsAs(ask(cluster.edge, { messages }), {
    kind: "complete",
    content: "true",
  });
});

Deno.test("without any worker the answer is 503 at once", async () => {
  await using cluster = await startMiniCluster();
  await ask(cluster.edge, {}); // Warm.
  const tookMs: number[] = [];
  for (let number = 0; number < 20; number += 1) {
    const startedAtMs = performance.now();
    const outcome = await ask(cluster.edge, {});
    tookMs.push(performance.now() - startedAtMs);
    assert.partialDeepStrictEqual(outcome, {
      status: 503,
      errorCode: "overloaded",
      retryAfter: "1",
    });
  }
  // The quickest of them: others may have waited for the machine, not for us.
  assert.ok(Math.min(...tookMs) < AT_ONCE_MS, `took ${tookMs} ms`);
});
