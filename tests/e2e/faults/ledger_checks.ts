// Promise: whatever is killed while requests run (edges, workers, Redis), and however
// clients leave and ask again, what keys and their account were charged is the same to
// the billionth, nothing stays held, and no budget is passed by more than one request.
import assert from "node:assert/strict";
import { BudgetDays } from "@gateway/shared/keys/budget_calendar";
import {
  holdKey,
  leaseKey,
  type Principal,
  spendKey,
} from "@gateway/shared/keys/record";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { NANOS_PER_UNIT } from "@gateway/shared/money/amount";
import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { LostRequests } from "../../../services/edge-auth/limits/lost_requests.ts";
import { LEASE_MS } from "../../../services/edge-auth/limits/scripts.ts";
import { checkLedger } from "../../../services/key-admin/domain/ledger/ledger.ts";
import { amountOf } from "../../support/amount.ts";
import { readStatus } from "../../support/gateway/chat_status.ts";
import { outcomeOf } from "../../support/gateway/chat_outcome.ts";
import type { CreatedKey } from "../../support/gateway/key_commands.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
import { simulates } from "../../support/gateway/simulator.ts";
import { letTimePass } from "../../support/limits/limiter_clock.ts";
import { seededRandom } from "../../support/seeded_random.ts";
import type { RedisServer } from "../../support/servers/redis_server.ts";
import { sleep, until, waitFor } from "../../support/wait_for.ts";

const REQUESTS = amountOf({ usual: 200, full: 10_000 });
const AT_ONCE = 30;
const TOKENS_MAX = 20;
/** A thousandth of the currency for a request, and for each token of its answer. */
export const CHAOS_PRICES = { input: "0", output: "1000", request: "0.001" };
const REQUEST_NANOS_MAX = NANOS_PER_UNIT * (1 + TOKENS_MAX) / 1_000;
/** What the first key may spend: a tenth of what it is asked for. */
const BUDGET_NANOS = Math.round(REQUESTS / 2 * REQUEST_NANOS_MAX / 20);
const LEAVES_SHARE = 0.15;
/** Each is as likely to find requests at work. */
const ROUND = ["worker", "redis", "edge", "worker", "redis", "edge"] as const;
const ROUNDS = amountOf({ usual: 1, full: 5 });
const FAULTS = Array.from({ length: ROUNDS }, () => ROUND).flat();
const RETRY_MS = 250;
const STARTED_MS = 20_000;
const SETTLED_MS = 60_000;

/** Requests with two keys, and what fails meanwhile. */
class MoneyChaos {
  readonly outcomes = { complete: 0, refused: 0, failed: 0, left: 0 };
  #sent = 0;
  readonly #random = seededRandom(35);

  constructor(
    readonly gateway: LaunchedGateway,
    readonly redis: RedisServer,
    readonly keys: readonly CreatedKey[],
  ) {}

  /** Sends all requests, while one thing after the other is killed. */
  async play(): Promise<void> {
    const clients = Array.from({ length: AT_ONCE }, () => this.#client());
    for (const [n, fault] of FAULTS.entries()) {
      await until(() => this.#sent >= REQUESTS * (n + 1) / (FAULTS.length + 1));
      await this.#fail(fault, n % 2);
    }
    await Promise.all(clients);
  }

  async #client(): Promise<void> {
    while (this.#sent < REQUESTS) {
      this.#sent += 1;
      await this.#request(this.#sent);
    }
  }

  async #request(number: number): Promise<void> {
    const random = this.#random;
    const { key } = this.keys[number % 2] ?? assert.fail();
    const tokens = 1 + Math.floor(random() * TOKENS_MAX);
    const client = new AbortController();
    const leaves = random() < LEAVES_SHARE;
    const answer = outcomeOf(this.gateway.ask(key, {
      edge: Math.floor(number / 2) % 2,
      body: {
        messages: simulates(`${tokens} tokens, 200 tokens per second`),
        max_tokens: tokens,
        stream: random() < 0.6,
      },
      signal: client.signal,
    }));
    if (leaves) {
      await sleep(random() * 100);
      client.abort();
    }
    const { kind, status } = await answer;
    if (kind === "complete") this.outcomes.complete += 1;
    else if (leaves) this.outcomes.left += 1;
    else if (status === 429) this.outcomes.refused += 1;
    else {
      this.outcomes.failed += 1;
      // As a client does that asks again.
      await sleep(RETRY_MS);
    }
  }

  async #fail(fault: typeof FAULTS[number], index: number): Promise<void> {
    if (fault === "redis") return await this.redis.restart();
    const service = fault === "edge" ? "edge-auth" : "chat-worker";
    // The one that was killed last may not be replaced yet.
    const pid = await until(async () =>
      (await this.gateway.refresh()).pids[service]?.[index]
    );
    Deno.kill(pid, "SIGKILL");
    await this.gateway.isReplaced(service, pid);
  }
}

