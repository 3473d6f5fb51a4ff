// Promise: whatever becomes of requests (they end, fail, leave, are settled twice, die
// with their edge, are cut off from Redis or cost more than they held), what keys,
// accounts and budgets were charged is the same to the billionth, nothing stays held,
// and no budget is passed by more than one request that found it free, and what others
// cost beyond what they could hold.
import assert from "node:assert/strict";
import { BudgetDays } from "@gateway/shared/keys/budget_calendar";
import {
  type Principal,
  recordKey,
  spendKey,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import type {
  Grant,
  Limiter,
} from "../../services/edge-auth/limits/limiter.ts";
import {
  edgeLink,
  loneEdge,
} from "../../services/edge-auth/limits/lone_edge_fixture.ts";
import { LostRequests } from "../../services/edge-auth/limits/lost_requests.ts";
import {
  LEASE_MS,
  RAISE_HOLD,
} from "../../services/edge-auth/limits/scripts.ts";
import {
  checkLedger,
  type LedgerReport,
} from "../../services/key-admin/domain/ledger/ledger.ts";
import { amountOf } from "../support/amount.ts";
import {
  type RedisWorld,
  startRedisWorld,
  usageCounted,
} from "../support/limits/admission_fixture.ts";
import { letTimePass } from "../support/limits/limiter_clock.ts";
import { seededRandom, seedsOr } from "../support/seeded_random.ts";

const EDGES = 3;
/** What is tested is no deadline: a busy machine may need this long for a call. */
const PATIENT_MS = 10_000;
const REQUESTS = amountOf({ usual: 600, full: 10_000 });
const AT_A_TIME = 25;
const NANOS_MAX = 1_000_000_000;
/** What a tenth of the requests may cost at most: less than they want. */
const BUDGET = REQUESTS / 10 * NANOS_MAX;
const KEYS = 3;
/** By which an answer grows. */
const STEPS = 3;

/** What becomes of a request that was admitted, with how often it does. */
const FATES = [
  { fate: "ends", share: 0.45 },
  { fate: "ends twice", share: 0.6 },
  { fate: "grows", share: 0.7 },
  { fate: "grows and dies", share: 0.74 },
  { fate: "never ran", share: 0.8 },
  { fate: "dies", share: 0.92 },
  { fate: "is cut off", share: 1 },
] as const;
type Fate = typeof FATES[number]["fate"];

/** A run of requests, and what the ledger must show of it. */
class Run {
  /** What each key was charged, by our own account. */
  readonly charged = new Map<string, number>();
  /** Requests that their edge settles only after they were taken for lost. */
  readonly late: { grant: Grant; edge: Limiter; nanos: number }[] = [];
  readonly fates = new Map<Fate | "refused", number>();
  /** What requests cost beyond what they held, in all. */
  overshoot = 0;

  constructor(
    readonly edges: readonly Limiter[],
    readonly keys: readonly Principal[],
    readonly tools: {
      random: () => number;
      link: Pick<RedisLink, "evalScript">;
    },
  ) {}

  async ask(): Promise<void> {
    const { edges, keys, tools: { random } } = this;
    const edge = edges[Math.floor(random() * EDGES)] ?? assert.fail();
    const key = keys[Math.floor(random() * KEYS)] ?? assert.fail();
    const wantNanos = 1 + Math.floor(random() * NANOS_MAX);
    const cost = Math.floor(random() * (wantNanos + 1));
    const draw = random();
    const { fate } = FATES.find(({ share }) => share >= draw) ?? assert.fail();
    const grant = await edge.admit(key, {
      scope: "chat",
      model: "m",
      endpoint: "chat",
      wantTokens: 0,
      wantNanos,
      rate: { table: "t", prices: { request: wantNanos } },
    });
    if (!grant.isAdmitted) return this.#count("refused");
    this.#count(fate);
    await this.#end(edge, grant, { fate, cost });
  }

  async #end(
    edge: Limiter,
    grant: Grant,
    { fate, cost }: { fate: Fate; cost: number },
  ): Promise<void> {
    // Nobody renews the lease any more.
    if (/dies|cut off/.test(fate)) edge.leases.release(grant.id);
    if (fate === "dies") return;
    if (fate === "grows" || fate === "grows and dies") {
      return await this.#grow(edge, grant, { dies: fate !== "grows" });
    }
    if (fate === "is cut off") {
      this.late.push({ grant, edge, nanos: cost });
      return;
    }
    const nanos = fate === "never ran" ? 0 : cost;
    this.add(grant.principal, nanos);
    const ended = { promptTokens: 0, completionTokens: 0, nanos };
    const settle = () => edge.settle(grant, { ...ended, kind: "complete" });
    await settle();
    if (fate === "ends twice") await settle();
  }

  /** An answer becomes longer, in steps that are asked for twice or get lost. */
  async #grow(
    edge: Limiter,
    grant: Grant,
    { dies }: { dies: boolean },
  ): Promise<void> {
    const { random, link } = this.tools;
    const { principal: { ownerId, keyId } } = grant;
    const keys = [`lim:{${ownerId}}:${keyId}`, `lim:{${ownerId}}`];
    const { heldNanos = assert.fail() } = grant;
    let [held, nanos] = [heldNanos, heldNanos];
    for (let step = 0; step < STEPS; step += 1) {
      nanos += Math.floor(random() * NANOS_MAX / STEPS);
      if (random() < 0.2) continue;
      const input = { keys, args: [grant.id, String(nanos)] };
      edge.leases.doubtHold(grant.id);
      const replies = await Promise.all(
        [1, 2].map(() => link.evalScript(RAISE_HOLD, input)),
      );
      held = Math.max(held, ...replies.map(Number));
      assert.ok(held <= nanos);
    }
    if (dies) return;
    this.overshoot += nanos - held;
    this.add(grant.principal, nanos);
    const ended = { promptTokens: 0, completionTokens: 0, nanos };
    await edge.settle(grant, { ...ended, kind: "complete" });
  }

  add({ keyId }: Principal, nanos: number): void {
    this.charged.set(keyId, (this.charged.get(keyId) ?? 0) + nanos);
  }

  #count(fate: Fate | "refused"): void {
    this.fates.set(fate, (this.fates.get(fate) ?? 0) + 1);
  }
}

