// Promise: processes that are killed, frozen or told to stop end what they ran in the
// promised way and time, for the client and for the model server, which is not called
// for an answer that was already given. If there is another worker, the loss of one
// only delays a request without a byte sent, and its replacement not even that.
import assert from "node:assert/strict";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { SeenRequest } from "../../../services/model-simulator/serving/answer.ts";
import {
  type ChatOutcome,
  endsAs,
  outcomeOf,
} from "../../support/gateway/chat_outcome.ts";
import { readStatus } from "../../support/gateway/chat_status.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
import {
  simulates,
  type WatchedSimulator,
} from "../../support/gateway/simulator.ts";
import {
  sleep,
  startStopwatch,
  type Stopwatch,
  until,
  waitFor,
} from "../../support/wait_for.ts";

/** What a busy machine may add to any promise. */
const NOISE_MS = 1_500;
const REQUESTS = 20;
/** Longer than it takes to miss a worker. */
const FROZEN_MS = DISPATCH_LIMITS.workerLostMs + 500;
/** A lost worker is known in this time, and its requests are begun elsewhere. */
const REPEATED_MS = 750;
/** How long a client under load pauses, which leaves room for new workers. */
const PAUSE_MS = 100;
/** What the other workers serve at least, while one is replaced. */
const SERVED_MIN = 30;
/** What the simulator says in two tokens; `CUT`: in one. */
const HELLO = { kind: "complete", content: "I am" } as const;
const CUT: Partial<ChatOutcome> = {
  kind: "sse_error",
  errorCode: "worker_lost",
  content: "I",
};

/** A request for two tokens, the second of them `seconds` after the first. */
const twoTokens = (seconds: number, more = "") => ({
  messages: simulates(`2 tokens, ${1 / seconds} tokens per second${more}`),
  max_tokens: 2,
});
/** Longer than any step takes. */
const ENDLESS = { ...twoTokens(1_000), stream: true };

/** Holds processes still while something is done. */
async function whileFrozen(pids: readonly number[], work: () => Promise<void>) {
  for (const pid of pids) Deno.kill(pid, "SIGSTOP");
  try {
    await work();
  } finally {
    for (const pid of pids) Deno.kill(pid, "SIGCONT");
  }
}

function assertWithin(boundMs: number, { ms }: Stopwatch): void {
  assert.ok(ms < boundMs + NOISE_MS, `took ${ms} ms`);
}

/** A request that has begun, and how the simulator sees it. */
interface Begun {
  answer: Promise<ChatOutcome>;
  upstream: SeenRequest;
}

/** Two edges and two workers in front of a simulator. */
class Fleet {
  constructor(
    readonly server: WatchedSimulator,
    readonly gateway: LaunchedGateway,
  ) {}

  /** The process ids of the workers. */
  workers(): number[] {
    return [0, 1].map((at) => this.gateway.pid("chat-worker", at));
  }

  /** Waits until both workers are ready. */
  async areReady(): Promise<void> {
    await waitFor(async () => {
      const { ops_urls } = await this.gateway.refresh();
      const statuses = ops_urls["chat-worker"]?.map((url) =>
        // It is gone, or not there yet.
        readStatus(fetch(`${url}/readyz`)).catch(() => null)
      ) ?? [];
      return (await Promise.all(statuses)).every((status) => status === 200);
    }, { what: "two workers that are ready", intervalMs: PAUSE_MS });
  }

  /** Asks for two tokens, soon after each other. */
  ask(
    edge: number,
    body: object = {},
    key = this.gateway.state.api_key,
  ): Promise<ChatOutcome> {
    const fields = { ...twoTokens(0.02), ...body };
    return outcomeOf(this.gateway.ask(key, { edge, body: fields }));
  }

  /** Begins a stream, whose first token is there. */
  async begin(
    edge: number,
    body: object = ENDLESS,
    key = this.gateway.state.api_key,
  ): Promise<Begun> {
    const number = this.server.requests.length + 1;
    const fields = { ...body, stream: true };
    const response = await this.gateway.ask(key, { edge, body: fields });
    assert.equal(response.status, 200);
    return {
      answer: outcomeOf(Promise.resolve(response)),
      upstream: await this.server.request(number),
    };
  }

