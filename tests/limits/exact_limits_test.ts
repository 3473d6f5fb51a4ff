// Promise: each limit admits exactly what it says, of a key and of an owner, and what
// Redis does not answer is not admitted, and costs nothing.
import assert from "node:assert/strict";
import { type Units } from "../../services/edge-auth/limits/cost.ts";
import {
  leaseKey,
  limiterKey,
  type Limits,
  ownerLimiterKey,
  UNLIMITED,
} from "@gateway/shared/keys/record";
import {
  DONE,
  fingerprint,
  readState,
} from "../support/limits/admission_fixture.ts";
import { until } from "../support/wait_for.ts";
import {
  askAtOnce,
  atOnce,
  isAdmitted,
  settle,
  startStage,
} from "./stage_fixture.ts";

const MINUTE_MS = 60_000;
const RECOVERY_MS = 2_000;

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
  ...UNLIMITED,
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
        assert.partialDeepStrictEqual(refusal, { limit, holder: side });
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
    const slot = await isAdmitted(stage, key);
    await world.command("CONFIG", "SET", "maxmemory", "1");
    for (const place of places) {
      assert.equal(await fleet.at(place).ask(key), null);
    }
    await settle(stage, slot, DONE);
    await world.command("CONFIG", "SET", "maxmemory", "0");
    assert.equal(
      (await askAtOnce(stage, key, { count: 8 })).admitted.length,
      2,
    );
  });
});
