// Promise: what a request reserved and did not use is given back whole, however long it
// ran. So a key under pressure is charged its limit, and the requests of any 60 seconds
// use no more than a full bucket, its refill, and what those that ran before give back.
import assert from "node:assert/strict";
import type { Principal } from "@gateway/shared/keys/record";
import {
  type RedisWorld,
  startRedisWorld,
} from "../../../tests/support/admission_fixture.ts";
import {
  type FleetEdge,
  startFleet,
} from "../../../tests/support/limits/edge_fleet.ts";
import { letTimePass } from "../../../tests/support/limits/limiter_clock.ts";
import { seededRandom } from "../../../tests/support/seeded_random.ts";
import { seedsOr } from "../../../tests/support/seeded_random.ts";
import { waitFor } from "../../../tests/support/wait_for.ts";
import type { Admitted } from "./limiter.ts";

const MINUTE_MS = 60_000;
const PER_MINUTE = 60_000;
const LARGEST = PER_MINUTE / 10;
const SHORTEST_MS = 5_000;
const LONGEST_MS = 300_000;
const STEP_MAX_MS = 4_000;
/** Three times as long as the longest request, so that refunds are spent again. */
const SPAN_MS = 3 * LONGEST_MS;
const USED_SHARE = 0.99;
/** Admissions are known to the millisecond, and sums of fractions are not exact. */
const FORGIVEN = 2 * PER_MINUTE / MINUTE_MS;

/** What one request reserves, uses, and how long it runs. */
interface Plan {
  want: number;
  used: number;
  runsMs: number;
}

interface Run extends Plan {
  atMs: number;
  endsAtMs: number;
}

interface Stage {
  world: RedisWorld;
  edge: FleetEdge;
  principal: Principal;
  random: () => number;
  plan: (atMs: number) => Plan;
}

/** Asks for more than there is, all the time; requests end when their time is over. */
async function pressed(stage: Stage): Promise<Run[]> {
  const { world, edge, principal, random, plan } = stage;
  const runs: Run[] = [];
  const running = new Map<Run, Admitted>();
  let passedMs = 0;
  for (let nowMs = 0; nowMs < SPAN_MS;) {
    for (const [run, admitted] of running) {
      if (run.endsAtMs > nowMs) continue;
      running.delete(run);
      edge.settle(admitted, {
        promptTokens: 0,
        completionTokens: run.used,
        kind: "complete",
      });
    }
    await waitFor(() => edge.admission.unsettled === 0, {
      what: "the refunds",
    });
    for (;;) {
      const planned = plan(nowMs);
      const decision = await edge.ask(principal, planned.want);
      assert.ok(decision !== null, "redis answers");
      if (!decision.isAdmitted) break;
      const atMs = decision.atMs + passedMs;
      const run = { ...planned, atMs, endsAtMs: nowMs + planned.runsMs };
      runs.push(run);
      running.set(run, decision);
    }
    const ms = 1 + Math.floor(random() * STEP_MAX_MS);
    passedMs += await letTimePass(world.link, { principal, ms });
    nowMs += ms;
  }
  return runs;
}

/** No 60 seconds see more used than twice the limit and what was running gives back. */
function assertMinutes(runs: readonly Run[]): void {
  const startMs = runs[0]?.atMs ?? 0;
  for (const first of runs) {
    const sinceMs = first.atMs - startMs;
    const before = runs.filter(({ atMs }) => atMs < first.atMs);
    const givenBack = before
      .filter(({ atMs, runsMs }) =>
        atMs - startMs + runsMs >= sinceMs - STEP_MAX_MS
      )
      .reduce((sum, { want, used }) => sum + want - used, 0);
    const used = runs
      .filter(({ atMs }) =>
        atMs >= first.atMs && atMs <= first.atMs + MINUTE_MS
      )
      .reduce((sum, run) => sum + run.used, 0);
    const most = 2 * PER_MINUTE + LARGEST + givenBack;
    assert.ok(used <= most, `${used} of ${most} in the minute at ${sinceMs}`);
  }
}

/** What is charged in the end: all that was allowed, and no more. */
function assertCharged(runs: readonly Run[]): void {
  const [first, last] = [runs[0]?.atMs ?? 0, runs.at(-1)?.atMs ?? 0];
  const charged = runs
    .map(({ atMs, runsMs, want, used }) => atMs + runsMs > last ? want : used)
    .reduce((sum, tokens) => sum + tokens, 0);
  const due = PER_MINUTE + (last - first) * PER_MINUTE / MINUTE_MS;
  assert.ok(charged >= USED_SHARE * due - LARGEST, `${charged} of ${due}`);
  assert.ok(charged <= due + FORGIVEN, `${charged} of ${due}`);
}

const SHARES: [
  name: string,
  shareAt: (atMs: number, random: () => number) => number,
][] = [
  ["some of it", (_atMs, random) => random()],
  ["a tenth of it", () => 0.1],
  [
    "nothing at first, and in the end all of it",
    (atMs) => atMs < SPAN_MS / 2 ? 0 : 1,
  ],
];

Deno.test("tokens reserved for minutes", async (t) => {
  await using world = await startRedisWorld();
  await using fleet = await startFleet({
    redisPort: () => world.redis.port,
    edges: 1,
  });
  for (const seed of seedsOr([1])) {
    for (const [name, shareAt] of SHARES) {
      await t.step(
        `of which requests use ${name}, TEST_SEED=${seed}`,
        async () => {
          const random = seededRandom(seed);
          const principal = await world.addKey({
            limits: { tokensPerMinute: PER_MINUTE },
          });
          const runs = await pressed({
            ...{ world, principal, random, edge: fleet.at(0) },
            plan(atMs) {
              const want = LARGEST / 2 + Math.ceil(random() * LARGEST / 2);
              return {
                want,
                used: Math.floor(want * shareAt(atMs, random)),
                runsMs: SHORTEST_MS + random() * (LONGEST_MS - SHORTEST_MS),
              };
            },
          });
          assertMinutes(runs);
          assertCharged(runs);
        },
      );
    }
  }
});
