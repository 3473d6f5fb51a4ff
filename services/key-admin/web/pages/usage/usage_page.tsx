/** The pages of usage: what was used, and why requests were refused or failed. */

import {
  FAILURE_REASONS,
  USAGE_UNITS,
} from "@gateway/shared/keys/limiter_state";
import type { Child } from "hono/jsx";
import {
  CACHE_COUNTS,
  type Counts,
  MAIN_COUNTS,
  readUsage,
  REQUEST_COUNTS,
} from "../../../domain/keys/usage.ts";
import { spendCsv } from "../../../domain/keys/spend_csv.ts";
import {
  isUsed,
  KEYS_SHOWN_MAX,
  readUsageByKey,
  restOfUse,
  useByMember,
} from "../../../domain/keys/usage_by_key.ts";
import { usageCsv } from "../../../domain/keys/usage_csv.ts";
import {
  answerCsv,
  type ConsoleContext,
  type ConsoleDeps,
  type Handler,
  type Routes,
} from "../../context.ts";
import {
  findKey,
  KEYS_OF_OWNER,
  keyScopeOf,
  OWN_KEYS,
  ownScopeOf,
  whoseOf,
} from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import { type Column, Empty, Facts, Table, Tabs } from "../../view/parts.tsx";
import {
  Email,
  keyName,
  labelOf,
  money,
  number,
  spentText,
  Time,
  unitsText,
} from "../../view/texts.tsx";
import { requestsOf } from "./addresses.ts";
import { wordsOf } from "./reasons.ts";
import { spendFile, spendLinks, spendQueryOf } from "./spend_links.tsx";
import { limitsCard } from "./limits_view.tsx";
import { dayText, type Range, RANGES, UsageCharts } from "./usage_chart.tsx";

const showUsage: Handler = async (c) => {
  const { deps } = c.var;
  const { ownerId, root, createdBy, ...scope } = ownScopeOf(c);
  const base = `${root}/usage`;
  const whose = whoseOf(scope);
  const all = whose === "own" ? "All your keys" : "All keys of the project";
  return (
    <Page
      c={c}
      title="Usage"
      lead={`${all} together, including deleted ones. Each key's page shows its own numbers.`}
    >
      {await limitsCard(deps, ownerId, { whose })}
      {await usageView(deps, { ownerId, base, range: rangeOf(c) })}
      {await usageByKey(deps, {
        ownerId,
        createdBy,
        isProject: whose === "project",
        base: scope.base,
        range: rangeOf(c),
      })}
    </Page>
  );
};

const exportUsage: Handler = async (c) => {
  const { redis, now } = c.var.deps;
  const scope = await keyScopeOf(c);
  const { ownerId, createdBy } = scope;
  const key = c.req.param("id") === undefined ? null : await findKey(c, scope);
  const name = key === null ? "usage.csv" : `usage-${key.id}.csv`;
  return answerCsv(
    c,
    name,
    usageCsv(redis, { ownerId, key, createdBy }, now()),
  );
};

const exportSpend: Handler = (c) => {
  const { redis } = c.var.deps;
  const { ownerId, membership, createdBy } = ownScopeOf(c);
  const name = membership?.project.name ?? c.var.signedIn.account.email;
  const query = { ...spendQueryOf(c), createdBy };
  const lines = spendCsv(redis, [{ ownerId, name }], query);
  return answerCsv(c, spendFile(query), lines);
};

/** The routes of the usage of one key, below this path. */
function routesBelow(keys: string): Routes {
  return {
    [`${keys}/:id/export.csv`]: { GET: exportUsage },
  };
}

/** The routes of usage. */
export const usageRoutes = (root: string): Routes => ({
  [`${root}/usage`]: { GET: showUsage },
  [`${root}/usage/export.csv`]: { GET: exportUsage },
  [`${root}/usage/spend.csv`]: { GET: exportSpend },
  ...routesBelow(root + OWN_KEYS),
});

/** The same of any key, for operators. */
export const operatorUsageRoutes: Routes = routesBelow(KEYS_OF_OWNER);

/** The units other than tokens that were counted. */
const unitsIn = (counts: Counts) => USAGE_UNITS.filter((unit) => counts[unit]);

