// Promise: the loss of one server of a NATS cluster, for whatever reason, causes
// only a pause: streams and requests continue at the other server.
import assert from "node:assert/strict";
import { BUS_TIMING } from "@gateway/shared/bus/link_nats";
import { ask, endsAs } from "../../support/gateway/chat_outcome.ts";
import { freePort } from "../../support/servers/local_server.ts";
import { startGateway } from "../../support/gateway/gateway.ts";
import type { InProcessEdge } from "../../support/gateway/in_process_edge.ts";
import {
  type NatsServer,
  startNatsServer,
} from "../../support/servers/nats_server.ts";
import { owning } from "../../support/process.ts";
import {
  answerOf,
  type TokenBackend,
  tokenBackend,
} from "../../support/model_servers/scripted_model_server.ts";
import { until } from "../../support/wait_for.ts";

const TOKENS = 100;
/** Tokens of a request that comes meanwhile. */
const FEW = 3;
/** What a busy machine may add to any promise. */
const NOISE_MS = 1_500;

/** In this time a frozen server is left. */
const FOUND_MS = BUS_TIMING.silentMs;

/** An edge on one server and a worker on the other. */
interface Pair extends AsyncDisposable {
  /** Whom each is connected to. */
  serverOf: { edge: NatsServer; worker: NatsServer };
  edge: InProcessEdge;
  backend: TokenBackend;
}

async function startPair(): Promise<Pair> {
  await using stack = new AsyncDisposableStack();
  const [routeA, routeB] = [freePort(), freePort()];
  const config = (own: number, other: number) =>
    `cluster { name: c, listen: "127.0.0.1:${own}", routes: ["nats://127.0.0.1:${other}"] }
     lame_duck_duration: "30s", lame_duck_grace_period: "100ms"`;
  const start = async (own: number, other: number) =>
    stack.use(await startNatsServer({ config: config(own, other) }));
  const [a, b] = [await start(routeA, routeB), await start(routeB, routeA)];
  // Servers are tried in the order given: so it is known who is where.
  const gateway = stack.use(
    await startGateway("open", { servers: [a.server, b.server] }),
  );
  const { edge } = gateway;
  const backend = tokenBackend({ tokenMs: 10 });
  const servers = [b.server, a.server];
  await gateway.addWorker(backend, { servers });
  await until(() => edge.dispatcher.workers.totals().workers === 1);
  const serverOf = { edge: a, worker: b };
  return owning(stack, { serverOf, edge, backend });
}

const isWhole = (seed: number, tokens: number) => ({
  kind: "complete" as const,
  content: answerOf(seed, tokens),
});

/** A stream in the middle, and a check that it ends whole. */
async function beginStream({ edge, backend }: Pair) {
  const outcome = ask(edge, { stream: true, seed: 1, max_tokens: TOKENS });
  await until(() => (backend.produced.get(1) ?? 0) > 10);
  return () => endsAs(outcome, isWhole(1, TOKENS));
}

const askFew = ({ edge }: Pair, seed: number) =>
  endsAs(ask(edge, { seed, max_tokens: FEW }), isWhole(seed, FEW));

Deno.test("one server of a cluster killed: streams go on at the other", async () => {
  await using pair = await startPair();
  const endsWhole = await beginStream(pair);
  await pair.serverOf.edge.kill();
  await askFew(pair, 2);
  await endsWhole();
});

Deno.test("one server of a cluster retired, as in an upgrade: no request is affected", async () => {
  await using pair = await startPair();
  const endsWhole = await beginStream(pair);
  let hasMoved = false;
  pair.edge.link.onEvent((event) => {
    if (event === "reconnected") hasMoved = true;
  });
  pair.serverOf.edge.retire();
  // Requests all the time, before, during and after the move.
  let seed = 2;
  for (let afterMove = 0; afterMove < 10; seed += 1) {
    if (hasMoved) afterMove += 1;
    await askFew(pair, seed);
  }
  await endsWhole();
});

for (const whose of ["edge", "worker"] as const) {
  Deno.test(`the server of the ${whose} frozen in a cluster: a pause, requests wait, all goes on at the other`, async () => {
    await using pair = await startPair();
    const endsWhole = await beginStream(pair);
    const frozenAtMs = performance.now();
    const frozen = pair.serverOf[whose];
    await frozen.freeze();
    try {
      const meanwhile = askFew(pair, 2);
      await endsWhole();
      const pausedMs = performance.now() - frozenAtMs;
      assert.ok(pausedMs < FOUND_MS + NOISE_MS, `paused for ${pausedMs} ms`);
      await meanwhile;
    } finally {
      frozen.thaw();
    }
  });
}
