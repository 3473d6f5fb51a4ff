/**
 * Guarantee: several edges and workers are one service. Every answer is complete
 * and belongs to its request, and a worker that is replaced under load causes no
 * failure. `faults_process_timed_test.ts` kills one.
 */
import assert from "node:assert/strict";
import { type Cluster, isReplaced, startCluster } from "../support/cluster.ts";
import { type ChatOutcome, outcomeOf } from "../support/chat_outcome.ts";
import { askCluster } from "../support/cluster_keys.ts";
import { sleep, waitFor } from "../support/wait_for.ts";

const REQUESTS = 100;
/** Of each client between two requests, so that the load leaves room for new workers. */
const PAUSE_MS = 100;
const CLIENTS = 10;
/** A new worker takes as long as the machine does. */
const START_MS = 60_000;
/** By the others, while one worker is replaced. */
const SERVED_MIN = 30;

/** A request of a kind that depends on its number, with an answer of its own. */
function bodyOf(number: number): object {
  return {
    model: "neutral-3.7-plus",
    messages: [{ role: "user", content: `Question ${number}: tell me.` }],
    seed: number,
    max_tokens: 5 + number % 60,
    stream: number % 2 === 0,
    ...(number % 5 === 0 ? { n: 2 } : {}),
    ...(number % 7 === 0 ? { enable_thinking: true } : {}),
  };
}

/**
 * Sends request number `number`. It is sent again when Redis was too late for its
 * admission, as it is on a slow machine: no worker has seen it then.
 */
function ask(
  cluster: Cluster,
  number: number,
  edge = 0,
): Promise<ChatOutcome> {
  const { api_key: key } = cluster.state;
  return waitFor(async () => {
    const asked = askCluster(cluster, key, edge, bodyOf(number));
    const refusal = asked.then(
      (answer) => answer.status === 503 ? answer.clone().text() : "",
      () => "", // The outcome has it.
    );
    const outcome = await outcomeOf(asked);
    return !(await refusal).includes("cannot check API keys") && outcome;
  }, { what: `request ${number}`, intervalMs: PAUSE_MS });
}

/** Waits until this many workers say that they are ready. */
async function areReady(cluster: Cluster, workers: number): Promise<void> {
  await waitFor(async () => {
    const { ops_urls } = await cluster.refresh();
    const statuses = await Promise.all(
      ops_urls["chat-worker"]?.map(async (url) => {
        const response = await fetch(`${url}/readyz`).catch(() => null);
        await response?.body?.cancel();
        return response?.status; // None: it is gone, or not there yet.
      }) ?? [],
    );
    return statuses.filter((status) => status === 200).length === workers;
  }, { what: `${workers} workers`, timeoutMs: START_MS, intervalMs: 100 });
}

Deno.test("a cluster of 2 edges and 3 workers", async (t) => {
  await using cluster = await startCluster({ edges: 2, workers: 3 });

  await t.step("100 requests at once are answered as if alone", async () => {
    const alone: ChatOutcome[] = [];
    for (let number = 0; number < REQUESTS; number += 1) {
      alone.push(await ask(cluster, number));
    }
    const together = await Promise.all(
      alone.map((_, number) => ask(cluster, number, number % 2)),
    );
    for (const [number, answer] of together.entries()) {
      assert.equal(answer.kind, "complete", `request ${number}`);
      assert.deepEqual(answer, alone[number], `request ${number}`);
    }
    // Short answers may agree by chance; most must be answers to different requests.
    const different = new Set(together.map(({ content }) => content)).size;
    assert.ok(different > REQUESTS / 2, `${different} different answers`);
  });

  await t.step("every worker replaced: no failed request", async () => {
    await areReady(cluster, 3);
    let isOver = false;
    const failures: ChatOutcome[] = [];
    let served = 0;
    const load = Array.from({ length: CLIENTS }, async (_, client) => {
      for (let number = client; !isOver; number += CLIENTS) {
        const answer = await ask(cluster, number, number % 2);
        if (answer.kind === "complete") served += 1;
        else failures.push(answer);
        await sleep(PAUSE_MS);
      }
    });
    for (const old of cluster.state.pids["chat-worker"] ?? []) {
      const enough = served + SERVED_MIN;
      Deno.kill(old, "SIGTERM");
      await isReplaced(cluster, "chat-worker", old);
      await areReady(cluster, 3);
      await waitFor(() => failures.length > 0 || served >= enough, {
        what: `${SERVED_MIN} requests while a worker was replaced`,
      });
    }
    isOver = true;
    await Promise.all(load);
    assert.deepEqual(failures, []);
  });
});
