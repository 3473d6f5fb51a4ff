/** Usage as totals, charts and tables, with the choice of the time. */

import type { Child } from "hono/jsx";
import { spendMonths } from "../../../domain/keys/spend_csv.ts";
import type { UsageScope } from "../../../domain/keys/usage.ts";
import { GATEWAY } from "../../../domain/usage/day_sums.ts";
import type { UsageSpan } from "../../../domain/usage/span.ts";
import type {
  Grouping,
  UsageGroup,
} from "../../../domain/usage/usage_reports.ts";
import type { ConsoleDeps } from "../../context.ts";
import { Empty, Facts, Table } from "../../view/parts.tsx";
import { labelOf } from "../../view/texts.tsx";
import { requestsOf } from "./addresses.ts";
import { type MarkTexts, markTexts } from "./mark_text.ts";
import {
  type GroupedReport,
  type ShownReport,
  shownReport,
} from "./shown_report.ts";
import { spendForm } from "./spend_links.tsx";
import { type NamedGroup, UsageCharts } from "./usage_chart.tsx";
import { ChoiceForm } from "./usage_choice.tsx";
import {
  partNames,
  type Parts,
  partsFor,
  type PartsQuery,
  partTables,
  readParts,
} from "./usage_parts.tsx";
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
export interface UsageQuery extends PartsQuery {
  /** Null for all keys of the owner. */
  keyId?: string | null;
  /** The address of the page, to which links to other times lead. */
  base: string;
}

type ViewDeps = Pick<
  ConsoleDeps,
  "redis" | "now" | "catalog" | "people" | "usage"
>;

/** Totals, charts and tables of a key, of all keys of an account, or of all accounts. */
export async function usageView(deps: ViewDeps, query: UsageQuery) {
  const { ownerId, keyId = null, base, choice, keys } = query;
  const { span } = choice;
  const groupings: readonly Grouping[] = [
    "model",
    "endpoint",
    ...(ownerId === GATEWAY ? ["account" as const] : []),
    ...(keys === undefined && ownerId !== GATEWAY ? [] : ["key" as const]),
  ];
  const by = groupings.find((each) => each === choice.by) ?? null;
  const form = (
    <ChoiceForm base={base} choice={{ ...choice, by }} groupings={groupings} />
  );
  if (span === null) return form;
  const scope = { ownerId, keyId };
  const [parts, whole] = await Promise.all([
    readParts(deps, query, span),
    readReport(deps, { scope, span, by }),
  ]);
  const report = shownReport(await withParts(deps, whole, { by, parts }));
  const { total, groups } = report;
  const texts = markTexts(report.span);
  const { currency } = deps.catalog.prices;
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
              groups={namedGroups(groups, {
                by,
                names: parts === null ? new Map() : partNames(parts),
              })}
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

/** The usage of a span, with models or endpoints that bars are stacked by. */
async function readReport(
  { usage }: ViewDeps,
  { scope, span, by }: {
    scope: UsageScope;
    span: UsageSpan;
    by: Grouping | null;
  },
): Promise<GroupedReport> {
  return by === "model" || by === "endpoint"
    ? await usage.readBy(scope, span, { by })
    : { ...await usage.read(scope, span), groups: [] };
}

/** The same with keys or accounts, if bars are stacked by these. */
async function withParts(
  { usage }: ViewDeps,
  report: GroupedReport,
  { by, parts }: { by: Grouping | null; parts: Parts | null },
): Promise<GroupedReport> {
  if (parts === null || (by !== "key" && by !== "account")) return report;
  const groups = await usage.groupsOf(report, partsFor(by, parts));
  return { ...report, groups };
}

function namedGroups(
  groups: readonly UsageGroup[],
  { by, names }: {
    by: Grouping | null;
    /** The names of keys and accounts, by id. */
    names: ReadonlyMap<string, string>;
  },
): NamedGroup[] {
  const nameOf = ({ id }: UsageGroup): string => {
    if (id === null) return "Others";
    if (id === "") return `No known ${by}`;
    return by === "endpoint" ? labelOf(id) : names.get(id) ?? id;
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

/** The head of the column of what the bars are. */
const HEADS = { hour: "Hour from", day: "Day", week: "Week" } as const;

/** The tables below the charts. */
function UsageTables({ report, texts, currency, listed, ofParts }: {
  report: ShownReport;
  texts: MarkTexts;
  currency: string;
  listed: string;
  ofParts: Child;
}) {
  const { span, total, models, endpoints, buckets } = report;
  const named = buckets.map((counts, at): Row => [texts.full[at], counts]);
  return (
    <>
      <Failures counts={total} listed={listed} />
      <Table
        caption="Usage by model, the most used first"
        title={<strong>By model</strong>}
        rows={mostUsed(models, (model) => model, "Unknown, or not read")}
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
            HEADS[span.unit],
            total,
            currency,
          )}
        />
      </details>
    </>
  );
}
