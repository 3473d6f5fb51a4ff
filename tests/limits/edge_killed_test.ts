/**
 * Guarantee: one of four edges killed with -9 in the middle of pressure changes
 * nothing for the limits: no window sees more, the others give all that is due,
 * and of a key never more runs than may, as the model server sees it. What the
 * dead edge held is free when its leases end, not before. How long they last by
 * real clocks: `leases_long_test.ts`.
 */
import assert from "node:assert/strict";
import { LEASE_MS } from "../../services/edge-auth/limits/scripts.ts";
import { type Cluster, startCluster } from "../support/cluster.ts";
import {
  askCluster,
  createStoredKey,
  openStore,
} from "../support/cluster_keys.ts";
import { statusOf } from "../support/gated_cluster.ts";
import { letTimePass } from "../support/limits/limiter_clock.ts";
import { Simulator } from "../../services/model-simulator/simulator.ts";
import {
  type Passed,
  spanMs,
  total,
  worstBurst,
} from "../support/limits/sliding_window.ts";
import { sleep, waitFor } from "../support/wait_for.ts";

const EDGES = 4;
const [VICTIM, OTHER] = [0, 1];
const OWNER = "own_MMMMMMMMMMMMMMMMMMMM";
const CLIENTS_PER_EDGE = 3;
const PER_MINUTE = 600;
const INTERVAL_MS = 60_000 / PER_MINUTE;
const USED_SHARE = 0.99;
const PRESS_MS = 1_500;
const KILL_AFTER_MS = 300;
const RETRY_MS = 5;
/** Between the two rounds of pressure, of the limit's time. */
const LULL_MS = 30_000;
/** Requests at the same time of the key that the dead edge held slots of. */
const SLOTS = 4;
const SLOT_CLIENTS = 6;
const SLOT_MS = 200;
const LONG_MS = 600_000;
const TOKEN_MS = 50;
const START_MS = 15_000;

/** `ms` is how long the model server takes. */
const bodyOf = (kind: string, ms: number) => ({
  stream: ms === LONG_MS,
  max_tokens: LONG_MS / TOKEN_MS,
  messages: [{
    role: "user",
    content: ms === LONG_MS
      ? `${kind} [simulator: ${ms / TOKEN_MS} tokens, 20 tokens per second]`
      : `${kind} [simulator: 1 token, first token ${ms} ms]`,
  }],
});

/** A model server that counts what runs, by the first word of the prompt. */
function startCountedModel() {
  const running = new Map<string, number>();
  const count = (kind: string, change: number) =>
    running.set(kind, (running.get(kind) ?? 0) + change);
  const model = {
    onBegin: () => {},
    running: (kind: string) => running.get(kind) ?? 0,
  };
  const simulator = new Simulator({
    onRequest: (request) => {
      const kind = /"content":"([a-z]+) /.exec(request.body)?.[1] ?? "";
      count(kind, 1);
      model.onBegin();
      void request.ended.then(() => count(kind, -1));
    },
  });
  return Object.assign(model, {
    url: simulator.url,
    [Symbol.asyncDispose]: () => simulator[Symbol.asyncDispose](),
  });
}

type CountedModel = ReturnType<typeof startCountedModel>;

/** Presses a key on every edge for a while, until all are refused. */
async function press(cluster: Cluster, value: string) {
  const passed: Passed[] = [];
  let unanswered = 0;
  let slowestMs = 0;
  const endsAtMs = performance.now() + PRESS_MS;
  const client = async (edge: number) => {
    for (let isOver = false; !isOver;) {
      const sentAtMs = performance.now();
      const answer = askCluster(cluster, value, edge, bodyOf("ping", 0));
      // 0: the edge that was killed, or its port before it is back.
      const status = await statusOf(answer).catch(() => 0);
      const atMs = performance.now();
      slowestMs = Math.max(slowestMs, atMs - sentAtMs);
      if (status === 200) passed.push({ atMs, cost: 1 });
      else await sleep(RETRY_MS);
      if (status === 0) {
        assert.equal(edge, VICTIM, "only the killed edge does not answer");
        unanswered += 1;
      }
      isOver = atMs > endsAtMs && status !== 200;
    }
  };
  await Promise.all(
    Array.from(
      { length: EDGES * CLIENTS_PER_EDGE },
      (_, index) => client(index % EDGES),
    ),
  );
  return { passed, unanswered, slowestMs };
}

