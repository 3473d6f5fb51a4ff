import assert from "node:assert/strict";
import {
  LIMITER_EPOCH_MS,
  limiterDay,
  USAGE_KINDS,
  usageDay,
  usageHour,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerLimiterKey,
  ownerUsageKey,
  ownerVideoLeaseKey,
  type Principal,
  usageKey,
  videoLeaseKey,
} from "@gateway/shared/keys/record";
import {
  DONE,
  fingerprint,
  type KeyOptions,
  type LimiterState,
  readState,
  readUnits,
  type RedisWorld,
  startRedisWorld,
  writeState,
} from "../../../tests/support/admission_fixture.ts";
import { until } from "../../../tests/support/wait_for.ts";
import type { Cost } from "./cost.ts";
import type { Admitted, Ask, Limiter } from "./limiter.ts";
import {
  letDayEnd,
  letTimePass,
} from "../../../tests/support/limits/limiter_clock.ts";
import { loneEdge } from "./lone_edge_fixture.ts";

const ASK: Ask = {
  scope: "chat",
  model: "neutral-3.7-plus",
  wantTokens: 100,
};
const DAY_MS = 86_400_000;

/** A test with a server and the only edge there is. */
function test(
  name: string,
  body: (stage: ReturnType<typeof stageOf>) => Promise<void>,
): void {
  Deno.test(name, async () => {
    await using world = await startRedisWorld();
    await using edge = await loneEdge(world);
    await body(stageOf(world, edge));
  });
}

function stageOf(world: RedisWorld, edge: Limiter) {
  const refused = async (key: Principal, ask: Partial<Ask> = {}) => {
    const decision = await edge.admit(key, { ...ASK, ...ask });
    assert.ok(!decision.isAdmitted, "should have been refused");
    return decision;
  };
  return {
    world,
    edge,
    refused,
    async admitted(key: Principal, ask?: Partial<Ask>) {
      const decision = await edge.admit(key, { ...ASK, ...ask });
      assert.ok(decision.isAdmitted, JSON.stringify(decision));
      return decision;
    },
    async limited(key: Principal, ask?: Partial<Ask>) {
      const refusal = await refused(key, ask);
      assert.ok(refusal.reason === "limited", refusal.reason);
      const { of, limit, waitMs } = refusal;
      return { which: `${of}:${limit}`, waitMs };
    },
    async state(key: Principal) {
      return await readState(world, limiterKey(key)) ?? assert.fail();
    },
    write: (key: Principal, state: LimiterState) =>
      writeState(world, limiterKey(key), state),
    /** What is used of the day's budgets of a key and its owner. Null: tokens. */
    ofDay: (key: Principal, unit: UsageUnit | null) =>
      Promise.all(
        metersOf(key).map(async (name) =>
          unit === null
            ? (await readState(world, name))?.dayTokens
            : (await readUnits(world, name, unit))?.count
        ),
      ),
    /**
     * What is counted of these kinds in the hour of the request, for its key and its
     * owner.
     */
    async usage({ principal, atMs }: Admitted, kinds: readonly string[]) {
      const hour = usageHour(atMs);
      const fields = kinds.map((kind) => `${hour}:${kind}:${ASK.model}`);
      const day = usageDay(atMs);
      const ofKey = usageKey(principal, day);
      const ofOwner = ownerUsageKey(principal.ownerId, day);
      const counted: unknown[] = [];
      for (const name of [ofKey, ofOwner]) {
        counted.push(await world.command("HMGET", name, ...fields));
        const ttlS = Number(await world.command("TTL", name));
        assert.ok(ttlS > 39 * 86_400 && ttlS <= 40 * 86_400, `${ttlS} s`);
      }
      return counted;
    },
  };
}

const ofOwner = ({ ownerId }: Principal) => ownerLeaseKey(ownerId);
const metersOf = (key: Principal) => [
  limiterKey(key),
  ownerLimiterKey(key.ownerId),
];

