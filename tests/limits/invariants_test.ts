// Promise: the promises of the limits, one by one, with four edges that share
// nothing but Redis and whose clocks are hours apart.
import assert from "node:assert/strict";
import type { Admitted } from "../../services/edge-auth/limits/limiter.ts";
import { LEASE_MS, SETTLE } from "../../services/edge-auth/limits/scripts.ts";
import {
  type Cost,
  settleCall,
  type Units,
} from "../../services/edge-auth/limits/cost.ts";
import {
  leaseKey,
  limiterKey,
  type Limits,
  ownerLimiterKey,
  type Principal,
  recordKey,
} from "@gateway/shared/keys/record";
import {
  DONE,
  fingerprint,
  readState,
  readUnits,
  startRedisWorld,
} from "../support/admission_fixture.ts";
import { type FleetEdge, startFleet } from "../support/limits/edge_fleet.ts";
import { letTimePass } from "../support/limits/limiter_clock.ts";
import { worstBurst } from "../support/limits/pressure.ts";
import { owning } from "../support/process.ts";
import { until } from "../support/wait_for.ts";

const MINUTE_MS = 60_000;
const RECOVERY_MS = 2_000;
/** Every one of 2,000 shall have an answer, however busy the machine is. */
const PATIENT_MS = 10_000;

type Stage = Awaited<ReturnType<typeof startStage>>;

async function startStage(deadlineMs = PATIENT_MS) {
  await using started = new AsyncDisposableStack();
  const config = ["appendonly yes"];
  const world = started.use(await startRedisWorld({ config }));
  const redisPort = () => world.redis.port;
  const fleet = started.use(await startFleet(redisPort, deadlineMs));
  return owning(started, { world, fleet });
}

/** Calls `count` times at once, on all edges in turn. */
function atOnce<T>(
  { fleet: { at, size } }: Stage,
  count: number,
  call: (edge: FleetEdge) => Promise<T>,
): Promise<T[]> {
  const places = Array.from({ length: count }, (_, n) => n % size);
  return Promise.all(places.map((place) => call(at(place))));
}

async function askAtOnce(
  stage: Stage,
  principal: Principal,
  { count, wantTokens = 0, wantUnits = null }: {
    count: number;
    /** What each of them wants. */
    wantTokens?: number;
    wantUnits?: Units | null;
  },
) {
  const ask = (edge: FleetEdge) => edge.ask(principal, wantTokens, wantUnits);
  const decisions = await atOnce(stage, count, ask);
  const admitted = decisions.filter((each) => each?.isAdmitted === true);
  const refused = decisions.filter((each) => each?.isAdmitted === false);
  assert.equal(admitted.length + refused.length, count, "all have an answer");
  return { admitted, refused };
}

async function ask({ fleet }: Stage, principal: Principal, wantTokens = 0) {
  return await fleet.at(0).ask(principal, wantTokens) ?? assert.fail("unsure");
}

async function isAdmitted(...asked: Parameters<typeof ask>) {
  const decision = await ask(...asked);
  assert.ok(decision.isAdmitted);
  return decision;
}

/** Uses up what a principal may do, and returns the last refusal. */
async function exhaust(...asked: Parameters<typeof ask>) {
  for (;;) {
    const decision = await ask(...asked);
    if (decision.isAdmitted) continue;
    assert.ok(decision.reason === "limited");
    return decision;
  }
}

async function settle({ fleet }: Stage, admitted: Admitted, cost: Cost) {
  fleet.at(0).settle(admitted, cost);
  await until(() => fleet.isSettled);
}

