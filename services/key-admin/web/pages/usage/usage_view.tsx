/** Usage as totals, charts and tables, with the choice of the time. */

import type { Child } from "hono/jsx";
import {
  type Counts,
  isUsed,
  type UsageScope,
  withoutCounts,
} from "../../../domain/keys/usage.ts";
import { GATEWAY } from "../../../domain/usage/day_sums.ts";
import { spendMonths } from "../../../domain/keys/spend_csv.ts";
import type { UsageSpan } from "../../../domain/usage/span.ts";
import {
  type KeyUse,
  readUsageByKey,
  useByMember,
} from "../../../domain/usage/usage_by_key.ts";
import {
  type Grouping,
  sizeOf,
  type UsageGroup,
  type UsageReport,
} from "../../../domain/usage/usage_reports.ts";
import type { ConsoleDeps } from "../../context.ts";
import { operatorPath } from "../../request/key_scope.ts";
import { Empty, Facts, Table } from "../../view/parts.tsx";
import { Email, keyName, labelOf } from "../../view/texts.tsx";
import { requestsOf } from "./addresses.ts";
import { type MarkTexts, markTexts } from "./mark_text.ts";
import { spendForm } from "./spend_links.tsx";
import { type NamedGroup, UsageCharts } from "./usage_chart.tsx";
import { ChoiceForm, type UsageChoice } from "./usage_choice.tsx";
import {
  countColumns,
  countFacts,
  Failures,
  hasSpend,
  mostUsed,
  type Row,
  spendFacts,
  unitsIn,
} from "./usage_tables.tsx";

/** The account or key whose usage is shown, the time, and the place. */
export interface UsageQuery {
  /** {@link GATEWAY} for all accounts together. */
  ownerId: string;
  /** Null for all keys of the owner. */
  keyId?: string | null;
  /** The address of the page, to which links to other times lead. */
  base: string;
  choice: UsageChoice;
  /** Only keys that this owner created have names; undefined if all have. */
  createdBy?: string | undefined;
  /** The address of the pages of keys; undefined if keys have no table. */
  keys?: string | undefined;
  isProject?: boolean;
}

type ViewDeps = Pick<
  ConsoleDeps,
  "redis" | "now" | "catalog" | "people" | "usage"
>;

/** The usage of the parts of an account or of the gateway. */
interface Parts {
  by: "key" | "account";
  keys: readonly KeyUse[];
  /** By the id of a key or an account. */
  used: ReadonlyMap<string, Counts>;
  names: ReadonlyMap<string, string>;
}

/** Totals, charts and tables of a key, of all keys of an account, or of all accounts. */
export async function usageView(deps: ViewDeps, query: UsageQuery) {
  const { ownerId, keyId = null, base, choice, keys } = query;
  const { span } = choice;
  const groupings: readonly Grouping[] = [
    "model",
    "endpoint",
    ...(ownerId === GATEWAY ? ["account" as const] : []),
    ...(keys === undefined ? [] : ["key" as const]),
  ];
  const by = groupings.find((each) => each === choice.by) ?? null;
  const form = (
    <ChoiceForm base={base} choice={{ ...choice, by }} groupings={groupings} />
  );
  if (span === null) return form;
  const scope = { ownerId, keyId };
  const { report, groups } = await readReport(deps, { scope, span, by });
  const { total } = report;
  const texts = markTexts(span);
  const { currency } = deps.catalog.prices;
  const parts = await partsOf(deps, query, span);
  const isMonthly = keyId === null && /\/usage$/.test(base);
  return (
    <>
      {form}
      <Facts
        look="totals"
        facts={{ ...countFacts(total), ...spendFacts(total, currency) }}
      />
      {isMonthly && hasSpend(total) && (
        <div class="row">
          {spendForm(
            `${base}/spend.csv`,
            spendMonths(deps.now(), choice.defaultZone),
          )}
        </div>
      )}
      {!total.requests && !total.refused
        ? (
          <Empty
            title={emptyTitle(span)}
            lead="Requests appear here within seconds."
          />
        )
        : (
          <>
            <UsageCharts
              report={report}
              texts={texts}
              units={unitsIn(total)}
              groups={namedGroups(
                groups ?? await groupsOf(deps, { scope, report, by, parts }),
                { by, names: parts?.names },
              )}
              currency={currency}
            />
            <UsageTables
              report={report}
              texts={texts}
              currency={currency}
              listed={listedOf(query)}
              ofParts={parts && await partTables(deps, query, {
                parts,
                total,
                currency,
              })}
            />
          </>
        )}
    </>
  );
}

const emptyTitle = ({ preset }: UsageSpan): string =>
  preset === "24h"
    ? "No requests in the last 24 hours"
    : "No requests in this time";

/** The requests of the log that belong to it. */
function listedOf({ ownerId, keyId = null, base }: UsageQuery): string {
  const [root = ""] = /^\/projects\/\w+/.exec(base) ?? [];
  const isOthers = base.startsWith("/people");
  const account = ownerId === GATEWAY ? "" : ownerId;
  return requestsOf({ ownerId: account, root, keyId, isOthers });
}

