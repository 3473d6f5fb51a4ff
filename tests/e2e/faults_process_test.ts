/**
 * Guarantee: processes that are killed, frozen or told to stop end what they ran
 * in the promised way and time, seen from the client and from the model server.
 */
import assert from "node:assert/strict";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { outcomeOf } from "../support/chat_outcome.ts";
import { pidOf, startCluster } from "../support/cluster.ts";
import { askCluster } from "../support/cluster_keys.ts";
import { startFakeModelServer } from "../support/fake_model_server.ts";
import {
  choiceChunk,
  chunk,
  event,
  lastChunk,
  streamHead,
  usageChunk,
} from "../support/model_answers.ts";
import { sleep, waitFor } from "../support/wait_for.ts";

/** What a busy machine may add to any promise. */
const NOISE_MS = 1_500;

/** Lets the model server say the rest of its answers. */
let proceed = Promise.withResolvers<void>();

Deno.test("processes that fail", async (t) => {
  await using server = startFakeModelServer({
    reply: function* () {
      yield streamHead();
      yield chunk(event(choiceChunk({ role: "assistant", content: "one" })));
      yield { until: proceed.promise };
      yield chunk(event(choiceChunk({ content: " two" })));
      yield chunk(event(choiceChunk({}, "stop")));
      yield chunk(event(usageChunk(1, 2)));
      yield chunk(event("[DONE]"));
      yield lastChunk;
    },
  });
  await using cluster = await startCluster({
    edges: 2,
    workers: 1,
    env: { UPSTREAM_BASE_URL: server.baseUrl, DRAIN_SECONDS: "1" },
  });
  const ask = (edge: number, body: object = {}, key = cluster.state.api_key) =>
    askCluster(cluster, key, edge, body);
  /** A stream whose first token is there, and its request at the model server. */
  const begin = async (edge: number, key?: string) => {
    proceed = Promise.withResolvers();
    const number = server.requests.length + 1;
    const response = await ask(edge, { stream: true }, key);
    assert.equal(response.status, 200);
    return {
      answer: outcomeOf(Promise.resolve(response)),
      upstream: await server.request(number),
    };
  };

  await t.step("a worker frozen for a second: a pause", async () => {
    const { answer } = await begin(0);
    const worker = pidOf(cluster, "chat-worker");
    Deno.kill(worker, "SIGSTOP");
    proceed.resolve();
    await sleep(1_000);
    Deno.kill(worker, "SIGCONT");
    assert.partialDeepStrictEqual(await answer, {
      kind: "complete",
      content: "one two",
    });
  });

  await t.step(
    "a worker frozen for longer: one error, and it stops its backend when it wakes",
    async () => {
      const { answer, upstream } = await begin(0);
      const worker = pidOf(cluster, "chat-worker");
      const frozenAtMs = performance.now();
      Deno.kill(worker, "SIGSTOP");
      try {
        assert.partialDeepStrictEqual(await answer, {
          kind: "sse_error",
          errorCode: "worker_lost",
          content: "one",
        });
        const tookMs = performance.now() - frozenAtMs;
        assert.ok(
          tookMs < DISPATCH_LIMITS.workerLostMs + NOISE_MS,
          `took ${tookMs} ms`,
        );
        assert.equal(upstream.leftAtMs, null);
        assert.partialDeepStrictEqual(
          await outcomeOf(ask(0)),
          { kind: "http_error", status: 503, retryAfter: "1" },
        );
      } finally {
        Deno.kill(worker, "SIGCONT");
      }
      await waitFor(() => upstream.leftAtMs, {
        what: "the call to be stopped",
      });
      const next = await begin(0);
      proceed.resolve();
      assert.equal((await next.answer).kind, "complete");
    },
  );

  await t.step(
    "a frozen edge slows no other edge, and continues when it wakes",
    async () => {
      const { answer } = await begin(1);
      const edge = pidOf(cluster, "edge-auth", 1);
      Deno.kill(edge, "SIGSTOP");
      try {
        proceed.resolve();
        const startedAtMs = performance.now();
        for (let number = 0; number < 20; number += 1) {
          const other = await outcomeOf(ask(0, { stream: true }));
          assert.equal(other.kind, "complete");
        }
        const tookMs = performance.now() - startedAtMs;
        assert.ok(tookMs < NOISE_MS, `20 requests took ${tookMs} ms`);
      } finally {
        Deno.kill(edge, "SIGCONT");
      }
      assert.equal((await answer).kind, "complete");
    },
  );

  await t.step(
    "a stopping edge: open streams end with their own error",
    async () => {
      // A key for one request at once: free again only when that one is settled.
      const created = await cluster.keys(
        ..."create --description one --concurrency 1 --json".split(" "),
      );
      const { key } = JSON.parse(created);
      const { answer, upstream } = await begin(1, key);
      assert.equal((await outcomeOf(ask(0, {}, key))).status, 429);
      const edge = pidOf(cluster, "edge-auth", 1);
      const worker = pidOf(cluster, "chat-worker");
      // So that nobody says what the request had cost before the edge is done.
      Deno.kill(worker, "SIGSTOP");
      try {
        Deno.kill(edge, "SIGTERM");
        assert.partialDeepStrictEqual(await answer, {
          kind: "sse_error",
          errorCode: "server_shutdown",
          content: "one",
        });
        await waitFor(async () => {
          const pids = (await cluster.refresh()).pids["edge-auth"] ?? [];
          return pids.length === 2 && !pids.includes(edge);
        }, { what: "the edge to be replaced", timeoutMs: 15_000 });
      } finally {
        Deno.kill(worker, "SIGCONT");
      }
      await waitFor(() => upstream.leftAtMs, {
        what: "the call to be stopped",
      });
      const next = await begin(0, key);
      proceed.resolve();
      assert.equal((await next.answer).kind, "complete");
    },
  );

  await t.step(
    "a killed edge: its calls are stopped in four seconds",
    async () => {
      const { answer, upstream } = await begin(0);
      const killedAtMs = performance.now();
      Deno.kill(pidOf(cluster, "edge-auth", 0), "SIGKILL");
      assert.equal((await answer).kind, "broken");
      const leftAtMs = await waitFor(() => upstream.leftAtMs, {
        what: "the call to be stopped",
        timeoutMs: 10_000,
      });
      const tookMs = leftAtMs - killedAtMs;
      assert.ok(
        tookMs < DISPATCH_LIMITS.edgeLostMs + 1_000 + NOISE_MS,
        `took ${tookMs} ms`,
      );
      proceed.resolve();
    },
  );
});
