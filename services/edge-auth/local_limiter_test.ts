import assert from "node:assert/strict";
import type { Limits } from "@gateway/shared/keys/record";
import { UNLIMITED } from "@gateway/shared/keys/record";
import type { KeyPolicy } from "./admit_reply.ts";
import { createLocalLimiter } from "./local_limiter.ts";

const KEY = { keyId: "key_a", ownerId: "own_a" };
const ASK = { scope: "chat", model: "m", tokens: 10, atMs: 1_000 };

function policy(
  limits: Partial<Limits> = {},
  rest: Partial<KeyPolicy> = {},
): KeyPolicy {
  return {
    keyLimits: { ...UNLIMITED, ...limits },
    ownerLimits: UNLIMITED,
    expiresAtMs: 0,
    scopes: ["chat"],
    models: [],
    ...rest,
  };
}

function limiter(edges = 1, entriesMax = 100) {
  const clock = { nowMs: 0 };
  const local = createLocalLimiter({
    now: () => clock.nowMs,
    staleMs: 60_000,
    edgeCount: () => edges,
    entriesMax,
  });
  return { clock, local };
}

/** How many of `asks` requests pass at once. */
function passes(
  local: ReturnType<typeof createLocalLimiter>,
  asks: number,
  tokens = 10,
): number {
  let count = 0;
  for (let i = 0; i < asks; i++) {
    const decision = local.decide(KEY, { ...ASK, tokens });
    if (decision?.status === "ok") count += 1;
  }
  return count;
}

const SHARES: {
  limits: Partial<Limits>;
  edges: number;
  passes: number;
}[] = [
  { limits: {}, edges: 4, passes: 100 },
  { limits: { requestsPerMinute: 40 }, edges: 1, passes: 20 },
  { limits: { requestsPerMinute: 40 }, edges: 4, passes: 5 },
  { limits: { requestsPerMinute: 1 }, edges: 4, passes: 1 },
  { limits: { tokensPerMinute: 800 }, edges: 2, passes: 20 },
  { limits: { tokensPerDay: 800 }, edges: 2, passes: 20 },
  { limits: { concurrency: 16 }, edges: 2, passes: 4 },
];

for (const { limits, edges, passes: expected } of SHARES) {
  Deno.test(`local share of ${JSON.stringify(limits)} among ${edges}: ${expected}`, () => {
    for (const side of ["key", "owner"] as const) {
      const { local } = limiter(edges);
      local.remember(
        KEY,
        side === "key"
          ? policy(limits)
          : policy({}, { ownerLimits: { ...UNLIMITED, ...limits } }),
      );
      assert.equal(passes(local, 100), expected, side);
    }
  });
}

Deno.test("only keys seen recently and not refused since go on", () => {
  const { clock, local } = limiter();
  assert.equal(local.decide(KEY, ASK), null);
  local.remember(KEY, policy());
  assert.equal(local.decide(KEY, ASK)?.status, "ok");
  clock.nowMs = 60_000;
  assert.equal(local.decide(KEY, ASK)?.status, "ok");
  clock.nowMs = 60_001;
  assert.equal(local.decide(KEY, ASK), null);
  local.remember(KEY, policy());
  local.forget(KEY);
  assert.equal(local.decide(KEY, ASK), null);
});

Deno.test("rights and expiry hold in an outage", () => {
  const { local } = limiter();
  local.remember(KEY, policy({}, { scopes: ["models"] }));
  assert.equal(local.decide(KEY, ASK)?.status, "scope");
  local.remember(KEY, policy({}, { models: ["other"] }));
  assert.equal(local.decide(KEY, ASK)?.status, "model");
  assert.equal(local.decide(KEY, { ...ASK, model: null })?.status, "ok");
  local.remember(KEY, policy({}, { expiresAtMs: 1_000 }));
  assert.equal(local.decide(KEY, ASK)?.status, "expired");
});

Deno.test("waiting as told is enough, and slots come back", () => {
  const { clock, local } = limiter();
  local.remember(KEY, policy({ requestsPerMinute: 40, concurrency: 100 }));
  passes(local, 20);
  const refusal = local.decide(KEY, ASK);
  assert.ok(refusal?.status === "limited");
  assert.equal(refusal.limit, "requests");
  assert.equal(refusal.waitMs, 3_000);
  clock.nowMs = 3_000;
  assert.equal(local.decide(KEY, ASK)?.status, "ok");

  local.remember(KEY, policy({ concurrency: 2 }));
  const other = { keyId: "key_b", ownerId: "own_b" };
  local.remember(other, policy({ concurrency: 2 }));
  assert.equal(local.decide(other, ASK)?.status, "ok");
  assert.equal(local.decide(other, ASK)?.status, "limited");
  local.release(other);
  assert.equal(local.decide(other, ASK)?.status, "ok");
});

Deno.test("rates are of this edge's share, of key and owner the tighter", () => {
  const { local } = limiter();
  const limits = { requestsPerMinute: 40, tokensPerMinute: 4_000 };
  const ownerLimits = { ...UNLIMITED, requestsPerMinute: 12 };
  local.remember(KEY, policy(limits, { ownerLimits }));
  const ask = { ...ASK, tokens: 500 };
  const rates = (at: number) => {
    const decision = local.decide(KEY, ask);
    assert.ok(decision?.status === "ok" || decision?.status === "limited");
    assert.equal(decision.status, at < 4 ? "ok" : "limited");
    return decision.rates;
  };
  // 20 and 6 requests, 2,000 tokens.
  assert.deepEqual(rates(0), {
    requests: { limit: 6, remaining: 5, resetMs: 10_000 },
    tokens: { limit: 2_000, remaining: 1_500, resetMs: 15_000 },
  });
  for (const at of [1, 2]) rates(at);
  const full = {
    requests: { limit: 6, remaining: 2, resetMs: 40_000 },
    tokens: { limit: 2_000, remaining: 0, resetMs: 60_000 },
  };
  assert.deepEqual(rates(3), full);
  assert.deepEqual(rates(4), full, "a refusal uses up nothing");
});

Deno.test("no limit, no rate", () => {
  const { local } = limiter();
  local.remember(KEY, policy());
  const decision = local.decide(KEY, ASK);
  assert.ok(decision?.status === "ok");
  assert.deepEqual(decision.rates, { requests: null, tokens: null });
});

Deno.test("memory is bounded", () => {
  const { local } = limiter(1, 2);
  for (const keyId of ["key_a", "key_b", "key_c"]) {
    local.remember({ keyId, ownerId: "own_a" }, policy());
  }
  assert.equal(local.decide(KEY, ASK), null);
  assert.ok(local.decide({ keyId: "key_c", ownerId: "own_a" }, ASK));
});