/** Charges what dead edges had reserved, until no request has a lease. */
async function settleAll(
  link: RedisLink,
  principals: readonly Principal[],
): Promise<number> {
  const lost = new LostRequests({
    redis: link,
    now: monotonicNow,
    expectedMs: () => Date.now(),
    log: silentLog,
  });
  const running = async () => {
    const leases = await Promise.all(
      principals.map(async (each) =>
        await link.command(["ZRANGE", leaseKey(each), "0", "-1"])
      ),
    );
    return leases.flat().filter((id) => !String(id).startsWith("!")).length;
  };
  for (const each of principals) lost.note(each);
  await lost.writeNotes();
  let charged = 0;
  await waitFor(async () => {
    for (const principal of principals) {
      await letTimePass(link, { principal, ms: LEASE_MS + 1 });
    }
    charged += await lost.charge();
    return await running() === 0;
  }, { what: "all requests to be settled", timeoutMs: SETTLED_MS });
  return charged;
}

/** What a key has spent and holds of its budget in total. */
async function totalOf(link: RedisLink, key: Principal) {
  const amounts = await link.command([
    "HMGET",
    spendKey(key, "total"),
    "s",
    "h",
  ]);
  assert.ok(Array.isArray(amounts));
  const [spent = 0, held = 0] = amounts.map((each) => Number(each ?? 0));
  const holds = await link.command(["HKEYS", holdKey(key)]);
  assert.ok(Array.isArray(holds));
  const open = holds.filter((lease) => !String(lease).startsWith("!"));
  return { spent, held, open: open.length };
}

/**
 * Plays requests while processes are killed, on a gateway with two edges and two
 * workers, whose model has {@link CHAOS_PRICES}, and whose Redis keeps its data.
 */
export async function checkLedgerUnderFaults(
  gateway: LaunchedGateway,
  redis: RedisServer,
): Promise<void> {
  const budget = String(BUDGET_NANOS / NANOS_PER_UNIT);
  const keys = [
    await gateway.createKey(`--budget-total=${budget}`),
    await gateway.createKey("--budget-total=1000000", "--budget-month=1000000"),
  ];
  for (const [edge, { key }] of keys.entries()) {
    // What was killed before is there again.
    const isServed = async () =>
      (await readStatus(gateway.ask(key, { edge }))) === 200;
    await until(() => isServed().catch(() => false), STARTED_MS);
  }
  const chaos = new MoneyChaos(gateway, redis, keys);
  await chaos.play();
  const link = await gateway.openRedis();
  const principals = await Promise.all(keys.map(async ({ id }) => {
    const { owner_id } = JSON.parse(await gateway.keys("show", id));
    return { keyId: id, ownerId: String(owner_id) };
  }));
  const charged = await settleAll(link, principals);
  const [first = assert.fail(), second = assert.fail()] = principals;
  const [{ key = "" } = {}] = keys;
  // Requests of a killed edge may have held the rest until all others were refused.
  await until(async () => {
    if ((await totalOf(link, first)).spent >= BUDGET_NANOS) return true;
    await readStatus(gateway.ask(key));
    return false;
  }, SETTLED_MS);
  // An edge that lost Redis for a moment may still be delivering a settlement.
  const report = await waitFor(async () => {
    const found = await checkLedger({
      redis: link,
      audit: { read: () => Promise.resolve({ rows: [], next: null }) },
      days: new BudgetDays("UTC"),
      nowMs: Date.now(),
    }, [{ ownerId: first.ownerId }]);
    const totals = [await totalOf(link, first), await totalOf(link, second)];
    const isOver = totals.every(({ held, open }) => held === 0 && open === 0);
    return isOver ? { ...found, totals } : undefined;
  }, { what: "nothing to be held", timeoutMs: SETTLED_MS });
  assert.deepEqual(report.differences, []);
  const [limited = assert.fail(), other = assert.fail()] = report.totals;
  for (const [n, { spent }] of [limited, other].entries()) {
    const at = `${principals[n]?.keyId} ${DEFAULT_MODEL_ID}`;
    assert.equal(report.byKeyAndModel.get(at)?.cost, BigInt(spent));
  }
  const figures = JSON.stringify({ ...chaos.outcomes, charged, ...limited });
  assert.ok(limited.spent >= BUDGET_NANOS, `not spent: ${figures}`);
  assert.ok(limited.spent <= BUDGET_NANOS + REQUEST_NANOS_MAX, figures);
  const { complete, refused, left } = chaos.outcomes;
  assert.ok(complete > REQUESTS / 8 && refused > 0 && left > 0, figures);
}
