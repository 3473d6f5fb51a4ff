/** The spend of a month as a CSV file, by account, key, endpoint and model. */
import { BudgetDays } from "@gateway/shared/keys/budget_calendar";
import {
  USAGE_HOURS_KEPT_DAYS,
  usageDay,
} from "@gateway/shared/keys/limiter_state";
import { KEY_FIELDS } from "@gateway/shared/keys/record";
import { formatAmount } from "@gateway/shared/money/amount";
import type { RedisLink } from "@gateway/shared/redis/link";
import { csvHead, csvLine } from "../store/csv.ts";
import { isCreatedBy, keysFrom } from "./key_page.ts";
import { restOf } from "./usage_csv.ts";
import {
  type Counts,
  lastDays,
  readRows,
  type UsageRow,
  type UsageScope,
  utcDayMs,
} from "./usage.ts";

/** An account, by the name that people know. */
export interface SpendAccount {
  readonly ownerId: string;
  /** The address of an owner, or the name of a project. */
  readonly name: string;
}

/** A month of the calendar of budgets, so that a file adds up to what budgets spent. */
export interface SpendMonth {
  /** `2026-11`. */
  readonly name: string;
  /** When it begins, and when the next one does, in Unix ms. */
  readonly startMs: number;
  readonly endMs: number;
}

/** The month of a file of spend, and its currency. */
export interface SpendQuery {
  readonly month: SpendMonth;
  readonly currency: string;
  readonly nowMs: number;
  /** Only keys that this owner created are named; undefined if all are. */
  readonly createdBy?: string | undefined;
}

/**
 * Returns the months of a time zone whose hours are all still there, the current one
 * first.
 */
export function spendMonths(nowMs: number, zone: string): SpendMonth[] {
  const keptDays = lastDays(USAGE_HOURS_KEPT_DAYS, nowMs);
  const budgetDays = new BudgetDays(zone);
  const months: SpendMonth[] = [];
  for (let atMs = nowMs;;) {
    const { name, startMs, endMs } = budgetDays.at(atMs).month;
    if (!keptDays.includes(usageDay(startMs))) return months;
    const [, year, month] = /^m(\d{4})(\d\d)$/.exec(name) ?? [];
    months.push({ name: `${year}-${month}`, startMs, endMs });
    atMs = startMs - 1;
  }
}

const HOUR_MS = 3_600_000;

/** Whether an hour begins in a month. */
const isIn = (
  { startMs, endMs }: SpendMonth,
  { day, hour }: Pick<UsageRow, "day" | "hour">,
): boolean => {
  const beginsMs = utcDayMs(day) + Number(hour) * HOUR_MS;
  return beginsMs >= startMs && beginsMs < endMs;
};

const COUNTED = ["requests", "unpriced", "estimated"] as const;
const SPENT = ["cost", "estimatedCost"] as const;

/** A line for each key, endpoint and model of these accounts, in bounded memory. */
export async function* spendCsv(
  redis: RedisLink,
  accounts: AsyncIterable<SpendAccount> | Iterable<SpendAccount>,
  query: SpendQuery,
): AsyncGenerator<string> {
  yield csvHead([
    "month",
    "account",
    "account_id",
    "key_id",
    "key",
    "description",
    "endpoint",
    "model",
    "requests",
    "requests_without_price",
    "requests_estimated",
    "cost",
    "cost_estimated",
    "currency",
  ]);
  for await (const account of accounts) yield* linesOf(redis, account, query);
}

async function* linesOf(
  redis: RedisLink,
  { ownerId, name }: SpendAccount,
  { month, currency, nowMs, createdBy }: SpendQuery,
): AsyncGenerator<string> {
  const days = lastDays(USAGE_HOURS_KEPT_DAYS, nowMs).filter((day) =>
    day >= usageDay(month.startMs) && day <= usageDay(month.endMs - 1)
  );
  const part = { days, month };
  const left = await readSums(redis, { ownerId, keyId: null }, part);
  if (left.size === 0) return;
  const lines = (sums: Sums, names: readonly string[]) =>
    [...sums.values()].filter(isSpent).map((sum) =>
      csvLine([
        month.name,
        name,
        ownerId,
        ...names,
        sum.endpoint,
        sum.model,
        ...COUNTED.map((name) => sum.counts[name] ?? 0),
        ...SPENT.map((name) => formatAmount(sum.counts[name] ?? 0)),
        currency,
      ])
    ).join("");
  for await (const { keyId, fields } of keysFrom(redis, ownerId)) {
    if (createdBy && !isCreatedBy(fields, createdBy)) continue;
    const sums = await readSums(redis, { ownerId, keyId }, part);
    for (const [at, { counts }] of sums) takeAway(left.get(at)?.counts, counts);
    const { [KEY_FIELDS.hint]: hint, [KEY_FIELDS.description]: text } = fields;
    yield lines(sums, [keyId, hint ?? "", text ?? ""]);
  }
  yield lines(left, ["", "", restOf(createdBy)]);
}

/** The sum of the counters of an endpoint and a model over all hours of a month. */
interface Sum {
  readonly endpoint: string;
  readonly model: string;
  readonly counts: Counts;
}
type Sums = Map<string, Sum>;

async function readSums(
  redis: RedisLink,
  scope: UsageScope,
  { days, month }: { days: readonly string[]; month: SpendMonth },
): Promise<Sums> {
  const sums: Sums = new Map();
  const rows = await readRows(redis, scope, days);
  for (const row of rows.values()) {
    if (!isIn(month, row)) continue;
    const { endpoint, model, counts } = row;
    const at = `${endpoint} ${model}`;
    const sum = sums.get(at) ?? { endpoint, model, counts: {} };
    for (const name of [...COUNTED, ...SPENT]) {
      sum.counts[name] = (sum.counts[name] ?? 0) + (counts[name] ?? 0);
    }
    sums.set(at, sum);
  }
  return sums;
}

/** More may have been counted since the sum was read. */
function takeAway(from: Counts | undefined, counts: Counts): void {
  if (from === undefined) return;
  for (const name of [...COUNTED, ...SPENT]) {
    from[name] = Math.max(0, (from[name] ?? 0) - (counts[name] ?? 0));
  }
}

const isSpent = ({ counts }: Sum): boolean =>
  [...COUNTED, ...SPENT].some((name) => counts[name]);
