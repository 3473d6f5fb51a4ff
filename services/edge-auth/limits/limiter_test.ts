import assert from "node:assert/strict";
import {
  limiterDay,
  usageDay,
  usageHour,
} from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  limiterKey,
  type Limits,
  ownerLeaseKey,
  ownerLimiterKey,
  ownerUsageKey,
  type Principal,
  recordKey,
  usageKey,
} from "@gateway/shared/keys/record";
import {
  type KeyOptions,
  readState,
  type RedisWorld,
  startRedisWorld,
  writeState,
} from "../../../tests/support/admission_fixture.ts";
import { delay, until } from "../../../tests/support/redis_fixture.ts";
import {
  type Admitted,
  type Ask,
  type Cost,
  type Limiter,
  type Refusal,
} from "./limiter.ts";
import { LEASE_MS } from "./admit.lua.ts";
import { loneEdge } from "./lone_edge_fixture.ts";

const ASK: Ask = {
  scope: "chat",
  model: "neutral-3.7-plus",
  wantTokens: 100,
  requestId: "r1",
};
const DAY_MS = 86_400_000;

async function admitted(
  admission: Limiter,
  principal: Principal,
  ask: Partial<Ask> = {},
): Promise<Admitted> {
  const decision = await admission.admit(principal, { ...ASK, ...ask });
  assert.ok(decision.isAdmitted, JSON.stringify(decision));
  return decision;
}

async function refusedBy(
  admission: Limiter,
  principal: Principal,
  ask: Partial<Ask> = {},
): Promise<Refusal> {
  const decision = await admission.admit(principal, { ...ASK, ...ask });
  assert.ok(!decision.isAdmitted, "should have been refused");
  return decision;
}

async function limitedBy(
  admission: Limiter,
  principal: Principal,
  ask: Partial<Ask> = {},
): Promise<{ which: string; waitMs: number }> {
  const refusal = await refusedBy(admission, principal, ask);
  assert.equal(refusal.reason, "limited");
  assert.ok(refusal.reason === "limited");
  return {
    which: `${refusal.of}:${refusal.limit}`,
    waitMs: refusal.waitMs,
  };
}

function close(actual: number, expected: number, slack: number): void {
  assert.ok(
    Math.abs(actual - expected) <= slack,
    `${actual} is not ${expected} ± ${slack}`,
  );
}

/** Everything the admission may have written for a principal. */
async function footprint(world: RedisWorld, p: Principal): Promise<unknown> {
  return {
    key: await readState(world, limiterKey(p)),
    owner: await readState(world, ownerLimiterKey(p.ownerId)),
    keyLeases: await world.command("ZCARD", leaseKey(p)),
    ownerLeases: await world.command("ZCARD", ownerLeaseKey(p.ownerId)),
  };
}

Deno.test("ASVS 2.3.4, 2.4.1, API4: admit() answers for the state and the rights of a key, and consumes nothing when it refuses", async (t) => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const nowMs = await world.time();
  const table: {
    name: string;
    key: KeyOptions;
    ask?: Partial<Ask>;
    expected: string;
  }[] = [
    { name: "enabled", key: {}, expected: "admitted" },
    { name: "disabled", key: { state: "disabled" }, expected: "disabled" },
    {
      name: "expiry ahead",
      key: { expiresAtMs: Math.round(nowMs + 60_000) },
      expected: "admitted",
    },
    {
      name: "expiry passed",
      key: { expiresAtMs: Math.round(nowMs) },
      expected: "expired",
    },
    {
      name: "expired and disabled",
      key: { expiresAtMs: 1, state: "disabled" },
      expected: "expired",
    },
    { name: "only scope", key: { scopes: "chat" }, expected: "admitted" },
    { name: "last scope", key: { scopes: "image,chat" }, expected: "admitted" },
    { name: "other scope", key: { scopes: "models" }, expected: "scope" },
    {
      name: "scope that contains it",
      key: { scopes: "chats,xchat" },
      expected: "scope",
    },
    { name: "no scope", key: { scopes: "" }, expected: "scope" },
    {
      name: "model on the list",
      key: { models: "a,neutral-3.7-plus,b" },
      expected: "admitted",
    },
    { name: "model not on it", key: { models: "a,b" }, expected: "model" },
    {
      name: "model that is a pattern",
      key: { models: "neutral-3x7-plus" },
      expected: "model",
    },
    {
      name: "two models in one name",
      key: { models: "a,b" },
      ask: { model: "a,b" },
      expected: "admitted",
    },
    {
      name: "no model involved",
      key: { models: "a" },
      ask: { scope: "models", model: null },
      expected: "admitted",
    },
  ];
  for (const { name, key, ask, expected } of table) {
    await t.step(`${name}: ${expected}`, async () => {
      const principal = await world.addKey(key);
      const decision = await admission.admit(principal, { ...ASK, ...ask });
      if (decision.isAdmitted) {
        assert.equal(expected, "admitted");
        return;
      }
      assert.equal(decision.reason, expected);
      assert.deepEqual(await footprint(world, principal), {
        key: null,
        owner: null,
        keyLeases: 0,
        ownerLeases: 0,
      });
    });
  }
  await t.step("no record: unknown", async () => {
    const ghost = { keyId: "key_none", ownerId: "own_none" };
    assert.equal((await refusedBy(admission, ghost)).reason, "unknown");
  });
});

