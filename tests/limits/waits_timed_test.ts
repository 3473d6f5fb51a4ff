/**
 * Guarantee: the waits in responses are right. A caller that waits exactly as long as
 * one of the headers says is admitted at the first try, on any edge, next to twenty
 * others that use up limits of their own.
 */
import assert from "node:assert/strict";
import {
  limiterKey,
  type Limits,
  ownerLimiterKey,
} from "@gateway/shared/keys/record";
import {
  type LimiterState,
  readState,
  writeState,
} from "../support/admission_fixture.ts";
import {
  type GatedCluster,
  startGatedCluster,
  statusOf,
  type TestKey,
} from "../support/gated_cluster.ts";
import { letDayEnd } from "../support/limits/limiter_clock.ts";
import { text, usageOf } from "../support/scripted_backend.ts";
import { sleep } from "../support/wait_for.ts";

const EDGES = 4;
const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
/** Two a second. */
const REQUESTS = 120;
/** One per millisecond. */
const TOKENS = 60_000;
const DEBT_MS = 400;
const RESET_MS = 600;
/** Four bytes of prompt and 16 tokens of answer, which are reserved and used. */
const PING_TOKENS = 21;
const CLOCK_MS = 2;
const HOLD = {
  stream: true,
  messages: [{ role: "user", content: "hold" }],
};

/** How a caller reads the wait. */
const WAYS = {
  "retry-after-ms": (headers: Headers) => numberIn(headers, "retry-after-ms"),
  "retry-after": (headers: Headers) => numberIn(headers, "retry-after") * 1_000,
} as const;

interface Case {
  limit: string;
  limits: Partial<Limits>;
  /** What the limit looks like when all of it, and a little more, is used. */
  used: (nowMs: number) => Partial<LimiterState>;
  waitMs: number;
}

const CASES: readonly Case[] = [
  {
    limit: "requests per minute",
    limits: { requestsPerMinute: REQUESTS },
    used: (nowMs) => ({ requestsTatMs: nowMs + MINUTE_MS }),
    waitMs: MINUTE_MS / REQUESTS,
  },
  {
    limit: "tokens per minute",
    limits: { tokensPerMinute: TOKENS },
    used: (nowMs) => ({ tokensTatMs: nowMs + MINUTE_MS + DEBT_MS }),
    waitMs: DEBT_MS + PING_TOKENS,
  },
  {
    limit: "the slower of both",
    limits: { requestsPerMinute: REQUESTS, tokensPerMinute: TOKENS },
    used: (nowMs) => ({
      requestsTatMs: nowMs + MINUTE_MS,
      tokensTatMs: nowMs + MINUTE_MS + DEBT_MS * 2,
    }),
    waitMs: DEBT_MS * 2 + PING_TOKENS,
  },
];

function numberIn(headers: Headers, name: string): number {
  const value = Number(headers.get(name));
  assert.ok(Number.isSafeInteger(value) && value >= 1, `${name}: ${value}`);
  return value;
}

/** `1m30s`, `1.5s`, `12ms` as milliseconds. */
function goDurationMs(headers: Headers, name: string): number {
  const value = headers.get(name) ?? "";
  const found = /^(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:(\d+)ms)?$/.exec(value);
  assert.ok(found !== null && value !== "", `${name}: ${value}`);
  const [minutes = 0, seconds = 0, ms = 0] = found.slice(1).map((part) =>
    Number(part ?? 0)
  );
  return minutes * MINUTE_MS + seconds * 1_000 + ms;
}

type Side = "key" | "owner";

function addKey(
  { addKey: add }: GatedCluster,
  side: Side,
  limits: Partial<Limits>,
): Promise<TestKey> {
  return add(side === "key" ? { limits } : { ownerLimits: limits });
}

/** Has one request of the key admitted, then puts its limits where they are wanted. */
async function useUp(
  cluster: GatedCluster,
  key: TestKey,
  { side, used }: { side: Side; used: Case["used"] },
): Promise<void> {
  const { world } = cluster;
  assert.equal(await statusOf(cluster.ask(key)), 200);
  await cluster.settled(key);
  const name = side === "key" ? limiterKey(key) : ownerLimiterKey(key.ownerId);
  const state = await readState(world, name);
  assert.ok(state !== null);
  await writeState(world, name, { ...state, ...used(await world.time()) });
}

/** Asks one edge, waits as told, asks the next. */
async function assertWaitIsRight(
  cluster: GatedCluster,
  options: { row: Case; side: Side; way: keyof typeof WAYS; edge: number },
): Promise<void> {
  const { row, side, way, edge } = options;
  const key = await addKey(cluster, side, row.limits);
  await useUp(cluster, key, { side, used: row.used });
  const refused = await cluster.ask(key, { edge });
  await refused.body?.cancel();
  assert.equal(refused.status, 429);
  const waitMs = WAYS[way](refused.headers);
  const mostMs = Math.ceil(row.waitMs + CLOCK_MS);
  const unit = way === "retry-after" ? 1_000 : 1;
  assert.ok(waitMs <= Math.ceil(mostMs / unit) * unit, `${waitMs} ms`);
  await sleep(waitMs);
  const next = await statusOf(cluster.ask(key, { edge: (edge + 1) % EDGES }));
  assert.equal(next, 200, `${row.limit} of the ${side}, ${way}: ${waitMs} ms`);
}