/** The amounts of a budget. */
async function budgetOf(world: RedisWorld, name: string) {
  const amounts = await world.command("HMGET", name, "s", "h");
  assert.ok(Array.isArray(amounts));
  const [spent = 0, held = 0] = amounts.map((each) => Number(each ?? 0));
  return { spent, held };
}

async function ledgerOf(world: RedisWorld, ownerId: string) {
  return await checkLedger({
    redis: world.link,
    audit: { read: () => Promise.resolve({ rows: [], next: null }) },
    days: new BudgetDays("UTC"),
    nowMs: await world.time(),
  }, [{ ownerId }]);
}

/** Keys of one owner with budgets, in the list of the owner. */
async function makeKeys(world: RedisWorld): Promise<Principal[]> {
  const keys: Principal[] = [];
  for (let n = 0; n < KEYS; n += 1) {
    const key = await world.addKey({
      owner: "own_00000000000000000000",
      limits: { budgetTotal: BUDGET, budgetMonth: BUDGET },
      ownerLimits: { budgetTotal: 2 * BUDGET },
    });
    await world.command("ZADD", `keys:{${key.ownerId}}`, `${n}`, key.keyId);
    assert.equal(await world.command("EXISTS", recordKey(key)), 1);
    keys.push(key);
  }
  return keys;
}

/** Lets all leases expire, which another edge charges; then late edges settle. */
async function chargeLost(world: RedisWorld, run: Run): Promise<void> {
  const { keys } = run;
  const lost = new LostRequests({
    redis: await edgeLink(world),
    now: monotonicNow,
    expectedMs: () => Date.now(),
    log: silentLog,
  });
  for (const key of keys) lost.note(key);
  await lost.writeNotes();
  for (const principal of keys) {
    await letTimePass(world.link, { principal, ms: LEASE_MS + 1 });
  }
  const charges = await Promise.all([lost.charge(), lost.charge()]);
  assert.equal(
    charges[0] + charges[1],
    (run.fates.get("dies") ?? 0) + (run.fates.get("grows and dies") ?? 0) +
      run.late.length,
  );
  for (const { grant, edge, nanos } of run.late) {
    const ended = { promptTokens: 0, completionTokens: 0, nanos };
    const cost = { ...ended, kind: "complete" } as const;
    await edge.leases.settle({ reservation: grant, cost });
    run.add(grant.principal, nanos);
  }
}

/** Usage, budgets and our own account of each key agree, and no budget is passed. */
async function assertBooks(
  world: RedisWorld,
  { keys, charged: own, overshoot }: Run,
  report: LedgerReport,
): Promise<void> {
  const { ownerId } = keys[0] ?? assert.fail();
  let whole = 0;
  for (const key of keys) {
    const usage = await usageCounted(world, key);
    const { spent, held } = await budgetOf(world, spendKey(key, "total"));
    assert.equal(held, 0);
    assert.equal(spent, usage.cost);
    // What died was charged what it held, and the rest what it cost.
    const charged = own.get(key.keyId) ?? 0;
    assert.equal(usage.cost, charged + usage.lostCost);
    assert.ok(spent <= BUDGET + NANOS_MAX + overshoot, `${spent} spent`);
    whole += spent;
  }
  const owner = await budgetOf(world, `spend:{${ownerId}}:total`);
  assert.deepEqual(owner, { spent: whole, held: 0 });
  assert.equal(report.cost, BigInt(whole));
}

for (const seed of seedsOr([35])) {
  Deno.test(`${REQUESTS} requests of all fates leave a ledger that adds up (TEST_SEED=${seed})`, async () => {
    await using world = await startRedisWorld({ deadlineMs: PATIENT_MS });
    await using stack = new AsyncDisposableStack();
    const edges: Limiter[] = [];
    for (let n = 0; n < EDGES; n += 1) {
      edges.push(stack.use(await loneEdge(world)));
    }
    const keys = await makeKeys(world);
    const { ownerId } = keys[0] ?? assert.fail();
    const run = new Run(edges, keys, {
      random: seededRandom(seed),
      link: world.link,
    });
    for (let sent = 0; sent < REQUESTS; sent += AT_A_TIME) {
      await Promise.all(Array.from({ length: AT_A_TIME }, () => run.ask()));
      const running = await ledgerOf(world, ownerId);
      assert.deepEqual(running.differences, [], "while requests run");
    }
    await chargeLost(world, run);
    const report = await ledgerOf(world, ownerId);
    assert.deepEqual(report.differences, []);
    await assertBooks(world, run, report);
    for (const { fate } of FATES) {
      assert.ok((run.fates.get(fate) ?? 0) > 10, fate);
    }
    assert.ok((run.fates.get("refused") ?? 0) > 10, "refused");
  });
}
