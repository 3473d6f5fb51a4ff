// Promise: a jump of Redis' clock admits at most one burst, and blocks no key for
// longer than documented. A test cannot set a server's clock; the scripts compare it
// with the stored times, so the test moves all of these the other way instead.
import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import {
  LIMITER_EPOCH_MS,
  limiterDay,
} from "@gateway/shared/keys/limiter_state";
import * as record from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import {
  DONE,
  readState,
  type RedisWorld,
  startRedisWorld,
  writeState,
} from "../../../tests/support/limits/admission_fixture.ts";
import { letTimePass } from "../../../tests/support/limits/limiter_clock.ts";
import { Leases } from "./leases.ts";
import { type Ask, type Grant, type Limiter } from "./limiter.ts";
import { loneEdge } from "./lone_edge_fixture.ts";
import { LEASE_MS } from "./scripts.ts";

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
/**
 * An edge that has seen replies of Redis late expects its clock to be behind by as
 * much: leases live that much longer.
 */
const LATE_MS = 2_000;
const ASK: Ask = { scope: "chat", model: "m", wantTokens: 100 };
/** Each admits ten requests of {@link ASK}. */
const LIMITS: { name: string; limits: Partial<record.Limits> }[] = [
  { name: "requests", limits: { requestsPerMinute: 10 } },
  { name: "tokens", limits: { tokensPerMinute: 1_000 } },
  { name: "concurrency", limits: { concurrency: 10 } },
];
const BURST = 10;

/** Asks until it is refused. */
async function drain(admission: Limiter, key: record.Principal) {
  const running: Grant[] = [];
  while (true) {
    const decision = await admission.admit(key, ASK);
    if (decision.isAdmitted) {
      running.push(decision);
      assert.ok(running.length <= 10 * BURST, "there is no limit any more");
      continue;
    }
    assert.ok(decision.reason === "limited", decision.reason);
    return { running, count: running.length, waitMs: decision.waitMs };
  }
}

/** Whose limits a test is about. */
type Side = "key" | "owner";

/** A Redis, and an edge with whose keys the clock jumps. */
class JumpStage {
  readonly side: Side;
  readonly world: RedisWorld;
  readonly edge: Limiter;

  constructor(side: Side, world: RedisWorld, edge: Limiter) {
    this.side = side;
    this.world = world;
    this.edge = edge;
  }

  addKey(limits: Partial<record.Limits>): Promise<record.Principal> {
    const isKey = this.side === "key";
    return this.world.addKey(isKey ? { limits } : { ownerLimits: limits });
  }

  jump(principal: record.Principal, ms: number): Promise<number> {
    return letTimePass(this.world.link, { principal, ms });
  }
}

async function jumpsBack(
  { name, limits }: (typeof LIMITS)[number],
  stage: JumpStage,
): Promise<void> {
  const { edge } = stage;
  const key = await stage.addKey(limits);
  for (let used = 0; used < BURST / 2; used += 1) {
    assert.ok((await edge.admit(key, ASK)).isAdmitted);
  }
  await stage.jump(key, -HOUR_MS);
  const { count, waitMs } = await drain(edge, key);
  assert.equal(count, BURST / 2);
  assert.ok(waitMs <= MINUTE_MS, `told to wait ${waitMs} ms`);
  // And as long again after the wait that the answer named.
  await stage.jump(key, name === "concurrency" ? LEASE_MS + LATE_MS : waitMs);
  assert.ok((await edge.admit(key, ASK)).isAdmitted);
}

async function jumpsForward(
  limits: Partial<record.Limits>,
  stage: JumpStage,
): Promise<void> {
  const { edge } = stage;
  const key = await stage.addKey(limits);
  assert.equal((await drain(edge, key)).count, BURST);
  await stage.jump(key, HOUR_MS);
  assert.equal((await drain(edge, key)).count, BURST);
  assert.equal((await drain(edge, key)).count, 0);
  await stage.jump(key, -HOUR_MS);
  const { count, waitMs } = await drain(edge, key);
  assert.equal(count, 0);
  assert.ok(waitMs <= MINUTE_MS, `told to wait ${waitMs} ms`);
}

