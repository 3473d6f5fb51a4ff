// Promise: the promises of the limits, one by one, with four edges that share
// nothing but Redis and whose clocks are hours apart.
import assert from "node:assert/strict";
import type { Grant } from "../../services/edge-auth/limits/limiter.ts";
import { LEASE_MS, SETTLE } from "../../services/edge-auth/limits/scripts.ts";
import { settleCall } from "../../services/edge-auth/limits/settlement.ts";
import {
  leaseKey,
  limiterKey,
  ownerLimiterKey,
  recordKey,
} from "@gateway/shared/keys/record";
import {
  DONE,
  fingerprint,
  readUnits,
} from "../support/limits/admission_fixture.ts";
import { type FleetEdge } from "../support/limits/edge_fleet.ts";
import { letTimePass } from "../support/limits/limiter_clock.ts";
import { worstBurst } from "../support/limits/pressure.ts";
import {
  ask,
  askAtOnce,
  atOnce,
  exhaust,
  isAdmitted,
  settle,
  type Stage,
  startStage,
} from "./stage_fixture.ts";

const MINUTE_MS = 60_000;

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
  const decisions = [1, 2, 3].map(() => fleet.at(0).ask(few, 0, eight));
  const admissions = (await Promise.all(decisions)).map((each) =>
    each?.isAdmitted
  );
  assert.deepEqual(admissions, [true, true, false]);
  const grant = await fleet.at(0).ask(key, 0, eight);
  assert.ok(grant?.isAdmitted);
  const cost = { promptTokens: 0, completionTokens: 0, unitsMade: null };
  await settle(stage, grant, { ...cost, kind: "complete" });
  // What is kept of it is plain data.
  const copy = JSON.parse(JSON.stringify(grant));
  await fleet.replace(0);
  const end = ({ admission }: FleetEdge) => admission.endVideo(copy, 4);
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
  const use = (completionTokens: number, admitted: Grant) =>
    settle(stage, admitted, { ...DONE, promptTokens: 0, completionTokens });
  const long: Grant[] = [];
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
    const actual = new Set(refused.map(({ reason }) => reason));
    assert.deepEqual([...actual], reasons);
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
