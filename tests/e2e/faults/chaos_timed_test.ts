// Promise: under random leaving clients, killed workers and restarts of the bus every
// request ends in exactly one way, with a beginning of its own answer, is settled once,
// and leaves nothing behind.
import assert from "node:assert/strict";
import { ask, type ChatOutcome } from "../../support/gateway/chat_outcome.ts";
import { startGateway } from "../../support/gateway/gateway.ts";
import type { InProcessEdge } from "../../support/gateway/in_process_edge.ts";
import type { InProcessWorker } from "../../support/gateway/in_process_worker.ts";
import type { OpenGateway } from "../../support/gateway/open.ts";
import { seededRandom } from "../../support/seeded_random.ts";
import {
  answerOf,
  type TokenBackend,
  tokenBackend,
} from "../../support/model_servers/scripted_model_server.ts";
import type { TcpProxy } from "../../support/servers/tcp_proxy.ts";
import { sleep, until, waitFor } from "../../support/wait_for.ts";

const SEED = 1;
const REQUESTS = 300;
const WORKERS = 3;
/** Between two requests, on average. */
const PAUSE_MS = 11;
/** Twice as many as run on an idle machine; a slow one gets no more at once. */
const AT_ONCE_MAX = 80;
const LEAVES_SHARE = 0.25;
/** On an idle machine most are complete; on a busy one, most meet a fault. */
const COMPLETE_MIN = 10;
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

/** A worker whose connection to the bus can be cut, and what it asks. */
interface Place {
  proxy: TcpProxy;
  worker: InProcessWorker;
  backend: TokenBackend;
}

/** A gateway of two edges and three workers that fail, by the numbers of a seed. */
class Chaos {
  /** How requests ended, by number. */
  readonly outcomes = new Map<number, ChatOutcome>();
  /** The numbers of requests whose clients left. */
  readonly left = new Set<number>();
  readonly living: Place[] = [];
  readonly #random = seededRandom(SEED);

  constructor(
    readonly gateway: OpenGateway,
    readonly edges: readonly InProcessEdge[],
  ) {}

  /** Starts a worker. */
  async start(): Promise<void> {
    const backend = tokenBackend({ tokenMs: 4 });
    const proxy = this.gateway.addProxy();
    const worker = await this.gateway.addWorker(backend, {
      servers: [proxy.server],
      slots: 40,
    });
    this.living.push({ proxy, worker, backend });
  }

  /** Sends all requests, while one thing after the other fails, and waits for them. */
  async play(): Promise<void> {
    const requests: Promise<void>[] = [];
    const failing = this.#fail();
    for (let number = 0; number < REQUESTS; number += 1) {
      await until(() => number - this.outcomes.size < AT_ONCE_MAX);
      requests.push(this.#request(number));
      await sleep(this.#random() * 2 * PAUSE_MS);
    }
    await failing;
    await waitFor(() => this.outcomes.size === REQUESTS, {
      what: () => `${REQUESTS - this.outcomes.size} requests, seed ${SEED}`,
      timeoutMs: ENDS_WITHIN_MS,
    });
    await Promise.all(requests);
  }

  async #request(number: number): Promise<void> {
    const random = this.#random;
    const client = new AbortController();
    const chars = random() < LARGE_SHARE ? LARGE_CHARS : 10;
    const edge = this.edges[number % this.edges.length] ?? assert.fail();
    const answer = ask(edge, {
      seed: number,
      max_tokens: 1 + Math.floor(random() * 120),
      stream: random() < 0.6,
      messages: [{ role: "user", content: "x".repeat(chars) }],
    }, { signal: client.signal });
    if (random() < LEAVES_SHARE) {
      await sleep(random() * 200);
      client.abort();
      this.left.add(number);
    }
    this.outcomes.set(number, await answer);
  }

  async #fail(): Promise<void> {
    const { nats } = this.gateway;
    for (const fault of FAULTS) {
      await sleep(150 + this.#random() * 300);
      if (fault === "bus") await nats.restart();
      else if (fault === "cut") this.living[0]?.proxy.cut();
      else if (fault === "pause") {
        await nats.freeze();
        await sleep(300);
        nats.thaw();
      } else {
        await this.living.shift()?.worker.kill();
        await this.start();
      }
    }
  }
}

/** Every client got a beginning of its answer, and the end or a reason for none. */
function assertOutcomes({ outcomes, left }: Chaos): void {
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
  assert.ok(complete >= COMPLETE_MIN, `only ${complete} are complete`);
}

/** No backend, worker or edge has anything left of the requests. */
async function assertNothingLeft(
  { gateway, living, edges }: Chaos,
): Promise<void> {
  await gateway.idle();
  for (const { backend } of living) {
    await until(() => backend.running === 0);
  }
  for (const { dispatcher } of edges) {
    await waitFor(() => {
      const { workers, used } = dispatcher.workers.totals();
      return workers === living.length && used === 0;
    }, {
      what: () =>
        `an idle table: ${JSON.stringify(dispatcher.workers.totals())}`,
    });
    assert.ok(dispatcher.bus.receiversWaiting <= living.length, "outboxes");
  }
}

/** Every request was settled once, for what its client got if it was complete. */
function assertSettledOnce({ edges, outcomes }: Chaos): void {
  for (const { request, settlements } of edges.flatMap((e) => e.admitted)) {
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

Deno.test("300 requests among faults end each in one way and leave nothing behind", async () => {
  await using gateway = await startGateway("open");
  const edges = [gateway.edge, await gateway.addEdge()];
  const chaos = new Chaos(gateway, edges);
  for (let count = 0; count < WORKERS; count++) await chaos.start();
  await chaos.play();
  assertOutcomes(chaos);
  await assertNothingLeft(chaos);
  assertSettledOnce(chaos);
});
