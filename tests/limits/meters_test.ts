// Promise: the console's meters show what the admission counts.
import assert from "node:assert/strict";
import { BudgetDays } from "@gateway/shared/keys/budget_calendar";
import {
  LAST_USE_DAYS_KEPT,
  USAGE_UNITS,
} from "@gateway/shared/keys/limiter_state";
import {
  limiterKey,
  type Limits,
  type Principal,
  UNLIMITED,
} from "@gateway/shared/keys/record";
import {
  type LoneEdge,
  loneEdge,
} from "../../services/edge-auth/limits/lone_edge_fixture.ts";
import {
  bindingMeter,
  readMeters,
} from "../../services/key-admin/domain/keys/limit_use.ts";
import {
  type RedisWorld,
  startRedisWorld,
} from "../support/limits/admission_fixture.ts";
import { letDayEnd, letTimePass } from "../support/limits/limiter_clock.ts";

const OWNER = { ...UNLIMITED, requestsPerMinute: 100, tokensPerDay: 50_000 };
const KEY: Limits = {
  ...UNLIMITED,
  requestsPerMinute: 60,
  tokensPerMinute: 9_000,
  tokensPerDay: 100_000,
  concurrency: 40,
};
const BURST = 30;
/** One request is admitted although it is larger than the limit per minute. */
const LARGE = 12_000;
/** What refills while the test reads, of a limit. */
const SLACK = 0.05;

const ASK = { scope: "chat", model: null } as const;
const DAYS = new BudgetDays("UTC");

/** A key, its owner, and an edge that admits its requests. */
interface Metered {
  world: RedisWorld;
  edge: LoneEdge;
  principal: Principal;
}

/** Something that happens to a key, and what its meters show afterwards. */
interface Step {
  name: string;
  act: (metered: Metered) => Promise<unknown>;
  /** What each meter shows, in the order of `readMeters()`. */
  used: readonly number[];
  /** The meter that is nearest to its limit. */
  binds?: string;
}

const admit = ({ edge, principal }: Metered, wantTokens: number) =>
  edge.admit(principal, { ...ASK, wantTokens });

const pass = ({ world, principal }: Metered, ms: number) =>
  letTimePass(world.link, { principal, ms });

async function burst(metered: Metered): Promise<void> {
  for (let n = 0; n < BURST; n++) await admit(metered, 100);
}

const STEPS: readonly Step[] = [
  {
    name: "never used",
    act: () => Promise.resolve(),
    used: [0, 0, 0, 0, 0, 0],
  },
  {
    name: "a burst",
    act: burst,
    used: [30, 3_000, 3_000, 30, 30, 3_000],
    binds: "key concurrency",
  },
  {
    name: "15 s later",
    act: (metered) => pass(metered, 15_000),
    used: [15, 750, 3_000, 30, 5, 3_000],
    binds: "key concurrency",
  },
  {
    // As if no time had passed since the last admission.
    name: "the clock of Redis is set back by a minute",
    act: (metered) => pass(metered, -60_000),
    used: [30, 3_000, 3_000, 30, 30, 3_000],
    binds: "key concurrency",
  },
  {
    name: "leases end after 30 s",
    act: (metered) => pass(metered, 100_000),
    used: [0, 0, 3_000, 0, 0, 3_000],
    binds: "owner tokensPerDay",
  },
  {
    name: "debt",
    act: (metered) => admit(metered, LARGE),
    used: [1, LARGE, 15_000, 1, 1, 15_000],
    binds: "key tokensPerMinute",
  },
  {
    name: "the day ends",
    act: ({ world, principal }) => letDayEnd(world.link, principal),
    used: [1, LARGE, 0, 1, 1, 0],
    binds: "key tokensPerMinute",
  },
];

/** The meters show `used`, but for what refills meanwhile. */
async function assertMeters(
  { world, principal: { ownerId, keyId } }: Metered,
  { used, binds }: Step,
): Promise<void> {
  const key = { id: keyId, limits: KEY };
  const owner = { ownerId, limits: OWNER, days: DAYS };
  const { meters, nowMs } = await readMeters(world.link, owner, key);
  assert.equal(meters.length, used.length);
  for (const [at, meter] of meters.entries()) {
    const most = used[at] ?? NaN;
    const least = most - SLACK * meter.limit;
    const isRight = meter.used <= most && meter.used >= least;
    assert.ok(isRight, `${JSON.stringify(meter)}, not ${most}`);
  }
  const first = bindingMeter(meters);
  assert.equal(first && `${first.whose} ${first.name}`, binds);
  assert.ok(Math.abs(nowMs - await world.time()) < 10_000);
}

Deno.test("meters of a key and its owner are what the admission counts", async (t) => {
  await using world = await startRedisWorld();
  await using edge = await loneEdge(world);
  const principal = await world.addKey({ limits: KEY, ownerLimits: OWNER });
  const metered = { world, edge, principal };
  for (const step of STEPS) {
    await t.step(step.name, async () => {
      await step.act(metered);
      await assertMeters(metered, step);
    });
  }
  await t.step(
    "what is made instead of tokens",
    () => assertUnits(world, edge),
  );
  const leftMs = Number(await world.command("PTTL", limiterKey(principal)));
  const keptMs = LAST_USE_DAYS_KEPT * 86_400_000;
  assert.ok(leftMs > keptMs - 60_000, "the last use stays known");
});

/** Uses one unit of everything that is not tokens. */
async function assertUnits(world: RedisWorld, edge: LoneEdge): Promise<void> {
  const limits = {
    ...UNLIMITED,
    imagesPerDay: 9,
    charactersPerDay: 9,
    audioSecondsPerDay: 9,
    videoSecondsPerDay: 9,
    videoJobs: 9,
  };
  const principal = await world.addKey({ limits, ownerLimits: limits });
  const { ownerId, keyId: id } = principal;
  for (const [at, unit] of USAGE_UNITS.entries()) {
    const wantUnits = { unit, count: at + 1 };
    await edge.admit(principal, { ...ASK, wantTokens: 0, wantUnits });
  }
  const used = async () => {
    const key = { id, limits };
    const { meters } = await readMeters(
      world.link,
      { ownerId, limits, days: DAYS },
      key,
    );
    return meters.map(({ used }) => used);
  };
  assert.deepEqual(await used(), [1, 2, 3, 4, 1, 1, 2, 3, 4, 1]);
  await letDayEnd(world.link, principal);
  assert.deepEqual(await used(), [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]);
}