Deno.test("ASVS 8.3.2: a change of a key's record holds for the very next request", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey();
  await admitted(admission, key);
  await world.setKey(key, { state: "disabled" });
  assert.equal((await refusedBy(admission, key)).reason, "disabled");
  await world.setKey(key, { state: "enabled", rpm: "1" });
  await admitted(admission, key);
  assert.equal((await limitedBy(admission, key)).which, "key:requests");
  await world.setKey(key, { rpm: "0" });
  await admitted(admission, key);
  await world.command("DEL", recordKey(key));
  assert.equal((await refusedBy(admission, key)).reason, "unknown");
});

Deno.test("a key stops working when its time has come", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const expiresAtMs = Math.round(await world.time()) + 300;
  const key = await world.addKey({ expiresAtMs });
  await admitted(admission, key);
  await until(
    async () => !(await admission.admit(key, ASK)).isAdmitted,
    2_000,
  );
  assert.ok(await world.time() >= expiresAtMs);
  assert.equal((await refusedBy(admission, key)).reason, "expired");
});

/** One limit alone: what exhausts it, and what it then says. */
const EXHAUST: {
  limits: Partial<Limits>;
  passes: number;
  which: string;
}[] = [
  { limits: { requestsPerMinute: 3 }, passes: 3, which: "requests" },
  { limits: { requestsPerMinute: 7 }, passes: 7, which: "requests" },
  { limits: { tokensPerMinute: 300 }, passes: 3, which: "tokens" },
  { limits: { tokensPerMinute: 399 }, passes: 3, which: "tokens" },
  { limits: { tokensPerDay: 300 }, passes: 3, which: "day" },
  { limits: { tokensPerDay: 301 }, passes: 3, which: "day" },
  { limits: { concurrency: 3 }, passes: 3, which: "concurrency" },
];

for (const side of ["key", "owner"] as const) {
  Deno.test(`each limit of the ${side} admits exactly what it says, and a refusal consumes nothing`, async (t) => {
    await using world = await startRedisWorld();
    const admission = loneEdge(world.link);
    const wide = {
      requestsPerMinute: 1_000,
      tokensPerMinute: 1_000_000,
      tokensPerDay: 1_000_000,
      concurrency: 1_000,
    };
    for (const { limits, passes, which } of EXHAUST) {
      await t.step(`${JSON.stringify(limits)}: ${passes}`, async () => {
        const narrow = { ...wide, ...limits };
        const key = await world.addKey({
          limits: side === "key" ? narrow : wide,
          ownerLimits: side === "owner" ? narrow : wide,
        });
        for (let i = 0; i < passes; i++) await admitted(admission, key);
        const before = await footprint(world, key);
        const { which: found } = await limitedBy(admission, key);
        assert.equal(found, `${side}:${which}`);
        assert.deepEqual(await footprint(world, key), before);
      });
    }
  });
}

Deno.test("two keys of one owner share the owner's limits and not each other's", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const ownerLimits = { requestsPerMinute: 4 };
  const a = await world.addKey({
    owner: "own_shared",
    limits: { requestsPerMinute: 3 },
    ownerLimits,
  });
  const b = await world.addKey({ owner: "own_shared" });
  for (let i = 0; i < 3; i++) await admitted(admission, a);
  assert.equal((await limitedBy(admission, a)).which, "key:requests");
  await admitted(admission, b);
  assert.equal((await limitedBy(admission, b)).which, "owner:requests");
});