const unitsOf = (counts: Counts): string =>
  unitsIn(counts).map((unit) => unitsText(counts[unit] ?? 0, unit)).join(", ");

/** The counts that are always shown, and those of caches if anything was cached. */
const countsIn = (total: Counts) => [
  ...MAIN_COUNTS,
  ...CACHE_COUNTS.filter((name) => total[name]),
];

/** Returns all counts as labelled numbers. */
const countFacts = (total: Counts): Record<string, string> =>
  Object.fromEntries(
    [...countsIn(total), ...unitsIn(total)]
      .map((name) => [labelOf(name), number(total[name] ?? 0)]),
  );

/** Whether anything was spent, or would have been if it had a price. */
const hasSpend = (total: Counts): boolean =>
  Boolean(total.cost || total.unpriced);

/** Returns the spend, with the counts that belong to it. */
function spendFacts(total: Counts, currency: string): Record<string, string> {
  if (!hasSpend(total)) return {};
  const { estimatedCost = 0 } = total;
  const facts: Record<string, string> = { Cost: spentText(total, currency) };
  if (estimatedCost !== 0) {
    facts[labelOf("estimatedCost")] = money(estimatedCost, currency);
  }
  for (const name of REQUEST_COUNTS) {
    if (total[name]) facts[labelOf(name)] = number(total[name]);
  }
  return facts;
}

type Row = readonly [name: Child, counts: Counts];

/**
 * A column for each count, and one for all units. Beside units, no tokens are shown
 * instead of 0.
 */
const countColumns = (
  head: string,
  total: Counts,
  currency: string,
): readonly Column<Row>[] => [
  [head, ([name]) => name],
  ...(hasSpend(total) ? ["Cost"] : []).map((label): Column<Row> => [
    label,
    ([, counts]) => spentText(counts, currency),
    "num",
  ]),
  ...countsIn(total).map((name): Column<Row> => [
    labelOf(name),
    ([, { [name]: count = 0, ...others }]) =>
      count === 0 && /Tokens$/.test(name) && unitsOf(others) !== ""
        ? "–"
        : number(count),
    "num",
  ]),
  ...(unitsOf(total) === "" ? [] : ["Units"]).map((label): Column<Row> => [
    label,
    ([, counts]) => unitsOf(counts) || "–",
  ]),
];

/** The range in the address; by default a day. */
export const rangeOf = (c: ConsoleContext): Range =>
  c.req.query("range") === "30d" ? "30d" : "24h";

/** The owner and the range of usage that is shown, and the address of the page. */
interface UsageQuery {
  ownerId: string;
  /** Null for all keys of the owner. */
  keyId?: string | null;
  /** The address of the page, to which links to other ranges lead. */
  base: string;
  range: Range;
}

/** Totals, charts and tables of a key or of all keys of an owner. */
export async function usageView(
  { redis, now, catalog }: Pick<ConsoleDeps, "redis" | "now" | "catalog">,
  { ownerId, keyId = null, base, range }: UsageQuery,
) {
  const { currency } = catalog.prices;
  const nowMs = now();
  const usage = await readUsage(redis, { ownerId, keyId }, { range, nowMs });
  const { total, models, endpoints, buckets } = usage;
  const { name, unit, head } = RANGES[range];
  const units = unitsIn(total);
  const isOthers = base.startsWith("/people");
  const [root = ""] = /^\/projects\/\w+/.exec(base) ?? [];
  return (
    <>
      <div class="row between">
        <Tabs
          label="Time"
          current={range}
          tabs={[["24h", "Last 24 hours"], ["30d", "Last 30 days"]]}
          to={(range) => `${base}?range=${range}`}
        />
        <a class="button small" href={`${base}/export.csv`}>Download CSV</a>
        {base.endsWith("/usage") && hasSpend(total) &&
          spendLinks(`${base}/spend.csv`, nowMs)}
      </div>
      <Facts
        look="totals"
        facts={{
          ...countFacts(total),
          ...spendFacts(total, currency),
        }}
      />
      {!total.requests && !total.refused
        ? (
          <Empty
            title={`No requests in the last ${name}`}
            lead="Requests appear here within seconds."
          />
        )
        : (
          <>
            <UsageCharts usage={usage} units={units} />
            <Failures
              counts={total}
              listed={requestsOf({ ownerId, root, keyId, isOthers })}
            />
            <Table
              caption="Usage by model, the most used first"
              title={<strong>By model</strong>}
              rows={mostUsed(models, (model) => model, "No known model")}
              columns={countColumns("Model", total, currency)}
            />
            <Table
              caption="Usage by endpoint, the most used first"
              title={<strong>By endpoint</strong>}
              rows={mostUsed(endpoints, labelOf, "No known endpoint")}
              columns={countColumns("Endpoint", total, currency)}
            />
            <details>
              <summary>Show as a table</summary>
              <Table
                caption={`Usage per ${unit}, newest first`}
                rows={buckets.toReversed().map((bucket): Row => [
                  range === "24h"
                    ? <Time key="" ms={bucket.startMs} as="minute" />
                    : dayText(bucket.startMs),
                  bucket,
                ])}
                columns={countColumns(head, total, currency)}
              />
            </details>
          </>
        )}
    </>
  );
}

