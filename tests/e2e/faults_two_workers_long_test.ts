/**
 * Guarantee: if there is another worker, a killed or frozen one only delays a request
 * without a byte sent, and does not call the model server for an answer that another
 * worker has already given.
 */
import assert from "node:assert/strict";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { outcomeOf } from "../support/chat_outcome.ts";
import { type Cluster, pidOf, startCluster } from "../support/cluster.ts";
import { askCluster } from "../support/cluster_keys.ts";
import {
  type FakeModelServer,
  startFakeModelServer,
} from "../support/fake_model_server.ts";
import { chatReply } from "../support/model_answers.ts";
import { sleep, waitFor } from "../support/wait_for.ts";

/** What a busy machine may add to any promise. */
const NOISE_MS = 1_500;
const REQUESTS = 20;
/** Longer than it takes to miss a worker. */
const FROZEN_MS = DISPATCH_LIMITS.workerLostMs + 500;
/** A lost worker is known in this time, and its requests are begun elsewhere. */
const REPEATED_MS = 750;

const answersHello = chatReply({ words: ["Hello"] });

function askMany(cluster: Cluster) {
  return Array.from({ length: REQUESTS }, (_, number) =>
    outcomeOf(
      askCluster(cluster, cluster.state.api_key, 0, {
        stream: number % 2 === 0,
      }),
    ));
}

async function allAreComplete(
  answers: ReturnType<typeof askMany>,
): Promise<void> {
  for (const answer of await Promise.all(answers)) {
    assert.partialDeepStrictEqual(answer, {
      kind: "complete",
      content: "Hello",
    });
  }
}

Deno.test("processes that fail while others can do their work", async (t) => {
  await using server: FakeModelServer = startFakeModelServer({
    reply: answersHello,
  });
  await using cluster = await startCluster({
    workers: 2,
    env: { UPSTREAM_BASE_URL: server.baseUrl },
  });
  const whileFrozen = async (pid: number, work: () => Promise<void>) => {
    Deno.kill(pid, "SIGSTOP");
    try {
      await work();
    } finally {
      Deno.kill(pid, "SIGCONT");
    }
  };
  await allAreComplete(askMany(cluster)); // Both workers are known, and warm.

  await t.step(
    "a worker frozen while idle is passed over, and runs no old offer when it wakes",
    async () => {
      const before = server.requests.length;
      await whileFrozen(pidOf(cluster, "chat-worker"), async () => {
        const frozenAtMs = performance.now();
        await allAreComplete(askMany(cluster));
        const tookMs = performance.now() - frozenAtMs;
        assert.ok(
          tookMs < DISPATCH_LIMITS.acceptMs + NOISE_MS,
          `took ${tookMs} ms`,
        );
        // So long that what is in its socket is old whatever clock it looks at.
        await sleep(FROZEN_MS);
      });
      await allAreComplete(askMany(cluster));
      assert.equal(server.requests.length, before + 2 * REQUESTS);
    },
  );

  await t.step(
    "a worker killed before a first token: its requests begin elsewhere, once more each",
    async () => {
      // A worker that has just woken up is not known to have room before it beats.
      await sleep(2 * DISPATCH_LIMITS.workerBeatMs);
      const before = server.requests.length;
      const proceed = Promise.withResolvers<void>();
      server.reply = async function* (request) {
        yield { until: proceed.promise };
        yield* answersHello(request);
      };
      const answers = askMany(cluster);
      await waitFor(() => server.requests.length === before + REQUESTS, {
        what: "every call",
      });
      const killedAtMs = performance.now();
      Deno.kill(pidOf(cluster, "chat-worker"), "SIGKILL");
      const first = server.requests.slice(before);
      const lost = () => first.filter(({ leftAtMs }) => leftAtMs !== null);
      const isRepeated = () =>
        server.requests.length === before + REQUESTS + lost().length;
      try {
        await waitFor(() => lost().length > 0 && isRepeated(), {
          what: () => `${lost().length} calls to be made again`,
        });
        const tookMs = performance.now() - killedAtMs;
        assert.ok(tookMs < REPEATED_MS + NOISE_MS, `took ${tookMs} ms`);
      } finally {
        proceed.resolve();
      }
      await allAreComplete(answers);
      assert.ok(isRepeated(), `${server.requests.length - before} calls`);
      server.reply = answersHello;
    },
  );

  await t.step("key-admin frozen: keys go on working", async () => {
    await whileFrozen(
      pidOf(cluster, "key-admin"),
      () => allAreComplete(askMany(cluster)),
    );
  });
});