function close(actual: number, expected: number, slack: number): void {
  const isClose = Math.abs(actual - expected) <= slack;
  assert.ok(isClose, `${actual} is not ${expected} ± ${slack}`);
}

test("ASVS 2.3.4, 2.4.1, API4: admit() answers for the state and the rights of a key, and consumes nothing when it refuses", async (t) => {
  const nowMs = Math.round(await t.world.time());
  const model = ASK.model;
  const table: [key: KeyOptions, expected: string, ask?: Partial<Ask>][] = [
    [{}, "admitted"],
    [{ state: "disabled" }, "disabled"],
    [{ ownerState: "disabled" }, "disabled"],
    [{ ownerState: "disabled" }, "disabled", { scope: "models", model: null }],
    [{ ownerState: "enabled" }, "admitted"],
    [{ expiresAtMs: nowMs + 60_000 }, "admitted"],
    [{ expiresAtMs: nowMs }, "expired"],
    [{ expiresAtMs: 1, state: "disabled" }, "expired"],
    [{ scopes: "chat" }, "admitted"],
    [{ scopes: "image,chat" }, "admitted"],
    [{ scopes: "models" }, "scope"],
    [{ scopes: "chats,xchat" }, "scope"],
    [{ scopes: "" }, "scope"],
    [{ models: `a,${model},b` }, "admitted"],
    [{ models: "a,b" }, "model"],
    [{ models: "neutral-3x7-plus" }, "model"],
    [{ models: "a" }, "admitted", { scope: "models", model: null }],
  ];
  for (const [options, expected, ask] of table) {
    const key = await t.world.addKey(options);
    const before = await fingerprint(t.world);
    const decision = await t.edge.admit(key, { ...ASK, ...ask });
    const found = decision.isAdmitted ? "admitted" : decision.reason;
    assert.equal(found, expected, JSON.stringify(options));
    const isChanged = await fingerprint(t.world) !== before;
    assert.equal(isChanged, expected === "admitted");
  }
  const ghost = { keyId: "key_none", ownerId: "own_none" };
  assert.equal((await t.refused(ghost)).reason, "unknown");
});

test("the longest wait of all violated limits is told", async (t) => {
  const key = await t.world.addKey({
    limits: { requestsPerMinute: 60, tokensPerMinute: 600, concurrency: 1 },
    ownerLimits: { requestsPerMinute: 1 },
  });
  await t.admitted(key, { wantTokens: 600 });
  // Tokens: 20 come back in 2 s; concurrency says 1 s; the owner's request a minute.
  const refusal = await t.limited(key, { wantTokens: 20 });
  assert.equal(refusal.which, "owner:requests");
  close(refusal.waitMs, 60_000, 2_000);
});

test("a request is admitted after the wait of its refusal, and a limit is full after its reset", async (t) => {
  /** Each admits six requests at once, then one every ten seconds. */
  const rows = [
    ["requests", { requestsPerMinute: 6 }, 5],
    ["tokens", { tokensPerMinute: 600 }, 500],
  ] as const;
  for (const side of ["limits", "ownerLimits"]) {
    for (const [unit, limits, left] of rows) {
      const principal = await t.world.addKey({ [side]: limits });
      const pass = (ms: number) => letTimePass(t.world.link, { principal, ms });
      for (let used = 0; used < 6; used += 1) await t.admitted(principal);
      const { waitMs } = await t.limited(principal);
      close(waitMs, 10_000, 1_000);
      await pass(waitMs - 2_000);
      await t.limited(principal);
      await pass(2_000);
      const { rates } = await t.admitted(principal);
      await pass(rates[unit]?.resetMs ?? assert.fail());
      const again = await t.admitted(principal);
      assert.equal(again.rates[unit]?.remaining, left, `${side}, ${unit}`);
    }
  }
});

