// Promise: a running answer that passes what it holds of budgets holds its next step,
// so that no other request is admitted for what it is about to cost. It is never cut
// for money, and asks Redis at most once a second.
import assert from "node:assert/strict";
import { holdKey, type Principal, spendKey } from "@gateway/shared/keys/record";
import { DEFAULT_MODEL_ID, parseCatalog } from "@gateway/shared/models/catalog";
import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { HoldSteps } from "../../services/edge-auth/limits/hold_steps.ts";
import type { Grant } from "../../services/edge-auth/limits/limiter.ts";
import {
  edgeLink,
  loneEdge,
} from "../../services/edge-auth/limits/lone_edge_fixture.ts";
import { LostRequests } from "../../services/edge-auth/limits/lost_requests.ts";
import {
  LEASE_MS,
  RAISE_HOLD,
} from "../../services/edge-auth/limits/scripts.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import {
  type RedisWorld,
  startRedisWorld,
  usageCounted,
} from "../support/limits/admission_fixture.ts";
import { letTimePass } from "../support/limits/limiter_clock.ts";
import { createRecordingLog } from "../support/recording_log.ts";
import { until } from "../support/wait_for.ts";

/** A token of an answer costs 1 billionth, and one of a prompt nothing. */
const RATE = { table: "t", prices: { input: 0, output: 1_000_000 } };
const ESTIMATE = {
  promptTokens: 10,
  totalTokens: 310,
  bounds: { promptTokensMax: 1_000, completionTokensMax: 5_000 },
  units: null,
};
const TERMS = { estimate: ESTIMATE, rate: RATE, learned: null };
const GRANT = {
  id: "l",
  principal: { keyId: "key_1", ownerId: "own_1" },
  heldNanos: 300,
};

/** Steps on a clock of their own, with a Redis that answers as told. */
function stepsOn(reply: (wantNanos: number) => number | null | Error) {
  const state = {
    nowMs: 0,
    asked: Array<number>(),
    results: Array<string>(),
    doubted: Array<string>(),
  };
  const log = createRecordingLog();
  const steps = new HoldSteps({
    leases: { doubtHold: (id) => state.doubted.push(id) },
    redis: {
      evalScript(_script, { args = [] }) {
        const nanos = Number(args[1]);
        state.asked.push(nanos);
        const answer = reply(nanos);
        return answer instanceof Error
          ? Promise.reject(answer)
          : Promise.resolve(answer);
      },
    },
    now: () => state.nowMs,
    log,
    onStep: (result) => state.results.push(result),
  });
  const onTokens = steps.watch(GRANT, TERMS) ?? assert.fail();
  const tell = async (tokens: number) => {
    onTokens(tokens);
    // The reply is taken in the turns of promises that follow.
    for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
  };
  return { ...state, state, log, tell };
}

Deno.test("HoldSteps asks when an answer passes what it holds, for as many tokens more", async () => {
  const { state, tell } = stepsOn((nanos) => nanos);
  await tell(300);
  assert.deepEqual(state.asked, []);
  await tell(301);
  assert.deepEqual(state.asked, [601]);
  state.nowMs = 5_000;
  await tell(601);
  assert.deepEqual(state.asked, [601]);
  await tell(602);
  assert.deepEqual(state.asked, [601, 902]);
  assert.deepEqual(state.doubted, ["l", "l"], "its lease says what it held");
  assert.deepEqual(state.results, ["raised", "raised"]);
});

Deno.test("HoldSteps asks once a second, however fast an answer is, and for no more than it can have", async () => {
  const { state, tell } = stepsOn(() => 300);
  for (let ms = 0; ms < 3_000; ms += 50) {
    state.nowMs = ms;
    await tell(4_000 + ms);
  }
  // At 5,000 tokens ends what the model can answer; this one goes on.
  assert.deepEqual(state.asked, [4_300, 5_000, 6_000]);
  assert.deepEqual(state.results, ["short", "short", "short"]);
});

Deno.test("HoldSteps asks again after Redis was away, and logs only what is no outage", async () => {
  const answers = [
    new RedisUnavailableError("offline", "away"),
    new Error("NOPERM"),
    900,
  ];
  const { state, log, tell } = stepsOn(() => answers.shift() ?? assert.fail());
  for (const nowMs of [0, 1_000, 2_000, 3_000]) {
    state.nowMs = nowMs;
    await tell(500);
  }
  assert.equal(state.asked.length, 3);
  assert.deepEqual(log.lines.map(({ event }) => event), ["hold_not_raised"]);
});

Deno.test("HoldSteps does not watch what holds nothing, or costs the same whatever its length", () => {
  const redis = { evalScript: () => assert.fail() };
  const steps = new HoldSteps({
    redis,
    now: () => 0,
    log: silentLog,
    leases: { doubtHold: () => {} },
  });
  assert.equal(steps.watch({ ...GRANT, heldNanos: 0 }, TERMS), undefined);
  const units = { unit: "images", count: 1 } as const;
  for (
    const terms of [
      { ...TERMS, rate: null },
      { ...TERMS, rate: { table: "t", prices: { input: 5 } } },
      { ...TERMS, estimate: { ...ESTIMATE, units } },
    ]
  ) assert.equal(steps.watch(GRANT, terms), undefined);
});