Deno.test("the longest wait of all violated limits is told", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey({
    limits: { requestsPerMinute: 60, tokensPerMinute: 600, concurrency: 1 },
    ownerLimits: { requestsPerMinute: 1 },
  });
  await admitted(admission, key, { wantTokens: 600 });
  // Tokens: 20 come back in 2 s; concurrency says 1 s; the owner's request a minute.
  const refusal = await limitedBy(admission, key, { wantTokens: 20 });
  assert.equal(refusal.which, "owner:requests");
  close(refusal.waitMs, 60_000, 2_000);
});

Deno.test("waiting as told for a request is enough, and not too long", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey({ limits: { requestsPerMinute: 300 } });
  await Promise.all(
    Array.from({ length: 300 }, () => admitted(admission, key)),
  );
  for (let round = 0; round < 2; round++) {
    const { which, waitMs } = await limitedBy(admission, key);
    assert.equal(which, "key:requests");
    assert.ok(waitMs > 0 && waitMs <= 200, `${waitMs} ms`);
    if (waitMs > 100) {
      await delay(waitMs - 100);
      const early = await limitedBy(admission, key);
      await delay(early.waitMs);
    } else {
      await delay(waitMs);
    }
    await admitted(admission, key);
  }
});

Deno.test("waiting as told for tokens is enough", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey({ limits: { tokensPerMinute: 60_000 } });
  await admitted(admission, key, { wantTokens: 60_000 });
  for (const wantTokens of [100, 200]) {
    const { waitMs } = await limitedBy(admission, key, { wantTokens });
    assert.ok(waitMs <= wantTokens, `${waitMs} ms for ${wantTokens} tokens`);
    await delay(waitMs);
    await admitted(admission, key, { wantTokens });
  }
});

Deno.test("a request larger than the bucket passes when it is full and leaves a debt", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey({ limits: { tokensPerMinute: 1_000 } });
  const large = await admitted(admission, key, { wantTokens: 5_000 });
  assert.equal(large.rates.tokens?.remaining, 0);
  // 4,000 tokens of debt are 240 s; one more token is 60 ms.
  const { which, waitMs } = await limitedBy(admission, key, { wantTokens: 1 });
  assert.equal(which, "key:tokens");
  close(waitMs, 240_060, 1_000);
  // Token limits do not apply to what costs no tokens.
  await admitted(admission, key, { scope: "models", wantTokens: 0 });
  admission.settle(large, {
    promptTokens: 10,
    completionTokens: 90,
    kind: "complete",
  });
  await admission.stop(1_000);
  const after = await admitted(loneEdge(world.link), key, { wantTokens: 100 });
  close(after.rates.tokens?.remaining ?? -1, 800, 20);
});

Deno.test("a request larger than the day's budget passes only while nothing of it is used", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey({ limits: { tokensPerDay: 500 } });
  await admitted(admission, key, { wantTokens: 5_000 });
  const { which, waitMs } = await limitedBy(admission, key, { wantTokens: 1 });
  assert.equal(which, "key:day");
  const nowMs = await world.time();
  close(waitMs, DAY_MS - nowMs % DAY_MS, 2_000);
});

Deno.test("the day's budget starts anew with the UTC day", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey({ limits: { tokensPerDay: 200 } });
  await admitted(admission, key);
  await admitted(admission, key);
  assert.equal((await limitedBy(admission, key)).which, "key:day");
  const state = await readState(world, limiterKey(key));
  assert.ok(state !== null);
  assert.equal(state.dayTokens, 200);
  await writeState(world, limiterKey(key), { ...state, day: state.day - 1 });
  await admitted(admission, key);
  const today = await readState(world, limiterKey(key));
  assert.equal(today?.day, limiterDay(await world.time()));
  assert.equal(today?.dayTokens, 100);
});

