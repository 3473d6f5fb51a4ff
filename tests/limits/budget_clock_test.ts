// Promise: if the clock of Redis jumps by a day or a month and back, each day and month
// has exactly what was admitted while the clock showed it, a request is charged to the
// day of its admission, and the budget in total and the usage miss nothing.
import assert from "node:assert/strict";
import { type Principal, spendKey } from "@gateway/shared/keys/record";
import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import {
  defineScript,
  type RedisLink,
  type RedisScript,
} from "@gateway/shared/redis/link";
import {
  type Ask,
  type Grant,
  Limiter,
} from "../../services/edge-auth/limits/limiter.ts";
import { edgeLink } from "../../services/edge-auth/limits/lone_edge_fixture.ts";
import {
  type RedisWorld,
  startRedisWorld,
  usageCounted,
} from "../support/limits/admission_fixture.ts";

const ASK: Ask = {
  scope: "chat",
  model: "m",
  endpoint: "chat",
  wantTokens: 0,
  rate: { table: "t", prices: { input: 1_000_000 } },
  wantNanos: 10,
};
const DAY_MS = 86_400_000;
const NOON_MS = Date.UTC(2026, 10, 15, 12);

/** Scripts of a Redis whose clock shows what the test says. */
function redisAt(link: RedisLink, clock: { nowMs: number }) {
  const shown = ({ name, source }: RedisScript): RedisScript => {
    const seconds = Math.floor(clock.nowMs / 1_000);
    return defineScript(
      name,
      source.replace(/(redis\.)?call\('TIME'\)/g, `{ '${seconds}', '0' }`),
    );
  };
  return {
    get state() {
      return link.state;
    },
    evalScript: (...[script, ...rest]: Parameters<RedisLink["evalScript"]>) =>
      link.evalScript(shown(script), ...rest),
  };
}

async function spentIn(
  world: RedisWorld,
  key: Principal,
): Promise<Record<string, string>> {
  const spent: Record<string, string> = {};
  for (
    const window of [
      "d20261114",
      "d20261115",
      "d20261116",
      "m202611",
      "m202612",
      "total",
    ]
  ) {
    const name = spendKey(key, window);
    const amounts = await world.command("HMGET", name, "s", "h");
    spent[window] = String(amounts);
  }
  return spent;
}

Deno.test("a clock of Redis that jumps by a day or a month and back leaves each its own spend", async () => {
  await using world = await startRedisWorld();
  const clock = { nowMs: NOON_MS };
  const edge = new Limiter({
    redis: redisAt(await edgeLink(world), clock),
    now: monotonicNow,
    log: silentLog,
    deadlineMs: 1_000,
  });
  const key = await world.addKey({
    limits: { budgetDay: 100, budgetMonth: 250, budgetTotal: 1_000 },
  });
  const admit = async (): Promise<Grant> => {
    const grant = await edge.admit(key, ASK);
    assert.ok(grant.isAdmitted, JSON.stringify(grant));
    return grant;
  };
  const settle = (grant: Grant, nanos: number) =>
    edge.settle(grant, {
      promptTokens: 0,
      completionTokens: 0,
      nanos,
      kind: "complete",
    });
  const refusal = async () => {
    const decision = await edge.admit(key, ASK);
    assert.ok(!decision.isAdmitted && decision.reason === "limited");
    return [decision.limit, decision.waitMs];
  };

  await settle(await admit(), 60);
  const over = await admit();
  clock.nowMs += DAY_MS;
  await settle(await admit(), 70);
  // It was admitted on the day before.
  await settle(over, 40);
  clock.nowMs -= DAY_MS;
  assert.deepEqual(await refusal(), ["budget_day", DAY_MS / 2]);
  clock.nowMs -= DAY_MS;
  await settle(await admit(), 80);
  const restOfMonthMs = Date.UTC(2026, 11, 1) - clock.nowMs;
  assert.deepEqual(await refusal(), ["budget_month", restOfMonthMs]);
  clock.nowMs = Date.UTC(2026, 11, 15, 12);
  await settle(await admit(), 5);
  clock.nowMs = NOON_MS;
  assert.deepEqual(
    await refusal(),
    ["budget_month", Date.UTC(2026, 11, 1) - NOON_MS],
  );
  assert.deepEqual(await spentIn(world, key), {
    d20261114: "80,0",
    d20261115: "100,0",
    d20261116: "70,0",
    m202611: "250,0",
    m202612: "5,0",
    total: "255,0",
  });
  assert.equal((await usageCounted(world, key)).cost, 255);
  await edge.leases.stop(1_000);
});