async function amounts(world: RedisWorld, key: Principal, window = "total") {
  const reply = await world.command("HMGET", spendKey(key, window), "s", "h");
  assert.ok(Array.isArray(reply));
  return reply.map((amount) => Number(amount ?? 0));
}

const raise = (world: RedisWorld, { id, principal: p }: Grant, nanos: number) =>
  world.link.evalScript(RAISE_HOLD, {
    keys: [`lim:{${p.ownerId}}:${p.keyId}`, `lim:{${p.ownerId}}`],
    args: [id, String(nanos)],
  });

Deno.test("a hold is raised once, in all of its budgets, as far as each has something left", async () => {
  await using world = await startRedisWorld();
  await using edge = await loneEdge(world);
  const key = await world.addKey({
    limits: { budgetTotal: 1_000, budgetMonth: 5_000 },
    ownerLimits: { budgetTotal: 800 },
  });
  const admit = async (wantNanos: number) => {
    const ask = { scope: "chat", model: "m", wantTokens: 0 } as const;
    const grant = await edge.admit(key, { ...ask, wantNanos });
    assert.ok(grant.isAdmitted);
    return grant;
  };
  const [one, other] = [await admit(100), await admit(200)];
  assert.deepEqual([one.heldNanos, other.heldNanos], [100, 200]);
  for (let n = 0; n < 3; n += 1) {
    assert.equal(await raise(world, one, 400), 400);
    assert.deepEqual(await amounts(world, key), [0, 600]);
  }
  assert.equal(await raise(world, one, 50), 400, "it is never lowered");
  // 200 are left to the owner.
  assert.equal(await raise(world, other, 900), 400);
  assert.equal(await raise(world, one, 900), 400);
  assert.deepEqual(await amounts(world, key), [0, 800]);
  const cost = { promptTokens: 0, completionTokens: 0, nanos: 5_000 };
  await edge.settle(one, { ...cost, kind: "complete" });
  assert.deepEqual(await amounts(world, key), [5_000, 400]);
  assert.equal(await raise(world, one, 6_000), null, "it has ended");
  assert.equal(await raise(world, other, 900), 400, "it goes on");
  assert.deepEqual(await amounts(world, key), [5_000, 400]);

  // Its edge is lost: it is charged what it holds by now.
  const lost = new LostRequests({
    redis: await edgeLink(world),
    now: monotonicNow,
    expectedMs: () => Date.now(),
    log: silentLog,
  });
  lost.note(key);
  await lost.writeNotes();
  await letTimePass(world.link, { principal: key, ms: LEASE_MS + 1 });
  assert.equal(await lost.charge(), 1);
  assert.deepEqual(await amounts(world, key), [5_400, 0]);
  assert.equal((await usageCounted(world, key)).lostCost, 400);
  assert.equal(await raise(world, other, 900), null, "it was charged");
});

const PRICED = parseCatalog({
  models: [{
    id: DEFAULT_MODEL_ID,
    prices: { input: "0", output: "1" },
    backends: [{ type: "openai", base_url: "http://a/v1", model: "m" }],
  }],
});
const NANOS_PER_TOKEN = 1_000;

Deno.test("a streamed answer that is longer than what it holds refuses others, and ends whole", async () => {
  await using gateway = await startGateway("limited", {
    door: { catalog: PRICED },
    onCall: () => {},
  });
  const budgetTotal = 1_500 * NANOS_PER_TOKEN;
  const key = await gateway.addKey({ limits: { budgetTotal } });
  const body = { stream: true, max_tokens: undefined };
  const answer = gateway.ask(key, { body });
  await until(() => gateway.backend.calls.length === 1);
  const [call = assert.fail()] = gateway.backend.calls;
  const held = async () => (await amounts(gateway.world, key))[1] ?? 0;
  assert.equal(await held(), 1_024 * NANOS_PER_TOKEN);
  call.say(...Array<string>(1_100).fill("a "));
  // All that is left, although a whole step is larger.
  await until(async () => await held() === budgetTotal);
  const refused = await gateway.ask(key, { body: { max_tokens: 1 } });
  assert.equal(refused.status, 429);
  assert.match((await refused.json()).error.message, /hold the rest/);
  call.say(...Array<string>(900).fill("a "));
  call.end(2_000);
  const response = await answer;
  assert.equal(response.status, 200);
  assert.match(await response.text(), /data: \[DONE\]/);
  await gateway.settled(key);
  const spent = 2_000 * NANOS_PER_TOKEN;
  assert.deepEqual(await amounts(gateway.world, key), [spent, 0]);
  assert.equal(await gateway.world.command("HLEN", holdKey(key)), 0);
});