async function slotsOfDeadEdge(stage: JumpStage): Promise<void> {
  const { world, side } = stage;
  const key = await stage.addKey({ concurrency: 1 });
  assert.ok((await stage.edge.admit(key, ASK)).isAdmitted);
  await stage.jump(key, -HOUR_MS);
  await using living = await loneEdge(world);
  assert.equal((await drain(living, key)).count, 0);
  const name = side === "key"
    ? record.leaseKey(key)
    : record.ownerLeaseKey(key.ownerId);
  const [, score] = Object(
    await world.command("ZRANGE", name, "0", "-1", "WITHSCORES"),
  );
  const leftMs = Number(score) + LIMITER_EPOCH_MS - await world.time();
  const isFree = leftMs > LEASE_MS - 1_000 && leftMs <= LEASE_MS;
  assert.ok(isFree, `free in ${leftMs} ms`);
  await stage.jump(key, LEASE_MS + LATE_MS);
  assert.ok((await living.admit(key, ASK)).isAdmitted);
}

async function runningRequests(stage: JumpStage): Promise<void> {
  const { world, edge } = stage;
  const key = await stage.addKey({ concurrency: 2 });
  let skewMs = 0;
  for (const ms of [-HOUR_MS, HOUR_MS]) {
    const { running } = await drain(edge, key);
    assert.equal(running.length, 2);
    await stage.jump(key, ms);
    const now = () => monotonicNow() + skewMs;
    const leases = new Leases({ redis: world.link, now, log: silentLog });
    for (const request of running) leases.hold(request);
    skewMs += LEASE_MS;
    assert.equal(await leases.renew(), true);
    await leases.stop(0);
    assert.equal((await drain(edge, key)).count, 0);
    await Promise.all(running.map((request) => edge.settle(request, DONE)));
    const ofOwner = record.ownerLeaseKey(key.ownerId);
    for (const name of [record.leaseKey(key), ofOwner]) {
      assert.equal(await world.command("ZCARD", name), 0);
    }
  }
}

for (const side of ["key", "owner"] as const) {
  Deno.test(`the clock of Redis jumps under limits of the ${side}`, async (t) => {
    await using world = await startRedisWorld();
    await using edge = await loneEdge(world);
    const stage = new JumpStage(side, world, edge);
    for (const row of LIMITS) {
      const { name, limits } = row;
      await t.step(
        `${name}: an hour back changes nothing`,
        () => jumpsBack(row, stage),
      );
      await t.step(
        `${name}: an hour forward is one burst`,
        () => jumpsForward(limits, stage),
      );
    }
    await t.step(
      "slots of a dead edge are free after 30 s",
      () => slotsOfDeadEdge(stage),
    );
    await t.step(
      "running requests are settled and renewed",
      () => runningRequests(stage),
    );
  });
}

Deno.test("a clock of Redis that jumps forward gives no slot to more requests than may run", async () => {
  await using world = await startRedisWorld();
  let behindMs = 0;
  await using admission = await loneEdge(
    world,
    () => monotonicNow() - behindMs,
  );
  const key = await world.addKey({ limits: { concurrency: 3 } });
  const { running } = await drain(admission, key);
  assert.equal(running.length, 3);
  // Redis' clock is ahead by 40 s: of the leases, and of what the edge expects.
  await letTimePass(world.link, { principal: key, ms: 40_000 });
  behindMs += 40_000;
  assert.equal((await drain(admission, key)).count, 0);
  // Within the time that the edge doubts it, the leases are renewed.
  admission.leases.renewSoon();
  assert.equal(await admission.leases.renew(), true);
  behindMs -= 40_000;
  assert.equal((await drain(admission, key)).count, 0);
  await Promise.all(running.map((each) => admission.settle(each, DONE)));
  assert.equal((await drain(admission, key)).count, 3);
});

Deno.test("clock of Redis, tokens per day: back over midnight, the budget of the day that had begun goes on", async () => {
  await using world = await startRedisWorld();
  await using admission = await loneEdge(world);
  const key = await world.addKey({ limits: { tokensPerDay: 1_000 } });
  assert.ok((await admission.admit(key, ASK)).isAdmitted);
  const state = await readState(world, record.limiterKey(key)) ??
    assert.fail();
  const today = limiterDay(await world.time());
  await writeState(world, record.limiterKey(key), {
    ...state,
    lastAtMs: state.lastAtMs + HOUR_MS,
    day: today + 1,
    dayTokens: 800,
  });
  const { count, waitMs } = await drain(admission, key);
  assert.equal(count, 2);
  assert.ok(waitMs <= 48 * HOUR_MS, `told to wait ${waitMs} ms`);
  // At the real midnight the day is the one that is counted already.
  const tomorrow = await readState(world, record.limiterKey(key));
  assert.equal(tomorrow?.day, today + 1);
  assert.equal(tomorrow?.dayTokens, 1_000);
  // Back by days: at most one more budget.
  await writeState(world, record.limiterKey(key), {
    ...state,
    day: today + 3,
  });
  assert.equal((await drain(admission, key)).count, BURST);
});