  /** Asks for a stream, which completes. */
  completes(edge: number, key?: string): Promise<void> {
    return endsAs(this.ask(edge, { stream: true }, key), HELLO);
  }

  /** Sends {@link REQUESTS} requests at once, half of them for streams. */
  askMany(body = {}): Promise<ChatOutcome>[] {
    return many((number) => this.ask(0, { ...body, stream: number % 2 === 0 }));
  }
}

const many = <T>(send: (number: number) => Promise<T>) =>
  Array.from({ length: REQUESTS }, (_, number) => send(number));

async function isLeft({ upstream }: Begun): Promise<void> {
  assert.equal(await upstream.outcome, "left");
}

async function allSayHello(answers: Promise<ChatOutcome>[]): Promise<void> {
  for (const answer of answers) await endsAs(answer, HELLO);
}

async function replacesWorkers(fleet: Fleet): Promise<void> {
  let isOver = false;
  const failures: ChatOutcome[] = [];
  let served = 0;
  const load = many(async (client) => {
    for (let number = client; !isOver; number += 1) {
      const answer = await fleet.ask(number % 2, { stream: client % 2 === 0 });
      if (answer.kind === "complete") served += 1;
      else failures.push(answer);
      await sleep(PAUSE_MS);
    }
  });
  for (const old of fleet.workers()) {
    await fleet.areReady();
    const enough = served + SERVED_MIN;
    Deno.kill(old, "SIGTERM");
    await fleet.gateway.isReplaced("chat-worker", old);
    await until(() => failures.length > 0 || served >= enough);
  }
  await fleet.areReady();
  isOver = true;
  await Promise.all(load);
  assert.deepEqual(failures, []);
}

async function freezesWorkersBriefly(fleet: Fleet): Promise<void> {
  const { answer } = await fleet.begin(0, twoTokens(0.5));
  await whileFrozen(fleet.workers(), () => sleep(1_000));
  await endsAs(answer, HELLO);
}

async function freezesWorkersLong(fleet: Fleet): Promise<void> {
  const stream = await fleet.begin(0);
  using watch = startStopwatch();
  await whileFrozen(fleet.workers(), async () => {
    const refused = fleet.ask(0);
    await endsAs(stream.answer, CUT);
    assertWithin(DISPATCH_LIMITS.workerLostMs, watch);
    assert.ok(!stream.upstream.leaving.signal.aborted);
    await endsAs(refused, { status: 503, retryAfter: "1" });
  });
  await isLeft(stream);
  await fleet.completes(0);
}

async function freezesEdge(fleet: Fleet): Promise<void> {
  const { answer } = await fleet.begin(1, twoTokens(0.5));
  await whileFrozen([fleet.gateway.pid("edge-auth", 1)], async () => {
    using watch = startStopwatch();
    for (let number = 0; number < REQUESTS; number += 1) {
      await endsAs(fleet.ask(0, { stream: true }), { kind: "complete" });
    }
    assertWithin(0, watch);
  });
  await endsAs(answer, HELLO);
}

async function stopsEdge(fleet: Fleet): Promise<void> {
  // A key for one request at once: free again only when that one is settled.
  const { key } = await fleet.gateway.createKey("--concurrency=1");
  const stream = await fleet.begin(1, ENDLESS, key);
  assert.equal((await fleet.ask(0, {}, key)).status, 429);
  const edge = fleet.gateway.pid("edge-auth", 1);
  // So that nobody says what the request had cost before the edge is done.
  await whileFrozen(fleet.workers(), async () => {
    Deno.kill(edge, "SIGTERM");
    await endsAs(stream.answer, { ...CUT, errorCode: "server_shutdown" });
    await fleet.gateway.isReplaced("edge-auth", edge);
  });
  await isLeft(stream);
  await fleet.completes(0, key);
  // Later steps ask the new one.
  await until(async () => (await fleet.ask(1)).kind === "complete", 10_000);
}

