// Promise: under random leaving clients, killed workers and restarts of the bus every
// request ends in exactly one way, with a beginning of its own answer, is settled once,
// and leaves nothing behind.
import assert from "node:assert/strict";
import { ask, type ChatOutcome } from "../support/chat_outcome.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { seededRandom } from "../support/seeded_random.ts";
import { answerOf, tokenBackend } from "../support/scripted_model_server.ts";
import { sleep, until, waitFor } from "../support/wait_for.ts";

const SEED = 1;
const REQUESTS = 300;
/** Between two requests, on average. */
const PAUSE_MS = 11;
const LEAVES_SHARE = 0.25;
/** Requests that travel in pieces. */
const LARGE_SHARE = 0.05;
const LARGE_CHARS = 800_000;
/** Nothing that is not cut short takes longer, whatever fails meanwhile. */
const ENDS_WITHIN_MS = 20_000;
/** How a request may end that meets a fault. */
const ERRORS: ReadonlySet<string | null> = new Set([
  "worker_lost",
  "overloaded",
  "no_worker",
  "bus_unavailable",
]);

/** What happens meanwhile, in this order, some tenths of a second apart. */
const FAULTS = ["kill", "bus", "cut", "pause", "kill", "cut", "bus", "kill"];

Deno.test("300 requests among faults end each in one way and leave nothing behind", async () => {
  const random = seededRandom(SEED);
  await using gateway = await startGateway("open");
  const { nats, edge: edgeA } = gateway;
  const edges = [edgeA, await gateway.addEdge()];
  const start = async () => {
    const backend = tokenBackend({ tokenMs: 4 });
    const proxy = gateway.addProxy();
    const worker = await gateway.addWorker(backend, {
      servers: [proxy.server],
      slots: 40,
    });
    return { proxy, worker, backend };
  };
  const living = [await start(), await start(), await start()];

  const chars = () => random() < LARGE_SHARE ? LARGE_CHARS : 10;
  const outcomes = new Map<number, ChatOutcome>();
  const left = new Set<number>();
  const request = async (number: number) => {
    const client = new AbortController();
    const answer = ask(edges[number % 2] ?? edgeA, {
      seed: number,
      max_tokens: 1 + Math.floor(random() * 120),
      stream: random() < 0.6,
      messages: [{ role: "user", content: "x".repeat(chars()) }],
    }, { signal: client.signal });
    if (random() < LEAVES_SHARE) {
      await sleep(random() * 200);
      client.abort();
      left.add(number);
    }
    outcomes.set(number, await answer);
  };
  const requests: Promise<void>[] = [];
  const faults = async () => {
    for (const fault of FAULTS) {
      await sleep(150 + random() * 300);
      if (fault === "bus") await nats.restart();
      else if (fault === "cut") living[0]?.proxy.cut();
      else if (fault === "pause") {
        await nats.freeze();
        await sleep(300);
        nats.thaw();
      } else {
        await living.shift()?.worker.kill();
        living.push(await start());
      }
    }
  };
  const failing = faults();
  for (let number = 0; number < REQUESTS; number += 1) {
    requests.push(request(number));
    await sleep(random() * 2 * PAUSE_MS);
  }
  await failing;
  await waitFor(() => outcomes.size === REQUESTS, {
    what: () => `${REQUESTS - outcomes.size} requests, seed ${SEED}`,
    timeoutMs: ENDS_WITHIN_MS,
  });
  await Promise.all(requests);

  let complete = 0;
  for (const [number, outcome] of outcomes) {
    const what = `request ${number}: ${JSON.stringify(outcome)}`;
    assert.ok(answerOf(number, 121).startsWith(outcome.content), what);
    if (outcome.kind === "complete") {
      complete += 1;
      assert.equal(outcome.status, 200, what);
    } else if (outcome.kind === "broken") {
      assert.ok(left.has(number), `${what}: cut without a word`);
    } else assert.ok(ERRORS.has(outcome.errorCode), what);
  }
  assert.ok(complete > REQUESTS / 2, `only ${complete} are complete`);

  await gateway.idle();
  for (const { backend } of living) {
    await until(() => backend.running === 0);
  }
  for (const { dispatcher, admitted } of edges) {
    await waitFor(() => {
      const { workers, used } = dispatcher.workers.totals();
      return workers === living.length && used === 0;
    }, {
      what: () =>
        `an idle table: ${JSON.stringify(dispatcher.workers.totals())}`,
    });
    assert.ok(dispatcher.bus.receiversWaiting <= living.length, "outboxes");
    for (const { request, settlements } of admitted) {
      const seed = "seed" in request ? Number(request.seed) : -1;
      const outcome = outcomes.get(seed);
      const what = JSON.stringify({ request, outcome, settlements });
      assert.equal(settlements.length, 1, what);
      if (outcome?.kind !== "complete") continue;
      assert.equal(settlements[0]?.kind, "complete", what);
      const tokens = outcome.content.split(" ").length - 1;
      assert.equal(settlements[0]?.usage?.completion_tokens, tokens, what);
    }
  }
});
