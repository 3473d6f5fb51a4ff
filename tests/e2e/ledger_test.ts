/**
 * Guarantee: what is settled equals what the backend made. Exactly for answers
 * that ended, well or not; within one chunk for those that were cut.
 */
import assert from "node:assert/strict";
import { ask, type ChatOutcome } from "../support/chat_outcome.ts";
import { startMiniEdge, startMiniWorker } from "../support/mini_cluster.ts";
import { startNatsServer } from "../support/nats_server.ts";
import { seededRandom } from "../support/seeded_random.ts";
import { answerOf, tokenBackend } from "../support/scripted_backend.ts";
import { sleep, waitFor } from "../support/wait_for.ts";

const REQUESTS = 240;

/** What becomes of a request, by its number. */
const FATES = [
  "completes",
  "completes",
  "fails",
  "leaves early",
  "leaves",
] as const;

Deno.test("hundreds of mixed requests are settled with what the backend made", async () => {
  const random = seededRandom(7);
  await using nats = await startNatsServer();
  const servers = [nats.server];
  await using edge = await startMiniEdge({ servers });
  const fateOf = (seed: number) => FATES[seed % FATES.length];
  const backend = tokenBackend({
    tokenMs: 2,
    failsAt: (seed) => fateOf(seed) === "fails" ? seed % 30 : null,
  });
  await using first = await startMiniWorker({ servers, backend });
  await using second = await startMiniWorker({ servers, backend });
  const outcomes = new Map<number, ChatOutcome>();
  const request = async (seed: number) => {
    const client = new AbortController();
    const fate = fateOf(seed);
    const answer = ask(
      edge,
      { seed, max_tokens: 31 + seed % 60, stream: seed % 3 !== 0 },
      { signal: client.signal },
    );
    if (fate === "leaves early") client.abort();
    if (fate === "leaves") {
      await sleep(random() * 150);
      client.abort();
    }
    outcomes.set(seed, await answer);
  };
  const requests: Promise<void>[] = [];
  for (let seed = 0; seed < REQUESTS; seed += 1) {
    requests.push(request(seed));
    if (seed % 40 === 39) await Promise.all(requests);
  }
  await Promise.all(requests);
  await waitFor(() => edge.dispatcher.running === 0, { what: "all runs" });

  let cut = 0;
  for (const { request, settlements } of edge.admitted) {
    const seed = request.seed ?? -1;
    const outcome = outcomes.get(seed);
    const what = `request ${seed}: ${JSON.stringify({ outcome, settlements })}`;
    assert.equal(settlements.length, 1, what);
    const [settled] = settlements;
    assert.ok(settled !== undefined && outcome !== undefined, what);
    const produced = backend.produced.get(seed) ?? 0;
    const lacking = produced - settled.completionTokens;
    assert.ok(
      answerOf(seed, produced).startsWith(outcome.content),
      `${what}: not what the backend said`,
    );
    if (settled.kind === "cancelled") {
      cut += 1;
      assert.ok(lacking === 0 || lacking === 1, `${what}: lacks ${lacking}`);
      assert.ok(settled.hasRun || !backend.produced.has(seed), what);
      continue;
    }
    assert.equal(lacking, 0, what);
    if (outcome.kind === "complete") {
      assert.equal(settled.kind, "complete", what);
      assert.equal(settled.usage?.completion_tokens, produced, what);
      assert.equal(outcome.content, answerOf(seed, produced), what);
    } else {
      assert.equal(settled.kind, "failed", what);
      assert.equal(outcome.errorCode, "upstream_error", what);
    }
  }
  assert.ok(cut > REQUESTS / 10, `only ${cut} were cut`);
  for (const [seed, { kind }] of outcomes) {
    if (fateOf(seed) === "completes") assert.equal(kind, "complete");
    if (fateOf(seed) === "fails") assert.match(kind, /^(http|sse)_error$/);
  }
  await waitFor(() => backend.running === 0, { what: "all backend calls" });
  assert.equal(first.worker.inFlight + second.worker.inFlight, 0);
});