/** Keys of the account or accounts of the gateway; null where there are no parts. */
async function partsOf(
  deps: ViewDeps,
  { ownerId, keys, createdBy }: UsageQuery,
  span: UsageSpan,
): Promise<Parts | null> {
  if (ownerId === GATEWAY) {
    const ids = await deps.people.accountIds();
    const used = await deps.usage.parts({ ownerId }, span, ids);
    const shown = [...used].sort(([, a], [, b]) => sizeOf(b) - sizeOf(a))
      .slice(0, ROWS_MAX).map(([id]) => id);
    const names = await Promise.all(
      shown.map(async (id) =>
        [id, await deps.people.name(id) || "First owner"] as const
      ),
    );
    return { by: "account", keys: [], used, names: new Map(names) };
  }
  if (keys === undefined) return null;
  const ofKeys = await readUsageByKey(deps, { ownerId, createdBy }, span);
  return {
    by: "key",
    keys: ofKeys,
    used: new Map(ofKeys.map(({ id, counts }) => [id, counts])),
    names: new Map(
      ofKeys.map(({ id, description, hint }) => [id, `${description} ${hint}`]),
    ),
  };
}

/** The usage of a span, with groups of models or endpoints if bars are stacked by them. */
async function readReport(
  { usage }: ViewDeps,
  { scope, span, by }: {
    scope: UsageScope;
    span: UsageSpan;
    by: Grouping | null;
  },
): Promise<{ report: UsageReport; groups: readonly UsageGroup[] | null }> {
  if (by !== "model" && by !== "endpoint") {
    return { report: await usage.read(scope, span), groups: null };
  }
  const report = await usage.readBy(scope, span, { by });
  return { report, groups: report.groups };
}

/** The groups of keys or accounts that the bars are stacked by; none by nothing. */
const groupsOf = async (
  { usage }: ViewDeps,
  { scope, report, by, parts }: {
    scope: UsageScope;
    report: UsageReport;
    by: Grouping | null;
    parts: Parts | null;
  },
): Promise<readonly UsageGroup[]> =>
  by === null || parts === null
    ? []
    : await usage.groupsOf(scope, report, parts.used);

function namedGroups(
  groups: readonly UsageGroup[],
  { by, names }: {
    by: Grouping | null;
    names: ReadonlyMap<string, string> | undefined;
  },
): NamedGroup[] {
  const nameOf = ({ id }: UsageGroup): string => {
    if (id === null) return "Others";
    if (id === "") return `No known ${by}`;
    return by === "endpoint" ? labelOf(id) : names?.get(id) ?? id;
  };
  return groups.map((group) => ({
    name: shortened(nameOf(group)),
    isOthers: group.id === null,
    buckets: group.buckets,
  }));
}

const NAME_CHARS_MAX = 40;
const shortened = (name: string): string =>
  name.length > NAME_CHARS_MAX ? `${name.slice(0, NAME_CHARS_MAX)}…` : name;

/** Rows of a table of keys or accounts; the file has all. */
const ROWS_MAX = 100;

/** The rows of parts, and the rest of the total as the last row. */
function partRows(rows: readonly Row[], total: Counts, others: string): Row[] {
  const shown = rows.slice(0, ROWS_MAX);
  const rest = shown.reduce(
    (rest, [, counts]) => withoutCounts(rest, counts),
    total,
  );
  const name = rows.length > shown.length ? "All others" : others;
  const restRows: Row[] = isUsed(rest)
    ? [[<span key="" class="faint">{name}</span>, rest]]
    : [];
  return [...shown, ...restRows];
}

/** Tables of keys and members, or of accounts, the most used first. */
async function partTables(
  { people }: Pick<ConsoleDeps, "people">,
  { keys, createdBy, isProject }: UsageQuery,
  { parts, total, currency }: { parts: Parts; total: Counts; currency: string },
) {
  if (parts.by === "account") {
    const rows = [...parts.names].map(([id, name]): Row => [
      <a key="" href={operatorPath(id)}>
        <Email>{name}</Email>
      </a>,
      parts.used.get(id) ?? {},
    ]);
    return (
      <Table
        caption="Usage by account, the most used first"
        title={<strong>By account</strong>}
        rows={partRows(rows, total, "Others")}
        columns={countColumns("Account", total, currency)}
      />
    );
  }
  const others = createdBy === undefined
    ? "Deleted keys and Try it"
    : "Other keys";
  const byKey = parts.keys.map((key): Row => [keyName(key, keys), key.counts]);
  const members = await Promise.all(
    [...useByMember(parts.keys)].map(async ([id, counts]): Promise<Row> => [
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
        rows={partRows(byKey, total, others)}
        columns={countColumns("Key", total, currency)}
      />
      {isProject && createdBy === undefined && (
        <Table
          caption="Usage by the members who created the keys"
          title={<strong>By member</strong>}
          rows={partRows(members, total, others)}
          columns={countColumns("Member", total, currency)}
        />
      )}
    </>
  );
}

/** The tables below the charts. */
function UsageTables({ report, texts, currency, listed, ofParts }: {
  report: UsageReport;
  texts: MarkTexts;
  currency: string;
  listed: string;
  ofParts: Child;
}) {
  const { span, total, models, endpoints, buckets } = report;
  const isHourly = span.unit === "hour";
  const named = buckets.map((counts, at): Row => [texts.full[at], counts]);
  return (
    <>
      <Failures counts={total} listed={listed} />
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
      {ofParts}
      <details>
        <summary>Show as a table</summary>
        <Table
          caption={`Usage per ${span.unit}, newest first, in ${span.zone}`}
          rows={named.toReversed()}
          columns={countColumns(
            isHourly ? "Hour from" : "Day",
            total,
            currency,
          )}
        />
      </details>
    </>
  );
}
