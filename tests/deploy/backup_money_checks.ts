// Promise: a copy of Redis brings projects, budgets, end users and the ledger back to
// the billionth: what was spent stays spent, what ran is charged once, and nobody has
// more of a budget or a role than before.
import assert from "node:assert/strict";
import { BudgetDays } from "@gateway/shared/keys/budget_calendar";
import { UNLIMITED } from "@gateway/shared/keys/record";
import { randomBytes } from "@gateway/shared/process/ids";
import type { Ask, Grant } from "../../services/edge-auth/limits/limiter.ts";
import { loneEdge } from "../../services/edge-auth/limits/lone_edge_fixture.ts";
import { SETTLE } from "../../services/edge-auth/limits/scripts.ts";
import { settleCall } from "../../services/edge-auth/limits/settlement.ts";
import { checkLedger } from "../../services/key-admin/domain/ledger/ledger.ts";
import { createStores } from "../../services/key-admin/domain/stores.ts";
import type { RedisWorld } from "../support/limits/admission_fixture.ts";

const BUDGETS = { key: 100, project: 1_000 };
const SPENT = 60;
const OPERATOR = {
  by: "op@example.org",
  ip: "192.0.2.9",
  ownerId: null,
  as: "operator",
} as const;
const ASK: Ask = {
  scope: "chat",
  model: "m",
  endpoint: "chat",
  wantTokens: 0,
  rate: { table: "t", prices: { request: SPENT } },
  wantNanos: SPENT,
};
/** The same for an end user. */
const askFor = (name: string): Ask => ({ ...ASK, endUser: () => name });
const cost = (nanos: number) =>
  ({ promptTokens: 0, completionTokens: 1, nanos, kind: "complete" }) as const;

/** The stores of key-admin on the Redis of a test. */
const storesOf = ({ link }: RedisWorld) =>
  createStores({
    redis: link,
    writer: link,
    randomBytes,
    now: Date.now,
    defaultLimits: { key: UNLIMITED, owner: UNLIMITED },
  });

/** What was there before the copy. */
export interface MoneyBefore {
  readonly projectId: string;
  readonly adminId: string;
  /** A request that runs while the copy is made. */
  readonly running: Grant;
}

/** A project with a key that has spent something, and whose next request runs. */
export async function spendInProject(world: RedisWorld): Promise<MoneyBefore> {
  const { operators, projects, keys } = storesOf(world);
  const { ownerId: adminId } = await operators.invite(
    OPERATOR,
    "ada@example.org",
  );
  const { id } = await projects.create(OPERATOR, { name: "Search", adminId });
  await projects.setLimits(OPERATOR, id, {
    ...UNLIMITED,
    budgetMonth: BUDGETS.project,
  });
  const { key } = await keys.create({
    ownerId: id,
    settings: {
      description: "Indexer",
      scopes: ["chat"],
      models: [],
      networks: [],
      priority: "normal",
      keepSeconds: 0,
      endUsers: {
        from: "user",
        requestsPerMinute: 0,
        tokensPerMinute: 0,
        budgetDay: SPENT,
      },
      limits: { ...UNLIMITED, budgetTotal: BUDGETS.key },
      expiresAtMs: null,
    },
    actor: OPERATOR,
    createdBy: adminId,
  });
  await using edge = await loneEdge(world);
  const principal = { keyId: key.id, ownerId: id };
  const ended = await edge.admit(principal, askFor("ada"));
  assert.ok(ended.isAdmitted);
  await edge.settle(ended, cost(SPENT));
  const running = await edge.admit(principal, askFor("eve"));
  assert.ok(running.isAdmitted);
  return { projectId: id, adminId, running };
}

/** All of it is there again, and counts. */
export async function assertMoneyIsBack(
  world: RedisWorld,
  { projectId, adminId, running }: MoneyBefore,
): Promise<void> {
  const { projects, owners, keys, audit } = storesOf(world);
  const membership = await projects.membership(projectId, adminId);
  assert.deepEqual(
    [membership?.role, membership?.project.name],
    ["admin", "Search"],
  );
  const { budgetMonth } = await owners.limits(projectId);
  assert.equal(budgetMonth, BUDGETS.project);
  const { principal } = running;
  const key = await keys.find(projectId, principal.keyId);
  assert.deepEqual([key.createdBy, key.limits.budgetTotal], [
    adminId,
    BUDGETS.key,
  ]);
  const ledger = async () => {
    const { differences, cost } = await checkLedger({
      redis: world.link,
      audit,
      days: new BudgetDays("UTC"),
      nowMs: await world.time(),
    }, [{ ownerId: projectId }]);
    return { differences, cost };
  };
  assert.deepEqual(await ledger(), { differences: [], cost: BigInt(SPENT) });
  await using edge = await loneEdge(world);
  const other = await edge.admit(principal, askFor("bob"));
  assert.partialDeepStrictEqual(other, {
    isAdmitted: false,
    limit: "budget_held",
    budget: { spent: SPENT, held: BUDGETS.key - SPENT, limit: BUDGETS.key },
  });
  const settlement = {
    reservation: running,
    cost: cost(1),
    mayHaveRun: true,
  };
  const input = settleCall([settlement, settlement]);
  for (let n = 0; n < 2; n += 1) await world.link.evalScript(SETTLE, input);
  assert.deepEqual(await ledger(), {
    differences: [],
    cost: BigInt(SPENT + 1),
  });
  assert.partialDeepStrictEqual(await edge.admit(principal, askFor("ada")), {
    isAdmitted: false,
    holder: "user",
    limit: "budget_day",
  });
  const fits = await edge.admit(principal, askFor("bob"));
  assert.ok(fits.isAdmitted);
  await edge.settle(fits, null);
}