/** After the time to reset, all of the limit is there again. */
async function assertResetIsRight(
  cluster: GatedCluster,
  { side, unit, edge }: {
    side: Side;
    unit: "requests" | "tokens";
    edge: number;
  },
): Promise<void> {
  const limits = unit === "requests"
    ? { requestsPerMinute: REQUESTS }
    : { tokensPerMinute: TOKENS };
  const key = await addKey(cluster, side, limits);
  const left = async (at: number) => {
    const response = await cluster.ask(key, { edge: at % EDGES });
    assert.equal(response.status, 200);
    await response.body?.cancel();
    const { headers } = response;
    return {
      remaining: Number(headers.get(`x-ratelimit-remaining-${unit}`)),
      resetMs: goDurationMs(headers, `x-ratelimit-reset-${unit}`),
    };
  };
  await useUp(cluster, key, {
    side,
    used: (nowMs) => ({
      requestsTatMs: nowMs + RESET_MS,
      tokensTatMs: nowMs + RESET_MS,
    }),
  });
  const first = await left(edge);
  assert.ok(first.resetMs > RESET_MS - MINUTE_MS / REQUESTS);
  assert.ok(first.resetMs <= RESET_MS + MINUTE_MS / REQUESTS);
  await sleep(first.resetMs);
  const cost = unit === "requests" ? 1 : PING_TOKENS;
  const whole = unit === "requests" ? REQUESTS : TOKENS;
  const again = await left(edge + 1);
  assert.equal(again.remaining, whole - cost, `${unit} of the ${side}`);
}

/** A slot that comes free within the second that a caller is told to wait. */
async function assertSlotIsRight(
  cluster: GatedCluster,
  side: Side,
): Promise<void> {
  const key = await addKey(cluster, side, { concurrency: 1 });
  const held = await cluster.ask(key, { body: HOLD });
  assert.equal(held.status, 200);
  const refused = await cluster.ask(key, { edge: 1 });
  await refused.body?.cancel();
  assert.equal(refused.status, 429);
  await held.body?.cancel();
  await sleep(WAYS["retry-after-ms"](refused.headers));
  assert.equal(await statusOf(cluster.ask(key, { edge: 2 })), 200);
}

/** Nobody can sit out a day: the wait reaches midnight, and then the budget is new. */
async function assertDayIsRight(
  cluster: GatedCluster,
  side: Side,
): Promise<void> {
  const { world } = cluster;
  const key = await addKey(cluster, side, { tokensPerDay: 1_000 });
  await useUp(cluster, key, { side, used: () => ({ dayTokens: 1_000 }) });
  const refused = await cluster.ask(key, { edge: 1 });
  const nowMs = await world.time();
  await refused.body?.cancel();
  assert.equal(refused.headers.get("x-should-retry"), "false");
  const leftMs = DAY_MS - nowMs % DAY_MS;
  for (const read of Object.values(WAYS)) {
    const waitMs = read(refused.headers);
    assert.ok(waitMs >= leftMs - CLOCK_MS, `${waitMs} of ${leftMs}`);
    assert.ok(waitMs <= leftMs + 1_000 + CLOCK_MS, `${waitMs} of ${leftMs}`);
  }
  assert.equal(await statusOf(cluster.ask(key, { edge: 2 })), 429);
  await letDayEnd(world.link, key);
  assert.equal(await statusOf(cluster.ask(key, { edge: 3 })), 200);
}

/** Clients with keys of their own, half of them far beyond their limits. */
function startOthers(cluster: GatedCluster, count: number): AsyncDisposable {
  let isOver = false;
  const statuses = new Set<number>();
  const client = async (index: number) => {
    const limits = { requestsPerMinute: index % 2 === 0 ? 10 : 6_000 };
    const key = await cluster.addKey({ limits });
    while (!isOver) {
      const edge = index % EDGES;
      statuses.add(await statusOf(cluster.ask(key, { edge })));
      await sleep(20);
    }
  };
  const running = Promise.all(
    Array.from({ length: count }, (_, index) => client(index)),
  );
  return {
    async [Symbol.asyncDispose]() {
      isOver = true;
      await running;
      assert.deepEqual(statuses, new Set([200, 429]));
    },
  };
}

Deno.test("a caller that waits as long as the header says is admitted, next to twenty others", async () => {
  await using cluster = await startGatedCluster({
    edges: EDGES,
    onCall(call) {
      call.say(text("pong"));
      const isHeld = call.request.messages[0]?.content === "hold";
      if (!isHeld) call.end(usageOf(PING_TOKENS - 1));
    },
  });
  await using _others = startOthers(cluster, 20);
  let edge = 0;
  // Each has a key of its own, so that the waits can be sat out together.
  const checks = (["key", "owner"] as const).flatMap((side) => [
    ...CASES.flatMap((row) =>
      (["retry-after-ms", "retry-after"] as const).map((way) =>
        assertWaitIsRight(cluster, { row, side, way, edge: edge++ % EDGES })
      )
    ),
    ...(["requests", "tokens"] as const).map((unit) =>
      assertResetIsRight(cluster, { side, unit, edge: edge++ % EDGES })
    ),
    assertSlotIsRight(cluster, side),
    assertDayIsRight(cluster, side),
  ]);
  await Promise.all(checks);
});