async function freezesIdleWorker(fleet: Fleet): Promise<void> {
  await allSayHello(fleet.askMany()); // Both workers are known, and warm.
  const before = fleet.server.requests.length;
  await whileFrozen([fleet.gateway.pid("chat-worker")], async () => {
    using watch = startStopwatch();
    await allSayHello(fleet.askMany());
    assertWithin(DISPATCH_LIMITS.acceptMs, watch);
    // Long enough that what is in its socket is old by any clock.
    await sleep(FROZEN_MS);
  });
  await allSayHello(fleet.askMany());
  assert.equal(fleet.server.requests.length, before + 2 * REQUESTS);
}

async function freezesKeyAdmin(fleet: Fleet): Promise<void> {
  const frozen = [fleet.gateway.pid("key-admin")];
  await whileFrozen(frozen, () => allSayHello(fleet.askMany()));
}

async function killsWorker(fleet: Fleet): Promise<void> {
  // A worker that has just woken up is not known to have room before it beats.
  await sleep(2 * DISPATCH_LIMITS.workerBeatMs);
  const streams = await Promise.all(
    many((number) => fleet.begin(number % 2, twoTokens(5))),
  );
  const before = fleet.server.requests.length;
  const late = twoTokens(0.02, ", first token 3000 ms");
  const answers = fleet.askMany(late);
  await until(() => fleet.server.requests.length === before + REQUESTS);
  using watch = startStopwatch();
  Deno.kill(fleet.gateway.pid("chat-worker"), "SIGKILL");
  let lost = 0;
  for (const { outcome: ended } of fleet.server.requests.slice(before)) {
    void ended.then((outcome) => {
      if (outcome === "left") lost += 1;
    });
  }
  const isRepeated = () =>
    fleet.server.requests.length === before + REQUESTS + lost;
  await waitFor(() => lost > 0 && isRepeated(), {
    what: () => `${lost} calls to be made again`,
  });
  assertWithin(REPEATED_MS, watch);
  await allSayHello(answers);
  const ended = await Promise.all(streams.map(({ answer }) => answer));
  const cut = ended.filter(({ kind }) => kind !== "complete");
  for (const outcome of cut) assert.partialDeepStrictEqual(outcome, CUT);
  assert.ok(cut.length > 0 && cut.length < REQUESTS, `${cut.length} cut`);
  assert.ok(isRepeated(), `${fleet.server.requests.length - before} calls`);
}

async function killsEdge(fleet: Fleet): Promise<void> {
  const stream = await fleet.begin(0);
  using watch = startStopwatch();
  Deno.kill(fleet.gateway.pid("edge-auth", 0), "SIGKILL");
  assert.equal((await stream.answer).kind, "broken");
  await isLeft(stream);
  assertWithin(DISPATCH_LIMITS.edgeLostMs + 1_000, watch);
}

const STEPS: { [title: string]: (fleet: Fleet) => Promise<void> } = {
  "every worker replaced: no failed request": replacesWorkers,
  "a worker frozen for a second: a pause": freezesWorkersBriefly,
  "a worker frozen for longer: one error": freezesWorkersLong,
  "a frozen edge slows no other, and continues": freezesEdge,
  "a stopping edge: streams end with an error": stopsEdge,
  "a worker frozen while idle is passed over": freezesIdleWorker,
  "key-admin frozen: keys go on working": freezesKeyAdmin,
  "a worker killed under load: others go on": killsWorker,
  "a killed edge: its calls stop in four seconds": killsEdge,
};

/**
 * Kills, freezes and stops processes of a gateway with two edges and two workers, which
 * has its default model at `server`, and has one second to drain.
 */
export async function checkProcessFaults(
  t: Deno.TestContext,
  server: WatchedSimulator,
  gateway: LaunchedGateway,
): Promise<void> {
  const fleet = new Fleet(server, gateway);
  for (const [title, step] of Object.entries(STEPS)) {
    await t.step(title, () => step(fleet));
  }
}
