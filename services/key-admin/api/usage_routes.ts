/** Routes of the admin API for usage and spend. */
import { formatAmount } from "@gateway/shared/money/amount";
import { z } from "zod";
import { isoTime } from "../domain/keys/key_json.ts";
import { KeyRefused } from "../domain/keys/key_refused.ts";
import { limitWords, oneOf } from "../domain/keys/settings.ts";
import { spendCsv, spendMonths } from "../domain/keys/spend_csv.ts";
import { COST_COUNTS, COUNTS, type Counts } from "../domain/keys/usage.ts";
import { csvParts } from "../domain/usage/csv_parts.ts";
import { GATEWAY } from "../domain/usage/day_sums.ts";
import { reportCsv } from "../domain/usage/report_csv.ts";
import { parseSpan, PRESETS, type UsageSpan } from "../domain/usage/span.ts";
import {
  keyParts,
  readTopKeys,
  readUsageByKey,
} from "../domain/usage/usage_by_key.ts";
import {
  accountParts,
  type Grouping,
  GROUPINGS,
  type UsageGroup,
  type UsageReport,
} from "../domain/usage/usage_reports.ts";
import { MONTHS, USAGE } from "./answers.ts";
import { accountId, NO_BODY, NOTHING } from "./fields.ts";
import {
  type AdminAnswer,
  type AdminCall,
  type AdminDeps,
  AdminRefused,
  adminRoute,
} from "./route.ts";
import { checkAccount } from "./shared_steps.ts";

const text = z.string().max(100).default("");
const QUERY = z.strictObject({
  account: accountId.optional().meta({
    description: "Without it and `key`: all accounts together",
  }),
  key: z.string().max(100).optional(),
  from: text.meta({ description: "The first day: 2026-11-01" }),
  to: text.meta({ description: "The last day; empty: today" }),
  range: text.meta({
    description: `Without \`from\`: ${Object.keys(PRESETS).join(", ")}`,
  }),
  zone: text.meta({ description: "A time zone such as Europe/Berlin" }),
  by: oneOf("One of", GROUPINGS).optional(),
});

/** What a request asks for, checked. */
interface UsageQuery {
  readonly scope: { ownerId: string; keyId: string | null };
  readonly span: UsageSpan;
  readonly by: Grouping | null;
}

async function readQuery(
  deps: AdminDeps,
  { account, key, by: grouping, ...texts }: z.output<typeof QUERY>,
): Promise<UsageQuery> {
  const by = grouping ?? null;
  if (account !== undefined) await checkAccount(deps, account);
  const keyOwner = key === undefined ? null : await deps.people.ownerOf(key);
  const isOther = account !== undefined && keyOwner !== account;
  if (key !== undefined && (keyOwner === null || isOther)) {
    throw new KeyRefused("not_found");
  }
  const ownerId = keyOwner ?? account ?? GATEWAY;
  const place = by === "key" && key !== undefined
    ? "Without a key only, usage can be shown by key"
    : by === "account" && ownerId !== GATEWAY
    ? "Without an account only, usage can be shown by account"
    : null;
  if (place !== null) {
    throw new AdminRefused("invalid_value", place, { param: "by" });
  }
  const time = { nowMs: deps.now(), defaultZone: deps.budgetZone };
  const span = parseSpan(texts, time);
  if (!("message" in span)) {
    return { scope: { ownerId, keyId: key ?? null }, span, by };
  }
  const { field: param, message } = span;
  throw new AdminRefused("invalid_value", message, { param });
}

/** Counts by the words of their names; those that are 0 are left out. */
function countsJson(counts: Counts): Record<string, number | string> {
  const isMoney = (name: string) => COST_COUNTS.some((each) => each === name);
  return Object.fromEntries(COUNTS.flatMap((name) => {
    const count = counts[name] ?? 0;
    const value = isMoney(name) ? formatAmount(count) : count;
    return count === 0 ? [] : [[limitWords(name, "_"), value]];
  }));
}

/** A report, with its parts and their names. */
async function readReport(
  deps: AdminDeps,
  query: UsageQuery,
): Promise<{ report: UsageReport; groups: (UsageGroup & { name: string })[] }> {
  const { scope, span, by } = query;
  if (by === "model" || by === "endpoint") {
    const report = await deps.usage.readBy(scope, span, { by });
    const groups = report.groups
      .map((group) => ({ ...group, name: group.id ?? "others" }));
    return { report, groups };
  }
  const report = await deps.usage.read(scope, span);
  return { report, groups: await partsOf(deps, query, report) };
}