Deno.test("rates show the tighter of key and owner, this request counted", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey({
    limits: { requestsPerMinute: 600, tokensPerMinute: 1_000 },
    ownerLimits: { requestsPerMinute: 60, tokensPerMinute: 100_000 },
  });
  const { rates } = await admitted(admission, key);
  assert.deepEqual(rates.requests, {
    limit: 60,
    remaining: 59,
    resetMs: 1_000,
  });
  assert.deepEqual(rates.tokens, {
    limit: 1_000,
    remaining: 900,
    resetMs: 6_000,
  });
  const free = await admitted(admission, await world.addKey());
  assert.deepEqual(free.rates, { requests: null, tokens: null });
  const refusal = await refusedBy(admission, key, { wantTokens: 1_000 });
  assert.ok(refusal.reason === "limited");
  assert.equal(refusal.rates.requests?.remaining, 59);
  assert.equal(refusal.rates.tokens?.remaining, 900);
});

Deno.test("a slot is held by a lease of 30 s and free again when it is settled or has run out", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey({
    limits: { concurrency: 1 },
    ownerLimits: { concurrency: 1 },
  });
  const first = await admitted(admission, key);
  const state = await readState(world, limiterKey(key));
  const ends = Number(await world.command("ZSCORE", leaseKey(key), first.id));
  assert.ok(state !== null);
  close(ends - (state.lastAtMs - 1_735_689_600_000), LEASE_MS, 1);
  assert.equal((await limitedBy(admission, key)).which, "key:concurrency");
  admission.settle(first, {
    promptTokens: 1,
    completionTokens: 1,
    kind: "complete",
  });
  await until(() => admission.unsettled === 0, 1_000);
  const second = await admitted(admission, key);

  // A dead edge: its lease runs out 200 ms from now, at key and owner.
  const soon = String(
    Math.round(await world.time()) - 1_735_689_600_000 + 200,
  );
  await world.command("ZADD", leaseKey(key), soon, second.id);
  await world.command("ZADD", ownerLeaseKey(key.ownerId), soon, second.id);
  assert.equal((await limitedBy(admission, key)).which, "key:concurrency");
  await until(
    async () => (await admission.admit(key, ASK)).isAdmitted,
    2_000,
  );
  assert.ok(
    await world.time() - 1_735_689_600_000 >= Number(soon),
    "not before it has run out",
  );
});

Deno.test("settle() corrects the reservation, counts usage, and does so once", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const limits = {
    tokensPerMinute: 60_000,
    tokensPerDay: 10_000,
    concurrency: 5,
  };
  const key = await world.addKey({ limits, ownerLimits: limits });
  const request = await admitted(admission, key, { wantTokens: 1_000 });
  const reserved = await readState(world, limiterKey(key));
  const outcome = {
    promptTokens: 30,
    completionTokens: 70,
    kind: "complete" as const,
  };
  admission.settle(request, outcome);
  admission.settle(request, outcome);
  assert.equal(await admission.stop(1_000), 0);
  const settled = await readState(world, limiterKey(key));
  const owner = await readState(world, ownerLimiterKey(key.ownerId));
  assert.ok(reserved !== null && settled !== null && owner !== null);
  assert.equal(reserved.dayTokens, 1_000);
  assert.equal(settled.dayTokens, 100);
  assert.equal(owner.dayTokens, 100);
  // 900 tokens at 1 per ms.
  close(reserved.tokensTatMs - settled.tokensTatMs, 900, 0.01);
  assert.equal(await world.command("ZCARD", leaseKey(key)), 0);
  assert.equal(await world.command("ZCARD", ownerLeaseKey(key.ownerId)), 0);
  const hour = usageHour(request.terms.atMs);
  const day = usageDay(request.terms.atMs);
  for (const use of [usageKey(key, day), ownerUsageKey(key.ownerId, day)]) {
    assert.deepEqual(
      await world.command(
        "HMGET",
        use,
        ...["req", "in", "out", "err"].map((kind) => `${hour}:${kind}`),
      ),
      ["1", "30", "70", null],
      use,
    );
    const ttlS = Number(await world.command("TTL", use));
    assert.ok(ttlS > 39 * 86_400 && ttlS <= 40 * 86_400, `${use}: ${ttlS} s`);
  }
});