/** The account whose keys are shown with their usage. */
interface ByKeyQuery extends Omit<UsageQuery, "keyId"> {
  /** Only keys that this owner created are named; undefined if all are. */
  createdBy: string | undefined;
  isProject: boolean;
}

/** The tables of usage by key, and in a project by member. */
async function usageByKey(
  { redis, now, catalog, people }: Pick<
    ConsoleDeps,
    "redis" | "now" | "catalog" | "people"
  >,
  { ownerId, createdBy, isProject, base, range }: ByKeyQuery,
) {
  const { currency } = catalog.prices;
  const time = { range, nowMs: now() };
  const account = { ownerId, keyId: null };
  const { total } = await readUsage(redis, account, time);
  if (!isUsed(total)) return null;
  const keys = await readUsageByKey(redis, { ownerId, createdBy }, time);
  if (keys === null) {
    return (
      <p class="help">
        There are more than {KEYS_SHOWN_MAX}{" "}
        keys. The files above have what each of them has used.
      </p>
    );
  }
  const rest = restOfUse(total, keys);
  const others = createdBy === undefined
    ? "Deleted keys and Try it"
    : "Other keys";
  const restRows: Row[] = isUsed(rest)
    ? [[<span key="" class="faint">{others}</span>, rest]]
    : [];
  const members = await Promise.all(
    [...useByMember(keys)].map(async ([id, counts]): Promise<Row> => [
      id === ""
        ? <span key="" class="faint">Not recorded</span>
        : <Email key="">{await people.name(id) ?? id}</Email>,
      counts,
    ]),
  );
  return (
    <>
      <Table
        caption="Usage by key, the most used first"
        title={<strong>By key</strong>}
        rows={[
          ...keys.map((key): Row => [keyName(key, base), key.counts]),
          ...restRows,
        ]}
        columns={countColumns("Key", total, currency)}
      />
      {isProject && createdBy === undefined && (
        <Table
          caption="Usage by the members who created the keys"
          title={<strong>By member</strong>}
          rows={[...members, ...restRows]}
          columns={countColumns("Member", total, currency)}
        />
      )}
    </>
  );
}

/** A row for each name, the most used first. */
function mostUsed(
  sums: ReadonlyMap<string, Counts>,
  label: (name: string) => string,
  unknown: string,
): Row[] {
  return [...sums]
    .sort(([, a], [, b]) => (b.requests ?? 0) - (a.requests ?? 0))
    .map(([name, counts]): Row => [
      name === "" ? <span key="" class="faint">{unknown}</span> : label(name),
      counts,
    ]);
}

/** The reasons of refusals and failures; nothing if there were none. */
function Failures(
  { counts, listed }: { counts: Counts; listed: string },
) {
  const reasons = FAILURE_REASONS.filter((reason) => counts[reason]);
  return reasons.length > 0 && (
    <Table
      caption="Reasons for refused and failed requests"
      title={
        <div class="row between">
          <strong>Refused or failed</strong>
          <a class="button small" href={listed}>Show requests</a>
        </div>
      }
      rows={reasons}
      columns={[
        ["Reason", wordsOf],
        ["Requests", (reason) => number(counts[reason] ?? 0), "num"],
      ]}
    />
  );
}
