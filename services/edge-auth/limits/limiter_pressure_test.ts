// Promise: limits hold exactly over any number of edges. In no window is more
// admitted than the limit and its refill, and under pressure never less than 99 %
// of it. Four edges, hours apart by their clocks, share one Redis; edges are
// killed with their leases open, Redis is killed and loses its scripts. Minutes
// pass: between rounds of real pressure the limit's time is moved on.

import assert from "node:assert/strict";
import type { Limits } from "@gateway/shared/keys/record";
import {
  type RedisWorld,
  startRedisWorld,
} from "../../../tests/support/limits/admission_fixture.ts";
import {
  type Fleet,
  startFleet,
} from "../../../tests/support/limits/edge_fleet.ts";
import {
  letDayEnd,
  letTimePass,
} from "../../../tests/support/limits/limiter_clock.ts";
import * as pressure from "../../../tests/support/limits/pressure.ts";
import { amountOf } from "../../../tests/support/amount.ts";
import { seededRandom, seedsOr } from "../../../tests/support/seeded_random.ts";
import { LEASE_MS } from "./scripts.ts";

const SIDES = ["key", "owner"] as const;
type Side = typeof SIDES[number];
const MINUTE_MS = 60_000;
/** Under pressure, at least this part of what is allowed is given. */
const USED_SHARE = 0.99;
/** The settings of a deployment: an acknowledged write survives `kill -9`. */
const DURABLE = ["appendonly yes", "appendfsync always"];
/**
 * Less than a minute: a limit that is full again gives nothing more. Three make one.
 */
const LULL_MIN_MS = 25_000;
const LULL_MAX_MS = 50_000;
/** Admissions are known to the millisecond. */
const CLOCK_MS = 1;
/** A hundredth of an interval is forgiven, and sums of fractions are not exact. */
const FORGIVEN = 0.02;

interface Stage {
  world: RedisWorld;
  fleet: Fleet;
  side: Side;
  seed: number;
}

/** What is tried with each seed: by the soak on both sides, else on this one. */
function casesOf(side: Side): { side: Side; seed: number }[] {
  const seeds = seedsOr([]);
  return seeds.length === 0
    ? [{ side, seed: 1 }]
    : seeds.flatMap((seed) => SIDES.map((side) => ({ side, seed })));
}

/** Tries a property; which side has which limit is shown by `limiter_test.ts`. */
function underPressure(
  name: string,
  usualSide: Side,
  property: (stage: Stage) => Promise<void>,
) {
  Deno.test(name, async (t) => {
    await using world = await startRedisWorld({ config: DURABLE });
    await using fleet = await startFleet(() => world.redis.port);
    for (const { side, seed } of casesOf(usualSide)) {
      const stage = { world, fleet, side, seed };
      await t.step(`of the ${side}, TEST_SEED=${seed}`, () => property(stage));
    }
  });
}

interface Load {
  limits: Partial<Limits>;
  /** 0: requests that cost no tokens. */
  largestTokens: number;
  /** What a request uses of what it reserved; absent: it is never settled. */
  usedShare?: (random: () => number) => number;
  isByDay?: true;
}

async function pressed(stage: Stage, load: Load) {
  const { world, fleet, side, seed } = stage;
  const { limits, largestTokens, usedShare } = load;
  const random = seededRandom(seed);
  const principal = await world.addKey(
    side === "key" ? { limits } : { ownerLimits: limits },
  );
  const lull = () => LULL_MIN_MS + random() * (LULL_MAX_MS - LULL_MIN_MS);
  return await pressure.press({ world, fleet, principal, random }, {
    wantTokens: () => Math.ceil(random() * largestTokens),
    usedTokens: (want) =>
      usedShare === undefined ? null : Math.ceil(want * usedShare(random)),
    letPass: (passedMs) =>
      load.isByDay === true
        ? letDayEnd(world.link, principal)
        : letTimePass(world.link, {
          principal,
          ms: Math.max(lull() - passedMs, 0),
        }),
  });
}

/**
 * Requests that a full limit admits. Less than this, one request more or less would
 * matter to {@link USED_SHARE}.
 */
const PER_MINUTE = amountOf({ usual: 200, full: 600 });
const TOKENS = 60_000;
/** A percent of the limit at most: one more or less does not matter. */
const LARGEST = TOKENS / amountOf({ usual: 100, full: 200 });

/** A limit per minute, and how requests use it. */
interface Minute {
  name: string;
  perMinute: number;
  load: Load;
  /** The most that one request may cost. */
  largest: number;
  /** How far charges may be from the final ones while requests run. */
  unsure?: number;
  /** More is used than was reserved: a minute may see more than its bound. */
  isPaidLater?: true;
}