const OUTCOMES: {
  name: string;
  outcome: Cost;
  dayTokens: number;
  usage: (string | null)[];
}[] = [
  {
    name: "more than was reserved",
    outcome: {
      promptTokens: 100,
      completionTokens: 400,
      kind: "complete",
    },
    dayTokens: 500,
    usage: ["1", "100", "400", null],
  },
  {
    name: "nothing",
    outcome: { promptTokens: 0, completionTokens: 0, kind: "failed" },
    dayTokens: 0,
    usage: ["1", null, null, "1"],
  },
  {
    name: "a client that left",
    outcome: { promptTokens: 10, completionTokens: 5, kind: "cancelled" },
    dayTokens: 15,
    usage: ["1", "10", "5", null],
  },
  {
    name: "unknown usage keeps the reservation",
    outcome: {
      promptTokens: null,
      completionTokens: null,
      kind: "cancelled",
    },
    dayTokens: 100,
    usage: ["1", null, null, null],
  },
  {
    name: "usage that is no count keeps the reservation",
    outcome: { promptTokens: -1, completionTokens: 0.5, kind: "complete" },
    dayTokens: 100,
    usage: ["1", null, null, null],
  },
];

Deno.test("settle() by outcome", async (t) => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  for (const { name, outcome, dayTokens, usage } of OUTCOMES) {
    await t.step(name, async () => {
      const key = await world.addKey({ limits: { tokensPerDay: 10_000 } });
      const request = await admitted(admission, key);
      admission.settle(request, outcome);
      await until(() => admission.unsettled === 0, 1_000);
      const state = await readState(world, limiterKey(key));
      assert.equal(state?.dayTokens, dayTokens);
      const hour = usageHour(request.terms.atMs);
      assert.deepEqual(
        await world.command(
          "HMGET",
          usageKey(key, usageDay(request.terms.atMs)),
          ...["req", "in", "out", "err"].map((kind) => `${hour}:${kind}`),
        ),
        usage,
      );
    });
  }
});

Deno.test("a settlement does not touch the budget of another day, nor revive an expired state", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey({
    limits: { tokensPerDay: 1_000, tokensPerMinute: 1_000 },
  });
  const outcome = {
    promptTokens: 1,
    completionTokens: 1,
    kind: "complete" as const,
  };
  const overnight = await admitted(admission, key);
  const state = await readState(world, limiterKey(key));
  assert.ok(state !== null);
  await writeState(world, limiterKey(key), {
    ...state,
    day: state.day + 1,
    dayTokens: 50,
  });
  admission.settle(overnight, outcome);
  await until(() => admission.unsettled === 0, 1_000);
  assert.equal((await readState(world, limiterKey(key)))?.dayTokens, 50);
  const late = await admitted(admission, key);
  await world.command("DEL", limiterKey(key));
  admission.settle(late, outcome);
  await until(() => admission.unsettled === 0, 1_000);
  assert.equal(await readState(world, limiterKey(key)), null);
});

Deno.test("last use is written with the admission and read as Unix ms", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const key = await world.addKey();
  await admitted(admission, key);
  const lastUsed = await world.command("HGET", limiterKey(key), "lu");
  assert.match(String(lastUsed), /^\d{13}$/);
  close(Number(lastUsed), await world.time(), 1_000);
  const state = await readState(world, limiterKey(key));
  assert.ok(state !== null);
  await writeState(world, limiterKey(key), {
    ...state,
    lastAtMs: state.lastAtMs - 60_000,
  });
  await world.command("HSET", limiterKey(key), "lu", "1");
  await admitted(admission, key);
  close(
    Number(await world.command("HGET", limiterKey(key), "lu")),
    await world.time(),
    1_000,
  );
});

Deno.test("all that admissions write expires by itself", async () => {
  await using world = await startRedisWorld();
  const admission = loneEdge(world.link);
  const limits = { requestsPerMinute: 100, concurrency: 10 };
  const key = await world.addKey({ limits, ownerLimits: limits });
  for (let i = 0; i < 3; i++) {
    const request = await admitted(admission, key);
    if (i === 2) break;
    admission.settle(request, {
      promptTokens: 1,
      completionTokens: 1,
      kind: "complete",
    });
    await until(() => admission.unsettled === 0, 1_000);
  }
  const keys = await world.command("KEYS", "*");
  assert.ok(Array.isArray(keys));
  const written = keys.map(String).filter((name) =>
    !/^(key:|own:|store$)/.test(name)
  );
  assert.equal(written.length, 6, written.join());
  for (const name of written) {
    assert.ok(Number(await world.command("PTTL", name)) > 3_600_000, name);
  }
});