/** The parts of a report that are keys or accounts, with their names. */
async function partsOf(
  deps: AdminDeps,
  { scope, span, by }: UsageQuery,
  report: UsageReport,
): Promise<(UsageGroup & { name: string })[]> {
  const { usage, people } = deps;
  if (by === null) return [];
  const accounts = scope.ownerId === GATEWAY
    ? await usage.parts(scope, span, await people.accountIds())
    : null;
  const keys = by === "account"
    ? []
    : accounts === null
    ? await readUsageByKey(deps, scope, span)
    : await readTopKeys(deps, accounts, span);
  const parts = by === "account"
    ? accountParts(accounts ?? new Map())
    : keyParts(keys);
  const groups = await usage.groupsOf(report, parts);
  const names = new Map(keys.map(({ id, description }) => [id, description]));
  return await Promise.all(groups.map(async (group) => {
    const { id } = group;
    if (id === null) return { ...group, name: "others" };
    return { ...group, name: names.get(id) ?? await people.name(id) ?? id };
  }));
}

async function show(
  { deps, query: text }: AdminCall<z.output<typeof QUERY>, unknown>,
): Promise<AdminAnswer> {
  const query = await readQuery(deps, text);
  const { span } = query;
  const { report, groups } = await readReport(deps, query);
  return {
    json: {
      zone: span.zone,
      from: span.from,
      to: span.to,
      unit: span.unit,
      currency: deps.catalog?.prices.currency ?? "",
      marks: span.marks.map((mark) =>
        typeof mark === "number" ? isoTime(mark) : mark
      ),
      total: countsJson(report.total),
      buckets: report.buckets.map(countsJson),
      groups: groups.map(({ id, name, total, buckets }) => ({
        id,
        name,
        total: countsJson(total),
        buckets: buckets.map(countsJson),
      })),
    },
  };
}

async function exportCsv(
  { deps, query }: AdminCall<z.output<typeof QUERY>, unknown>,
): Promise<AdminAnswer> {
  const { scope, span, by } = await readQuery(deps, query);
  const csv = reportCsv(deps.usage, {
    scope,
    span,
    by,
    currency: deps.catalog?.prices.currency ?? "",
    parts: () => csvParts(deps, by, scope),
    others: "others",
  });
  return { csv };
}

/** Routes of the scope `usage`. */
export const USAGE_ROUTES = [
  adminRoute({
    method: "GET",
    path: "/usage",
    scope: "usage",
    summary:
      "Show what all accounts, one of them or a key used on days of any time zone, by hour or day, and by model, endpoint, key or account",
    query: QUERY,
    body: NO_BODY,
    answers: USAGE,
    run: show,
  }),
  adminRoute({
    method: "GET",
    path: "/usage.csv",
    scope: "usage",
    summary: "Export the same as CSV, with all parts",
    query: QUERY,
    body: NO_BODY,
    answers: "csv",
    run: exportCsv,
  }),
  adminRoute({
    method: "GET",
    path: "/usage/months",
    scope: "usage",
    summary: "List the months of which all usage is still there",
    query: NOTHING,
    body: NO_BODY,
    answers: MONTHS,
    run: ({ deps: { now, budgetZone } }) => {
      const months = spendMonths(now(), budgetZone).map(({ name }) => name);
      return Promise.resolve({ json: { months } });
    },
  }),
  adminRoute({
    method: "GET",
    path: "/usage/months/:id",
    scope: "usage",
    summary:
      "Export a month of the calendar of budgets, such as 2026-11, as CSV: a line for each account, key, endpoint and model",
    query: NOTHING,
    body: NO_BODY,
    answers: "csv",
    run: ({ deps: { redis, people, catalog, now, budgetZone }, id }) => {
      const months = spendMonths(now(), budgetZone);
      const month = months.find(({ name }) => name === id);
      if (month === undefined) {
        const names = months.map(({ name }) => name).join(", ");
        throw new AdminRefused("not_found", `There is usage of ${names}`);
      }
      const { currency = "" } = catalog?.prices ?? {};
      const query = { month, currency, nowMs: now() };
      const csv = spendCsv(redis, people.accounts(), query);
      return Promise.resolve({ csv });
    },
  }),
];
