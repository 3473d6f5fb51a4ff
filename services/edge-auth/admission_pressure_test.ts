// Promise: limits hold exactly over any number of edges. Never more is admitted
// than the limit, and under pressure never less than 99 % of it. Four edges, each
// with its own link and its own idea of the time, share one Redis.

import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/clock";
import type { Limits, Principal } from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/log";
import {
  type RedisWorld,
  startRedisWorld,
} from "../../tests/support/admission_fixture.ts";
import { delay } from "../../tests/support/redis_fixture.ts";
import {
  type Admission,
  ADMISSION_SCRIPTS,
  type Admitted,
  createAdmission,
  type Refused,
} from "./admission.ts";

const EDGES = 4;
const MINUTE_MS = 60_000;
const PRESS_MS = 300;

/** Edges whose clocks are hours apart. */
function edges(world: RedisWorld): Promise<Admission[]> {
  return Promise.all(
    Array.from({ length: EDGES }, async (_, index) =>
      createAdmission({
        redis: await world.open(),
        now: () => monotonicNow() + (index - 2) * 3_600_000,
        random: Math.random,
        log: silentLog,
        staleMs: 0,
        edgeCount: () => EDGES,
        // A busy machine must not decide this test.
        deadlineMs: 1_000,
      })),
  );
}

function ask(
  admission: Admission,
  principal: Principal,
  wantTokens = 0,
): Promise<Admitted | Refused> {
  return admission.admit(principal, {
    scope: "chat",
    model: "m",
    wantTokens,
    requestId: "r",
  });
}

const isAdmitted = (decision: Admitted | Refused): decision is Admitted =>
  decision.isAdmitted;

/** Server time between the first and the last admission. */
function spanMs(admitted: readonly Admitted[]): number {
  const times = admitted.map((each) => each.terms.atMs);
  return Math.max(...times) - Math.min(...times);
}

/**
 * Asks without pause on all edges for `forMs`, and on a slow machine until the
 * limit has refused somebody, three at a time on each.
 */
async function press(
  admissions: readonly Admission[],
  forMs: number,
  request: (admission: Admission) => Promise<Admitted | Refused>,
): Promise<Admitted[]> {
  const endsAtMs = monotonicNow() + forMs;
  const admitted: Admitted[] = [];
  let isRefusing = false;
  const loop = async (admission: Admission) => {
    while (monotonicNow() < endsAtMs || !isRefusing) {
      const decision = await request(admission);
      if (decision.isAdmitted) admitted.push(decision);
      else isRefusing = true;
    }
  };
  await Promise.all(
    admissions.flatMap((each) => [loop(each), loop(each), loop(each)]),
  );
  return admitted;
}

Deno.test("2,000 simultaneous requests on 4 edges against 600 per minute: exactly 600, and one more per 100 ms", async () => {
  await using world = await startRedisWorld({ scripts: ADMISSION_SCRIPTS });
  const admissions = await edges(world);
  const key = await world.addKey({ limits: { requestsPerMinute: 600 } });
  const decisions = await Promise.all(
    Array.from(
      { length: 2_000 },
      (_, index) => ask(admissions[index % EDGES] ?? assert.fail(), key),
    ),
  );
  const admitted = decisions.filter(isAdmitted);
  const refilled = Math.floor((spanMs(admitted) + 1) / 100);
  assert.ok(admitted.length >= 600, `${admitted.length}`);
  assert.ok(admitted.length <= 600 + refilled, `${admitted.length}`);
});

for (const side of ["key", "owner"] as const) {
  const place = (limits: Partial<Limits>) =>
    side === "key" ? { limits } : { ownerLimits: limits };

  Deno.test(`${side}: requests per minute under pressure`, async () => {
    await using world = await startRedisWorld({ scripts: ADMISSION_SCRIPTS });
    const admissions = await edges(world);
    const limit = 1_200;
    const key = await world.addKey(place({ requestsPerMinute: limit }));
    const admitted = await press(
      admissions,
      PRESS_MS,
      (edge) => ask(edge, key),
    );
    const due = limit + spanMs(admitted) * limit / MINUTE_MS;
    assert.ok(admitted.length <= due + 1, `${admitted.length} of ${due}`);
    assert.ok(admitted.length >= 0.99 * due, `${admitted.length} of ${due}`);
  });

  Deno.test(`${side}: tokens per minute under pressure`, async () => {
    await using world = await startRedisWorld({ scripts: ADMISSION_SCRIPTS });
    const admissions = await edges(world);
    const [limit, cost] = [120_000, 100];
    const key = await world.addKey(place({ tokensPerMinute: limit }));
    const admitted = await press(
      admissions,
      PRESS_MS,
      (edge) => ask(edge, key, cost),
    );
    const tokens = admitted.length * cost;
    const due = limit + spanMs(admitted) * limit / MINUTE_MS;
    assert.ok(tokens <= due + cost, `${tokens} of ${due}`);
    assert.ok(tokens >= 0.99 * due, `${tokens} of ${due}`);
  });

  Deno.test(`${side}: tokens per day admit exactly the budget`, async () => {
    await using world = await startRedisWorld({ scripts: ADMISSION_SCRIPTS });
    const admissions = await edges(world);
    const key = await world.addKey(place({ tokensPerDay: 20_000 }));
    const admitted = await press(
      admissions,
      PRESS_MS,
      (edge) => ask(edge, key, 100),
    );
    assert.equal(admitted.length, 200);
  });

  Deno.test(`${side}: concurrency is never exceeded, and used up`, async () => {
    await using world = await startRedisWorld({ scripts: ADMISSION_SCRIPTS });
    const admissions = await edges(world);
    const limit = 10;
    const key = await world.addKey(place({ concurrency: limit }));
    let running = 0;
    let most = 0;
    const request = async (admission: Admission) => {
      const decision = await ask(admission, key);
      if (!decision.isAdmitted) return decision;
      running += 1;
      most = Math.max(most, running);
      await delay(5);
      // Counted down before it is settled: the slot is free only after that.
      running -= 1;
      admission.settle(decision, {
        promptTokens: 1,
        completionTokens: 1,
        outcome: "completed",
      });
      return decision;
    };
    const admitted = await press(
      [...admissions, ...admissions],
      PRESS_MS,
      request,
    );
    assert.equal(most, limit);
    assert.ok(admitted.length > 100, `${admitted.length}`);
    for (const admission of admissions) {
      assert.equal(await admission.stop(1_000), 0);
    }
  });
}

Deno.test("tokens that are reserved high and settled low are all given out again", async () => {
  // The sum of what was really used stays below limit + refill + one request,
  // and refunds keep the limit usable although every estimate is ten times too high.
  await using world = await startRedisWorld({ scripts: ADMISSION_SCRIPTS });
  const admissions = await edges(world);
  const limit = 60_000;
  const key = await world.addKey({ limits: { tokensPerMinute: limit } });
  let used = 0;
  const admitted = await press(admissions, PRESS_MS, async (admission) => {
    const decision = await ask(admission, key, 1_000);
    if (!decision.isAdmitted) return decision;
    used += 100;
    admission.settle(decision, {
      promptTokens: 50,
      completionTokens: 50,
      outcome: "completed",
    });
    return decision;
  });
  const due = limit + spanMs(admitted) * limit / MINUTE_MS;
  assert.ok(used <= due + 1_000, `${used} of ${due}`);
  assert.ok(used >= 0.9 * due, `${used} of ${due}`);
  for (const admission of admissions) {
    assert.equal(await admission.stop(1_000), 0);
  }
});