test("the day's budget: a larger request passes while it is whole, and it starts anew with the UTC day", async (t) => {
  const large = await t.world.addKey({ limits: { tokensPerDay: 500 } });
  await t.admitted(large, { wantTokens: 5_000 });
  const { which, waitMs } = await t.limited(large, { wantTokens: 1 });
  assert.equal(which, "key:day");
  const nowMs = await t.world.time();
  close(waitMs, DAY_MS - nowMs % DAY_MS, 2_000);

  const key = await t.world.addKey({ limits: { tokensPerDay: 200 } });
  const request = await t.admitted(key);
  await t.admitted(key);
  assert.equal((await t.limited(key)).which, "key:day");
  const state = await t.state(key);
  assert.equal(state.dayTokens, 200);
  const moveDay = (days: number) =>
    t.write(key, { ...state, day: state.day + days });
  await moveDay(-1);
  await t.admitted(key);
  const today = await t.state(key);
  assert.equal(today.day, limiterDay(await t.world.time()));
  assert.equal(today.dayTokens, 100);
  // A settlement does not touch the budget of another day, nor revive a state.
  await moveDay(1);
  await t.edge.settle(request, { ...DONE, promptTokens: 0 });
  assert.equal((await t.state(key)).dayTokens, 200);
  const late = await t.admitted(await t.world.addKey());
  const name = limiterKey(late.principal);
  await t.world.command("DEL", name);
  await t.edge.settle(late, { ...DONE, promptTokens: 0 });
  assert.equal(await t.world.command("EXISTS", name), 0);
});

const asks = (unit: UsageUnit, count: number): Partial<Ask> => ({
  wantTokens: 0,
  wantUnits: { unit, count },
});

/**
 * What two requests ask for around a limit of 10 a day, and the second one's refusal.
 * The bounds: `tests/limits/invariants_test.ts`.
 */
const UNITS: [
  UsageUnit,
  first: number,
  second: number,
  which: string | null,
][] = [
  // Larger than the whole budget, which is not used yet.
  ["images", 11, 1, "images_per_day"],
  // Of recordings, nothing is known before they have run.
  ["audioSeconds", 0, 0, null],
  ["audioSeconds", 9, 0, null],
  ["audioSeconds", 10, 0, "audio_seconds_per_day"],
  ["videoSeconds", 9, 2, "video_seconds_per_day"],
];
const PER_DAY = {
  imagesPerDay: 10,
  charactersPerDay: 10,
  audioSecondsPerDay: 10,
  videoSecondsPerDay: 10,
};

test("the day's budget of each unit: its bounds, apart from other units and tokens, and anew with the UTC day", async (t) => {
  for (const side of ["limits", "ownerLimits"]) {
    for (const [unit, first, second, which] of UNITS) {
      const limits = { ...PER_DAY, tokensPerDay: 1, tokensPerMinute: 1 };
      const key = await t.world.addKey({ [side]: limits });
      await t.admitted(key, asks(unit, first));
      if (which === null) {
        await t.admitted(key, asks(unit, second));
        continue;
      }
      const refusal = await t.limited(key, asks(unit, second));
      const whose = side === "limits" ? "key" : "owner";
      assert.equal(refusal.which, `${whose}:${which}`);
      const nowMs = await t.world.time();
      close(refusal.waitMs, DAY_MS - nowMs % DAY_MS, 2_000);
      const other = unit === "images" ? "characters" : "images";
      await t.admitted(key, asks(other, 10));
      await t.admitted(key, { wantTokens: 1 });
      await letDayEnd(t.world, key);
      await t.admitted(key, asks(unit, second));
    }
  }
  const unlimited = await t.world.addKey();
  await t.admitted(unlimited, asks("images", 11));
  await t.world.setKey(unlimited, { images_per_day: "11" });
  const { which } = await t.limited(unlimited, asks("images", 0));
  assert.equal(which, "key:images_per_day", "counts what was used before");
});

/**
 * What a request has cost, what is charged for the day, and how many requests, units
 * and errors are counted.
 */