Deno.test("ASVS 2.3.4, 2.4.1, API4: of 2,000 requests at once, 600 a minute admit 600 and what refills", async () => {
  await using stage = await startStage();
  const { world } = stage;
  const perMinute = 600;
  const key = await world.addKey({ limits: { requestsPerMinute: perMinute } });
  const startedAtMs = await world.time();
  const { admitted } = await askAtOnce(stage, key, { count: 2_000 });
  const tookMs = await world.time() - startedAtMs;
  assert.ok(admitted.length >= perMinute, `${admitted.length} admitted`);
  const refilled = Math.floor(tookMs * perMinute / MINUTE_MS) + 1;
  const extra = admitted.length - perMinute;
  assert.ok(extra <= refilled, `${extra} in ${tookMs} ms`);
  const passed = admitted.flatMap((each) =>
    each?.isAdmitted ? { atMs: each.atMs, cost: 1 } : []
  );
  const worst = worstBurst(passed.sort((a, b) => a.atMs - b.atMs), perMinute);
  assert.ok(worst <= perMinute + 1, `a burst of ${worst}`);
  assert.equal(await world.command("ZCARD", leaseKey(key)), admitted.length);
});

async function freesLeakedLease(stage: Stage): Promise<void> {
  const { world, fleet } = stage;
  const key = await world.addKey({ limits: { concurrency: 3 } });
  const takenAtMs = await world.time();
  for (let count = 0; count < 3; count += 1) {
    assert.ok((await fleet.at(2).ask(key))?.isAdmitted);
  }
  await fleet.replace(2);
  assert.equal((await exhaust(stage, key)).limit, "concurrency");
  await letTimePass(world.link, {
    principal: key,
    ms: takenAtMs + LEASE_MS - await world.time() - 500,
  });
  assert.equal((await exhaust(stage, key)).limit, "concurrency");
  await letTimePass(world.link, { principal: key, ms: 600 });
  assert.equal(
    (await askAtOnce(stage, key, { count: 20 })).admitted.length,
    3,
  );
}

async function settlesOnce(stage: Stage): Promise<void> {
  const { world, fleet } = stage;
  const limits = {
    tokensPerMinute: 10_000,
    tokensPerDay: 10_000,
    concurrency: 5,
  };
  const key = await world.addKey({ limits, ownerLimits: limits });
  const admitted = await isAdmitted(stage, key, 1_000);
  await settle(stage, admitted, DONE);
  const before = await fingerprint(world);
  fleet.at(0).settle(admitted, DONE);
  // As a repeat of an edge that had heard no answer.
  const again = { reservation: admitted, cost: DONE, mayHaveRun: true };
  const { keys, args } = settleCall([again]);
  assert.deepEqual(await world.link.evalScript(SETTLE, { keys, args }), [0]);
  assert.equal(await fingerprint(world), before);
}

async function endsVideoOnce(stage: Stage): Promise<void> {
  const { world, fleet } = stage;
  const limits = { videoJobs: 1, videoSecondsPerDay: 10 };
  const key = await world.addKey({ limits, ownerLimits: limits });
  const eight = { unit: "videoSeconds", count: 8 } as const;
  const few = await world.addKey({ limits: { videoJobs: 2 } });
  const asked = [1, 2, 3].map(() => fleet.at(0).ask(few, 0, eight));
  const said = (await Promise.all(asked)).map((each) => each?.isAdmitted);
  assert.deepEqual(said, [true, true, false]);
  const begun = await fleet.at(0).ask(key, 0, eight);
  assert.ok(begun?.isAdmitted);
  const cost = { promptTokens: 0, completionTokens: 0, unitsMade: null };
  await settle(stage, begun, { ...cost, kind: "complete" });
  // What is kept of it is plain data.
  const kept = JSON.parse(JSON.stringify(begun));
  await fleet.replace(0);
  const end = ({ admission }: FleetEdge) => admission.endVideo(kept, 4);
  const ends = await atOnce(stage, 20, end);
  assert.equal(ends.filter(Boolean).length, 1);
  for (const name of [limiterKey(key), ownerLimiterKey(key.ownerId)]) {
    const seconds = await readUnits(world, name, "videoSeconds");
    assert.equal(seconds?.count, 4);
  }
  const six = { ...eight, count: 6 };
  const { admitted } = await askAtOnce(stage, key, {
    count: 20,
    wantUnits: six,
  });
  assert.equal(admitted.length, 1);
}