/** Clients on the living edges that need more slots than there are. */
function startSlotClients(cluster: Cluster, value: string) {
  const statuses: number[] = [];
  let isOver = false;
  const clients = Array.from({ length: SLOT_CLIENTS }, async (_, index) => {
    const edge = OTHER + index % (EDGES - 1);
    while (!isOver) {
      const answer = askCluster(cluster, value, edge, bodyOf("slot", SLOT_MS));
      const status = await statusOf(answer);
      statuses.push(status);
      if (status !== 200) await sleep(SLOT_MS / 4);
    }
  });
  const end = async () => {
    isOver = true;
    await Promise.all(clients);
  };
  return {
    /** The part of all answers that is one that a limit gives. */
    keptShare: () =>
      statuses.filter((status) => status === 200 || status === 429).length /
      statuses.length,
    [Symbol.asyncDispose]: end,
  };
}

/** Counts the most that ran at once of each kind, from now on. */
function watch(model: CountedModel, kinds: readonly string[]) {
  let most = 0;
  model.onBegin = () => {
    const running = kinds.map((kind) => model.running(kind));
    most = Math.max(most, running.reduce((sum, each) => sum + each));
  };
  return { most: () => most };
}

Deno.test("an edge of four killed with -9 under pressure", async (t) => {
  await using model = startCountedModel();
  await using cluster = await startCluster({
    edges: EDGES,
    env: {
      // The limit shall refuse here, not the worker.
      SLOTS: "4096",
      UPSTREAM_BASE_URL: model.url,
    },
  });
  await using opened = await openStore(cluster);
  const { store, redis } = opened;
  const keyOf = (limits: object) => createStoredKey(store, OWNER, limits);
  const pressed = await keyOf({ requestsPerMinute: PER_MINUTE });
  const slots = await keyOf({ concurrency: SLOTS });
  const [victim] = cluster.state.pids["edge-auth"] ?? [];
  assert.ok(victim);
  const held = await Promise.all(
    Array.from(
      { length: SLOTS - 1 },
      () => askCluster(cluster, slots.value, VICTIM, bodyOf("held", LONG_MS)),
    ),
  );
  for (const { status } of held) assert.equal(status, 200);

  await t.step("the limit of requests, and the slots", async () => {
    const seen = watch(model, ["slot", "held"]);
    await using clients = startSlotClients(cluster, slots.value);
    const pressing = press(cluster, pressed.value);
    await sleep(KILL_AFTER_MS);
    Deno.kill(victim, "SIGKILL");
    const first = await pressing;
    for (const response of held) await assert.rejects(response.text());
    const principal = pressed.target;
    await letTimePass(redis, { principal, ms: LULL_MS });
    const second = await press(cluster, pressed.value);

    assert.ok(clients.keptShare() >= USED_SHARE);

    const passed = [
      ...first.passed,
      ...second.passed.map(({ atMs, cost }) => ({
        atMs: atMs + LULL_MS,
        cost,
      })),
    ];
    // An admission is known to the time that its answer took.
    const slack = Math.max(first.slowestMs, second.slowestMs) / INTERVAL_MS + 1;
    const burst = worstBurst(passed, PER_MINUTE);
    assert.ok(burst <= PER_MINUTE + slack, `a burst of ${burst}`);
    const due = PER_MINUTE + spanMs(passed) / INTERVAL_MS;
    // What ran at the killed edge was counted, and its answer is not seen.
    const given = total(passed) + CLIENTS_PER_EDGE;
    assert.ok(given >= USED_SHARE * due, `${given} of ${due} due`);
    assert.ok(first.unanswered > 0, "somebody was at the killed edge");
    assert.equal(seen.most(), SLOTS);
  });

  await t.step("its slots stay taken while its leases last", async () => {
    await waitFor(() => model.running("held") === 0, {
      what: "the worker to end what nobody waits for",
    });
    const seen = watch(model, ["slot"]);
    await using clients = startSlotClients(cluster, slots.value);
    await sleep(3 * SLOT_MS);
    assert.equal(seen.most(), 1);
    assert.ok(clients.keptShare() >= USED_SHARE);
  });

  await t.step("and are free when these end, all of them", async () => {
    const ms = LEASE_MS;
    await letTimePass(redis, { principal: slots.target, ms });
    const seen = watch(model, ["slot"]);
    await using _clients = startSlotClients(cluster, slots.value);
    await waitFor(() => seen.most() === SLOTS, { what: "all slots in use" });
    await sleep(3 * SLOT_MS);
    assert.equal(seen.most(), SLOTS);
  });

  await t.step("it is started again, and counts with the others", async () => {
    await waitFor(
      () =>
        askCluster(cluster, pressed.value, VICTIM, bodyOf("ping", 0))
          .then(statusOf).catch(() => null),
      { what: "the edge to serve again", timeoutMs: START_MS },
    );
    const left = await press(cluster, pressed.value);
    assert.equal(left.unanswered, 0);
    assert.ok(left.passed.length < PER_MINUTE, "it begins nothing anew");
  });
});