const UNIT_COSTS: Settled[] = [
  [{ kind: "complete", unitsMade: 3 }, 3, ["1", "3", null]],
  [{ kind: "complete", unitsMade: 12 }, 12, ["1", "12", null]],
  [{ kind: "failed", unitsMade: 0 }, 0, ["1", null, "1"]],
  [{ kind: "failed", unitsMade: 2 }, 2, ["1", "2", "1"]],
  // Settled when a video has ended: the reservation stays until then.
  [{ kind: "cancelled", unitsMade: null }, 8, ["1", null, null]],
  // No worker ran it.
  [{ kind: "cancelled" }, 0, ["1", null, null]],
];
/** The same with requests, prompt tokens, completion tokens and errors. */
const TOKEN_COSTS: Settled[] = [
  [tokens("complete", 100, 400), 500, ["1", "100", "400", null]],
  [tokens("failed", 0, 0), 0, ["1", null, null, "1"]],
  [tokens("cancelled", 10, 5), 15, ["1", "10", "5", null]],
];
type Settled = [Partial<Cost>, charged: number, counted: (string | null)[]];

function tokens(
  kind: Cost["kind"],
  promptTokens: number,
  completionTokens: number,
): Cost {
  return { kind, promptTokens, completionTokens };
}

test("a request is settled once: what it used stays charged and is counted, the rest is returned", async (t) => {
  const limits = { ...PER_DAY, tokensPerDay: 10_000, concurrency: 10 };
  for (const unit of [null, "images", "characters", "audioSeconds"] as const) {
    const [reserved, rows, ask, kinds] = unit === null
      ? [100, TOKEN_COSTS, {}, ["req", "in", "out", "err"]] as const
      : [8, UNIT_COSTS, asks(unit, 8), [
        "req",
        USAGE_KINDS[unit],
        "err",
      ]] as const;
    for (const [cost, charged, counted] of rows) {
      const key = await t.world.addKey({ limits, ownerLimits: limits });
      const request = await t.admitted(key, ask);
      assert.deepEqual(await t.ofDay(key, unit), [reserved, reserved]);
      const ended = { ...DONE, promptTokens: 0, completionTokens: 0, ...cost };
      await t.edge.settle(request, ended);
      await t.edge.settle(request, ended);
      assert.deepEqual(await t.ofDay(key, unit), [charged, charged]);
      assert.deepEqual(await t.usage(request, kinds), [counted, counted]);
      for (const leases of [leaseKey(key), ofOwner(key)]) {
        assert.equal(await t.world.command("ZCARD", leases), 0);
      }
    }
  }
});

test("a video holds its slot and its seconds until it has ended, and is counted then, once", async (t) => {
  const limits = { videoJobs: 2, videoSecondsPerDay: 20 };
  for (const side of ["limits", "ownerLimits"]) {
    const whose = side === "limits" ? "key" : "owner";
    const key = await t.world.addKey({ [side]: limits });
    const ask = asks("videoSeconds", 8);
    const begun = await t.admitted(key, ask);
    const failed = await t.admitted(key, ask);
    const { which } = await t.limited(key, ask);
    assert.equal(which, `${whose}:video_seconds_per_day`);
    await t.edge.settle(failed, { ...DONE, kind: "failed", unitsMade: 0 });
    const third = await t.admitted(key, ask);
    for (const request of [begun, third]) {
      await t.edge.settle(request, { ...DONE, unitsMade: null });
    }
    assert.equal(await t.world.command("ZCARD", leaseKey(key)), 0);
    await letTimePass(t.world.link, { principal: key, ms: 60_000 });
    const slots = await t.limited(key, asks("videoSeconds", 4));
    assert.equal(slots.which, `${whose}:video_jobs`);
    assert.equal(await t.edge.endVideo(begun, 5), true);
    assert.equal(await t.edge.endVideo(begun, 5), false);
    assert.equal(await t.edge.endVideo(third, 0), true);
    const [ofKey, ofOwner] = await t.ofDay(key, "videoSeconds");
    assert.equal(side === "limits" ? ofKey : ofOwner, 5);
    const [counted] = await t.usage(begun, ["req", "vis"]);
    assert.deepEqual(counted, ["3", "5"]);
    // One that its engine never ends, or that no edge could register, ends by itself.
    const lost = await t.admitted(key, ask);
    await t.edge.settle(lost, { ...DONE, unitsMade: null });
    const short = asks("videoSeconds", 1);
    await t.admitted(key, short);
    const nowMs = await t.world.time() - LIMITER_EPOCH_MS;
    const names = [
      videoLeaseKey(key),
      ownerVideoLeaseKey(key.ownerId),
    ];
    for (const name of names) {
      const all = ["ZRANGE", name, "0", "-1", "WITHSCORES"];
      const held = await t.world.command(...all);
      assert.ok(Array.isArray(held));
      const [, startsByMs, , endsByMs] = held.map(Number);
      close((startsByMs ?? 0) - nowMs, 15 * 60_000, 60_000);
      close((endsByMs ?? 0) - nowMs, DAY_MS, 60_000);
    }
    assert.equal((await t.limited(key, short)).which, `${whose}:video_jobs`);
    for (const name of names) {
      await t.world.command("ZINCRBY", name, String(-DAY_MS), lost.id);
    }
    await t.admitted(key, short);
    assert.equal(await t.edge.endVideo(lost, 2), true);
  }
});