async function keepsDebt(stage: Stage): Promise<void> {
  const { world } = stage;
  const key = await world.addKey({ limits: { tokensPerMinute: 1_000 } });
  await isAdmitted(stage, key, 5_000);
  const { waitMs } = await exhaust(stage, key, 10);
  // 4,000 tokens of debt and the 10 asked for, at 60 ms each.
  assert.ok(Math.abs(waitMs - 240_600) < 1_000, `${waitMs} ms`);
  await letTimePass(world.link, { principal: key, ms: waitMs });
  const { admitted } = await askAtOnce(stage, key, {
    count: 40,
    wantTokens: 10,
  });
  assert.ok(admitted.length >= 1 && admitted.length <= 2);
}

async function refillsOnce(stage: Stage): Promise<void> {
  const { world } = stage;
  const [perMinute, minutes] = [1_000, 5];
  const key = await world.addKey({ limits: { tokensPerMinute: perMinute } });
  const use = (completionTokens: number, admitted: Admitted) =>
    settle(stage, admitted, { ...DONE, promptTokens: 0, completionTokens });
  const long: Admitted[] = [];
  for (let minute = 0; minute < minutes; minute += 1) {
    long.push(await isAdmitted(stage, key, perMinute));
    await letTimePass(world.link, { principal: key, ms: MINUTE_MS });
  }
  let used = 0;
  for (const each of long) {
    await use(0, each);
    for (;;) {
      const next = await ask(stage, key, perMinute / 10);
      if (!next.isAdmitted) break;
      await use(next.reservedTokens, next);
      used += next.reservedTokens;
    }
  }
  assert.ok(used <= perMinute * (1 + minutes), `${used} tokens`);
  assert.ok(used >= perMinute * minutes, `${used} tokens`);
}

async function disablesAtOnce(stage: Stage): Promise<void> {
  const { world } = stage;
  const key = await world.addKey();
  const decides = async (admits: number, ...reasons: string[]) => {
    const { admitted, refused } = await askAtOnce(stage, key, { count: 40 });
    assert.equal(admitted.length, admits);
    const given = new Set(refused.map(({ reason }) => reason));
    assert.deepEqual([...given], reasons);
  };
  await decides(40);
  await world.setKey(key, { state: "disabled" });
  await decides(0, "disabled");
  await world.setKey(key, { state: "enabled" });
  await decides(40);
  await world.command("DEL", recordKey(key));
  await decides(0, "unknown");
}

Deno.test("invariants of the limits", async (t) => {
  await using stage = await startStage();

  await t.step(
    "a leaked lease is free again when it expires",
    () => freesLeakedLease(stage),
  );

  await t.step("a second settlement does nothing", () => settlesOnce(stage));

  await t.step(
    "a video is ended by any edge, and by one",
    () => endsVideoOnce(stage),
  );

  await t.step(
    "a request beyond the bucket leaves a debt",
    () => keepsDebt(stage),
  );

  await t.step(
    "what is given back bursts once, as refilled",
    () => refillsOnce(stage),
  );

  await t.step(
    "ASVS 8.3.2: disable and delete hold at once",
    () => disablesAtOnce(stage),
  );
});

const images = { unit: "images", count: 100 } as const;
const characters = { unit: "characters", count: 100 } as const;
const video = { unit: "videoSeconds", count: 100 } as const;
/**
 * Whose limit refuses, and how many requests of 100 tokens or other units it lets pass.
 */
