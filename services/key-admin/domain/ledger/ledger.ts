/**
 * Checks that the ledger adds up: the charges of keys are those of their accounts,
 * counter by counter, and budgets hold what running requests hold.
 */
import {
  type BudgetDays,
  TOTAL_WINDOW,
} from "@gateway/shared/keys/budget_calendar";
import {
  parseUsageField,
  USAGE_HOURS_KEPT_DAYS,
  USAGE_KINDS,
} from "@gateway/shared/keys/limiter_state";
import {
  holdKey,
  leaseKey,
  ownerSpendKey,
  ownerUsageKey,
  type Principal,
  spendKey,
  usageKey,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { AuditLog } from "../audit/audit_log.ts";
import { keysFrom } from "../keys/key_page.ts";
import { lastDays } from "../keys/usage.ts";
import { asList, type Fields, readHash } from "../store/redis.ts";

/** Two numbers that should be equal. */
export interface LedgerDifference {
  readonly account: string;
  /** `20261128`, or the window of a budget. */
  readonly day: string;
  /** What is counted: a usage field, or `held` with the id of a key. */
  readonly what: string;
  /** What the keys, or the requests that hold something, add up to. */
  readonly parts: bigint;
  /** What the account, or the budget, has. */
  readonly whole: bigint;
}

/** The charge of a request, as a line of the log states it. */
export interface LoggedCharge {
  readonly keyId: string;
  readonly model: string;
  readonly nanos: bigint;
}

/** The outcome of a comparison: its size, and the differences. */
export interface LedgerReport {
  accounts: number;
  keys: number;
  days: number;
  /** What all keys were charged, in billionths. */
  cost: bigint;
  readonly differences: LedgerDifference[];
  /**
   * The part of the cost that is an estimate: the edges of these requests were lost, so
   * no line of a log has it.
   */
  estimated: bigint;
  /** What each key was charged for each model, by `<key id> <model>`. */
  readonly byKeyAndModel: Map<string, Charged>;
}

/** What was charged, and what of it was estimated, in billionths; and for how many. */
export interface Charged {
  readonly cost: bigint;
  readonly estimated: bigint;
  /** The requests that were settled by the edge that ran them. */
  readonly requests: bigint;
}

/** Charges without a line, of edges that were killed before they had written it. */
export interface Unlogged {
  readonly requests: bigint;
  readonly cost: bigint;
}

/** Dependencies of the check. */
export interface LedgerDeps {
  readonly redis: RedisLink;
  readonly audit: Pick<AuditLog, "read">;
  readonly days: BudgetDays;
  readonly nowMs: number;
}

/** Requests that are settled between two reads make them differ, so it reads again. */
const READS_MAX = 5;
const AUDIT_ROWS = 1_000;

/** Compares the books of accounts, in memory for one account at a time. */
export async function checkLedger(
  deps: LedgerDeps,
  accounts: AsyncIterable<{ ownerId: string }> | Iterable<{ ownerId: string }>,
): Promise<LedgerReport> {
  const report: LedgerReport = {
    accounts: 0,
    keys: 0,
    days: 0,
    cost: 0n,
    estimated: 0n,
    differences: [],
    byKeyAndModel: new Map(),
  };
  for await (const { ownerId } of accounts) {
    report.accounts += 1;
    const keyIds = await keysEver(deps, ownerId);
    report.keys += keyIds.size;
    const principals = [...keyIds].map((keyId) => ({ ownerId, keyId }));
    for (const day of lastDays(USAGE_HOURS_KEPT_DAYS, deps.nowMs)) {
      const found = await settled(() => compareDay(deps, principals, day));
      if (found === null) continue;
      report.days += 1;
      report.cost += sumOf(found.whole, USAGE_KINDS.cost);
      report.estimated += sumOf(found.whole, USAGE_KINDS.lostCost);
      report.differences.push(...found.differences);
      for (const [at, charged] of found.byKeyAndModel) add(report, at, charged);
    }
    const held = await settled(() => compareHeld(deps, principals));
    report.differences.push(...held?.differences ?? []);
  }
  return report;
}

/** What lines of the log add up to. */
interface Logged {
  readonly cost: bigint;
  readonly lines: bigint;
}

/**
 * Returns where the charges in the log and in the ledger differ. A request whose edge
 * was lost has no line, so what was charged for it is left out. An edge that is killed
 * may have settled a request and not have written its line: where the log has less
 * cost and fewer lines than there were requests, that is no difference, as long as all
 * together lack at most `unloggedMax` lines.
 */
export function compareLog(
  { byKeyAndModel }: LedgerReport,
  charges: readonly LoggedCharge[],
  unloggedMax = 0,
): { differences: LedgerDifference[]; unlogged: Unlogged } {
  const logged = new Map<string, Logged>();
  for (const { keyId, model, nanos } of charges) {
    const at = `${keyId} ${model}`;
    const { cost, lines } = logged.get(at) ?? { cost: 0n, lines: 0n };
    logged.set(at, { cost: cost + nanos, lines: lines + 1n });
  }
  const compared = [...logged].map(([at, { cost: parts, lines }]) => {
    const { cost, estimated, requests } = byKeyAndModel.get(at) ?? NOTHING;
    return { at, parts, whole: cost - estimated, missing: requests - lines };
  }).filter(({ parts, whole }) => parts !== whole);
  const isShort = ({ parts, whole, missing }: (typeof compared)[number]) =>
    parts < whole && missing > 0n;
  const unlogged = compared.filter(isShort).reduce(
    ({ requests, cost }, { parts, whole, missing }) => ({
      requests: requests + missing,
      cost: cost + whole - parts,
    }),
    { requests: 0n, cost: 0n },
  );
  const isExplained = unlogged.requests <= unloggedMax;
  const differences = compared
    .filter((each) => !(isExplained && isShort(each)))
    .map((each): LedgerDifference => {
      const { at, parts, whole, missing } = each;
      const lack = isShort(each) ? `, which lacks lines: ${missing}` : "";
      const what = `cost in the log of ${at}${lack}`;
      return { account: "", day: "", what, parts, whole };
    });
  const none = { requests: 0n, cost: 0n };
  return { differences, unlogged: isExplained ? unlogged : none };
}

const NOTHING: Charged = { cost: 0n, estimated: 0n, requests: 0n };

function add(
  { byKeyAndModel }: Pick<LedgerReport, "byKeyAndModel">,
  at: string,
  { cost, estimated, requests }: Charged,
): void {
  const before = byKeyAndModel.get(at) ?? NOTHING;
  byKeyAndModel.set(at, {
    cost: before.cost + cost,
    estimated: before.estimated + estimated,
    requests: before.requests + requests,
  });
}

/** The keys of an account, with those that were deleted, as far as its log reaches. */
async function keysEver(
  { redis, audit }: LedgerDeps,
  ownerId: string,
): Promise<Set<string>> {
  const found = new Set<string>();
  for await (const { keyId } of keysFrom(redis, ownerId)) found.add(keyId);
  let before: string | null = "";
  while (before !== null) {
    const query = { action: "key.", keyId: "", before, rows: AUDIT_ROWS };
    const page: Awaited<ReturnType<AuditLog["read"]>> = await audit.read(
      ownerId,
      query,
    );
    for (const { keyId } of page.rows) if (keyId) found.add(keyId);
    before = page.next;
  }
  return found;
}

/**
 * Reads again while there are differences: a request may have been settled meanwhile.
 */
async function settled<T extends { differences: readonly unknown[] }>(
  read: () => Promise<T | null>,
): Promise<T | null> {
  let found = await read();
  for (let n = 1; n < READS_MAX && found?.differences.length; n += 1) {
    found = await read();
  }
  return found;
}

/** The counters of a day; null if there are none. */
async function compareDay(
  { redis }: LedgerDeps,
  principals: readonly Principal[],
  day: string,
) {
  const [first] = principals;
  if (first === undefined) return null;
  const { ownerId } = first;
  const whole = await readHash(redis, ownerUsageKey(ownerId, day));
  if (whole === null) return null;
  const parts = new Map<string, bigint>();
  const byKeyAndModel = new Map<string, Charged>();
  for (const principal of principals) {
    const fields = await readHash(redis, usageKey(principal, day)) ?? {};
    for (const [field, text] of Object.entries(fields)) {
      const count = BigInt(text);
      parts.set(field, (parts.get(field) ?? 0n) + count);
      const { counter, model } = parseUsageField(field);
      const at = `${principal.keyId} ${model}`;
      const charged = chargedIn(counter, count);
      if (charged !== null) {
        add({ byKeyAndModel }, at, { ...NOTHING, ...charged });
      }
    }
  }
  const names = new Set([...Object.keys(whole), ...parts.keys()]);
  const differences = [...names].map((what): LedgerDifference => ({
    account: ownerId,
    day,
    what,
    parts: parts.get(what) ?? 0n,
    whole: BigInt(whole[what] ?? 0),
  })).filter(({ parts, whole }) => parts !== whole);
  return { whole, differences, byKeyAndModel };
}

/** What a counter says of charges; null: nothing. */
function chargedIn(counter: string, count: bigint): Partial<Charged> | null {
  if (counter === USAGE_KINDS.cost) return { cost: count };
  if (counter === USAGE_KINDS.lostCost) return { estimated: count };
  if (counter === USAGE_KINDS.requests) return { requests: count };
  return counter === USAGE_KINDS.lostRequests ? { requests: -count } : null;
}

/** The sum of a counter over all hours, endpoints and models. */
function sumOf(fields: Fields, counter: string): bigint {
  return Object.entries(fields)
    .filter(([name]) => parseUsageField(name).counter === counter)
    .reduce((sum, [, text]) => sum + BigInt(text), 0n);
}

/** What a lease says that its request holds: `…~1500 key:m202611:5000000000`. */
const HOLD_IN_LEASE = /~(\d+ [^~]*)$/;

/** The texts of what the requests of a key hold, as `budget.lua` describes them. */
async function holdsOf(
  redis: RedisLink,
  principal: Principal,
): Promise<readonly string[]> {
  const leases = await redis.command([
    "ZRANGE",
    leaseKey(principal),
    "0",
    "-1",
  ]);
  const kept = await readHash(redis, holdKey(principal)) ?? {};
  const isRunning = ([lease]: [string, unknown]) => !lease.startsWith("!");
  const holds = asList(leases).map((lease): [string, string] => [
    String(lease),
    HOLD_IN_LEASE.exec(String(lease))?.[1] ?? "0",
  ]);
  // What is kept beside a lease is true, whatever the lease says.
  const byLease = new Map(
    [...holds, ...Object.entries(kept)].filter(isRunning),
  );
  return [...byLease.values()];
}

const HELD_IN = / (key|owner):(\w+):\d+/g;

/** Compares what budgets show as held with what the requests of the keys hold. */
async function compareHeld(
  { redis, days, nowMs }: LedgerDeps,
  principals: readonly Principal[],
) {
  const [first] = principals;
  if (first === undefined) return null;
  const { day, month } = days.at(nowMs);
  const present = [day.name, month.name, TOTAL_WINDOW];
  const held = new Map<string, bigint>();
  const nameOf = (who: string, principal: Principal, window: string) =>
    who === "key"
      ? spendKey(principal, window)
      : ownerSpendKey(principal.ownerId, window);
  for (const principal of principals) {
    for (const window of present) {
      held.set(nameOf("key", principal, window), 0n);
      held.set(nameOf("owner", principal, window), 0n);
    }
  }
  for (const principal of principals) {
    for (const text of await holdsOf(redis, principal)) {
      const nanos = BigInt(text.split(" ")[0] ?? 0);
      for (const [, who = "", window = ""] of text.matchAll(HELD_IN)) {
        const name = nameOf(who, principal, window);
        held.set(name, (held.get(name) ?? 0n) + nanos);
      }
    }
  }
  const differences: LedgerDifference[] = [];
  for (const [name, parts] of held) {
    const [text] = asList(await redis.command(["HMGET", name, "h"]));
    const whole = BigInt(String(text ?? 0));
    if (parts === whole) continue;
    const what = `held of ${name}`;
    const account = first.ownerId;
    differences.push({ account, day: "", what, parts, whole });
  }
  return { differences };
}