test("the state of an earlier version still limits, and a broken one is a fault", async (t) => {
  const key = await t.world.addKey({
    limits: { requestsPerMinute: 1, tokensPerDay: 100 },
  });
  await t.admitted(key);
  const cut = async (bytes: number) => {
    const script = "local s = redis.call('HGET', KEYS[1], 's')\n" +
      "redis.call('HSET', KEYS[1], 's', string.sub(s, 1, ARGV[1]))";
    const size = String(bytes);
    await t.world.command("EVAL", script, "1", limiterKey(key), size);
  };
  await cut(6 * 8);
  assert.equal((await t.limited(key)).which, "key:day");
  await t.world.setKey(key, { tpd: "0" });
  assert.equal((await t.limited(key)).which, "key:requests");
  await cut(4 * 8);
  await assert.rejects(t.edge.admit(key, ASK), /too short/);
  await until(() => t.edge.leases.unsettled === 0);
});

test("rates show the tighter of key and owner, this request counted", async (t) => {
  const key = await t.world.addKey({
    limits: { requestsPerMinute: 600, tokensPerMinute: 1_000 },
    ownerLimits: { requestsPerMinute: 60, tokensPerMinute: 100_000 },
  });
  assert.deepEqual((await t.admitted(key)).rates, {
    requests: { limit: 60, remaining: 59, resetMs: 1_000 },
    tokens: { limit: 1_000, remaining: 900, resetMs: 6_000 },
  });
  const free = await t.admitted(await t.world.addKey());
  assert.deepEqual(free.rates, { requests: null, tokens: null });
  const refusal = await t.refused(key, { wantTokens: 1_000 });
  assert.ok(refusal.reason === "limited");
  assert.equal(refusal.rates.requests?.remaining, 59);
  assert.equal(refusal.rates.tokens?.remaining, 900);
});

test("last use is written as Unix ms, and all that admissions write expires by itself", async (t) => {
  const limits = { requestsPerMinute: 100, concurrency: 10 };
  const key = await t.world.addKey({ limits, ownerLimits: limits });
  const name = limiterKey(key);
  const use = async () => {
    await t.edge.settle(await t.admitted(key), DONE);
    const lastUsedMs = Number(await t.world.command("HGET", name, "lu"));
    close(lastUsedMs, await t.world.time(), 1_000);
  };
  await use();
  const state = await t.state(key);
  await t.write(key, { ...state, lastAtMs: state.lastAtMs - 60_000 });
  await t.world.command("HSET", name, "lu", "1");
  await use();
  await t.admitted(key);
  const keys = await t.world.command("KEYS", "*");
  assert.ok(Array.isArray(keys));
  const written = keys.map(String).filter((name) =>
    !/^(key:|own:|store$)/.test(name)
  );
  assert.equal(written.length, 6, written.join());
  for (const name of written) {
    assert.ok(Number(await t.world.command("PTTL", name)) > 3_600_000, name);
  }
});