const EXHAUST: readonly {
  limits: Partial<Limits>;
  passes: number;
  limit: string;
  units?: Units;
}[] = [
  { limits: { requestsPerMinute: 3 }, passes: 3, limit: "requests" },
  { limits: { requestsPerMinute: 7 }, passes: 7, limit: "requests" },
  { limits: { tokensPerMinute: 300 }, passes: 3, limit: "tokens" },
  { limits: { tokensPerMinute: 399 }, passes: 3, limit: "tokens" },
  { limits: { tokensPerDay: 300 }, passes: 3, limit: "day" },
  { limits: { tokensPerDay: 301 }, passes: 3, limit: "day" },
  { limits: { concurrency: 3 }, passes: 3, limit: "concurrency" },
  {
    limits: { imagesPerDay: 299 },
    passes: 2,
    limit: "images_per_day",
    units: images,
  },
  {
    limits: { imagesPerDay: 300 },
    passes: 3,
    limit: "images_per_day",
    units: images,
  },
  {
    limits: { charactersPerDay: 301 },
    passes: 3,
    limit: "characters_per_day",
    units: characters,
  },
  {
    limits: { videoSecondsPerDay: 300 },
    passes: 3,
    limit: "video_seconds_per_day",
    units: video,
  },
  { limits: { videoJobs: 3 }, passes: 3, limit: "video_jobs", units: video },
  // What a recording costs is known when it has been transcribed.
  {
    limits: { audioSecondsPerDay: 1, concurrency: 3 },
    passes: 3,
    limit: "concurrency",
    units: { unit: "audioSeconds", count: 0 },
  },
];
const WIDE: Limits = {
  requestsPerMinute: 1_000,
  concurrency: 1_000,
  videoJobs: 1_000,
  tokensPerMinute: 1_000_000,
  tokensPerDay: 1_000_000,
  imagesPerDay: 1_000_000,
  charactersPerDay: 1_000_000,
  audioSecondsPerDay: 1_000_000,
  videoSecondsPerDay: 1_000_000,
};

Deno.test("each limit admits exactly what it says, and a refusal for it consumes nothing of the others", async () => {
  await using stage = await startStage();
  const { world } = stage;
  for (const side of ["key", "owner"] as const) {
    for (const { limits, passes, limit, units = null } of EXHAUST) {
      const tight = { ...WIDE, ...limits };
      const key = await world.addKey({
        limits: side === "key" ? tight : WIDE,
        ownerLimits: side === "owner" ? tight : WIDE,
      });
      const wants = {
        wantTokens: units === null ? 100 : 0,
        wantUnits: units,
      };
      const { admitted } = await askAtOnce(stage, key, {
        count: passes,
        ...wants,
      });
      assert.equal(admitted.length, passes);
      const before = await fingerprint(world);
      const { refused } = await askAtOnce(stage, key, {
        count: 100,
        ...wants,
      });
      for (const refusal of refused) {
        assert.partialDeepStrictEqual(refusal, { limit, of: side });
      }
      assert.equal(refused.length, 100);
      assert.equal(await fingerprint(world), before);
    }
  }
});

Deno.test("limits while Redis fails", async (t) => {
  await using stage = await startStage(1_000);
  const { world, fleet } = stage;
  const places = Array.from({ length: fleet.size }, (_, place) => place);

  await t.step("frozen: no answer, and nothing is kept", async () => {
    const limits = { ...WIDE, concurrency: 40 };
    const key = await world.addKey({ limits, ownerLimits: limits });
    await world.redis.freeze();
    const answers = await atOnce(stage, 20, (edge) => edge.ask(key, 100));
    assert.deepEqual(new Set(answers), new Set([null]));
    world.redis.thaw();
    for (const place of places) {
      await until(() => fleet.at(place).ask(key), RECOVERY_MS);
    }
    await until(() => fleet.isSettled);
    for (const name of [limiterKey(key), ownerLimiterKey(key.ownerId)]) {
      const state = await readState(world, name) ?? assert.fail();
      assert.equal(state.dayTokens, 0);
      assert.ok(state.tokensTatMs <= state.lastAtMs + 1);
      // Those that had an answer afterwards.
      const aheadMs = fleet.size * MINUTE_MS / WIDE.requestsPerMinute;
      assert.ok(state.requestsTatMs <= state.lastAtMs + aheadMs + 1);
    }
    assert.equal(await world.command("ZCARD", leaseKey(key)), fleet.size);
  });

  await t.step("out of memory: no answer, no slot is lost", async () => {
    const key = await world.addKey({ limits: { concurrency: 2 } });
    const held = await isAdmitted(stage, key);
    await world.command("CONFIG", "SET", "maxmemory", "1");
    for (const place of places) {
      assert.equal(await fleet.at(place).ask(key), null);
    }
    await settle(stage, held, DONE);
    await world.command("CONFIG", "SET", "maxmemory", "0");
    assert.equal(
      (await askAtOnce(stage, key, { count: 8 })).admitted.length,
      2,
    );
  });
});