const ofTokens = {
  limits: { tokensPerMinute: TOKENS },
  largestTokens: LARGEST,
};
const OF_TOKENS = { perMinute: TOKENS, load: ofTokens, largest: LARGEST };
const MINUTES: Minute[] = [
  {
    name: "requests per minute hold in every window",
    perMinute: PER_MINUTE,
    largest: 1,
    load: { limits: { requestsPerMinute: PER_MINUTE }, largestTokens: 0 },
  },
  { name: "tokens per minute hold in every window", ...OF_TOKENS },
  {
    name:
      "tokens reserved high and settled low: sum of settled tokens in any 60 s <= 2 x limit + largest request, and all are given out",
    ...OF_TOKENS,
    load: { ...ofTokens, usedShare: (random) => 0.3 + 0.7 * random() },
    unsure: pressure.CLIENTS * LARGEST,
  },
  {
    name:
      "tokens reserved low and settled high are paid back by later requests",
    ...OF_TOKENS,
    load: { ...ofTokens, usedShare: (random) => 3 * random() },
    largest: 3 * LARGEST,
    unsure: 3 * pressure.CLIENTS * LARGEST,
    isPaidLater: true,
  },
];

for (const [at, minute] of MINUTES.entries()) {
  const { name, perMinute, load, largest, ...rest } = minute;
  underPressure(name, SIDES[at % 2] ?? "key", async (stage) => {
    const run = await pressed(stage, load);
    const passed = run.admitted.toSorted((a, b) => a.atMs - b.atMs).map((
      { atMs, usedTokens },
    ) => ({ atMs, cost: load.largestTokens === 0 ? 1 : usedTokens }));
    const spanMs = (passed.at(-1)?.atMs ?? 0) - (passed[0]?.atMs ?? 0);
    // Every window of the run, wherever it begins, and the run as a whole.
    const perMs = perMinute / MINUTE_MS;
    const burst = pressure.worstBurst(passed, perMinute);
    const slack = (rest.unsure ?? 0) + CLOCK_MS * perMs + FORGIVEN;
    assert.ok(burst <= perMinute + slack, `a burst of ${burst}`);
    const due = perMinute + spanMs * perMs;
    assert.ok(spanMs > MINUTE_MS, "more than one minute");
    const total = passed.reduce((sum, { cost }) => sum + cost, 0);
    const totalMost = total + run.unsure * largest;
    assert.ok(totalMost >= USED_SHARE * due, `${totalMost} of ${due} due`);
    if (rest.isPaidLater) return;
    // However requests fall, no 60 seconds see more than this.
    const most = pressure.worstWindow(passed, MINUTE_MS);
    assert.ok(most <= 2 * perMinute + largest, `${most} in a minute`);
  });
}

underPressure(
  "tokens per day are given out once a day",
  "key",
  async (stage) => {
    const largestTokens = TOKENS / 100;
    const run = await pressed(stage, {
      limits: { tokensPerDay: TOKENS },
      largestTokens,
      usedShare: (random) => 0.3 + 0.7 * random(),
      isByDay: true,
    });
    const days = Map.groupBy(run.admitted, ({ round }) => round);
    assert.equal(days.size, pressure.DISTURBANCES.length);
    for (const day of days.values()) {
      const used = day.reduce((sum, { usedTokens }) => sum + usedTokens, 0);
      const most = used + (run.unsure + 1) * largestTokens;
      assert.ok(used <= TOKENS, `${used} of ${TOKENS}`);
      assert.ok(most >= USED_SHARE * TOKENS, `${used} of ${TOKENS}`);
    }
  },
);

underPressure(
  "slots: never too many, never a needless refusal",
  "owner",
  async (stage) => {
    const { world, fleet, side, seed } = stage;
    const limit = 8;
    const limits = { concurrency: limit };
    const principal = await world.addKey(
      side === "key" ? { limits } : { ownerLimits: limits },
    );
    const random = seededRandom(seed);
    const pressing = { world, fleet, principal, random };
    for (const disturbance of pressure.DISTURBANCES) {
      const outcome = await pressure.pressSlots(pressing, disturbance, limit);
      assert.equal(outcome.most, limit, disturbance.name);
      assert.equal(outcome.wrongRefusals, 0, disturbance.name);
      await world.link.ready(MINUTE_MS);
      await letTimePass(world.link, { principal, ms: LEASE_MS + 1 });
    }
  },
);
