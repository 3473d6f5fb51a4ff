/** Tables of counts. */

import {
  FAILURE_REASONS,
  USAGE_UNITS,
} from "@gateway/shared/keys/limiter_state";
import type { Child } from "hono/jsx";
import {
  CACHE_COUNTS,
  type Counts,
  MAIN_COUNTS,
  REQUEST_COUNTS,
} from "../../../domain/keys/usage.ts";
import { Table } from "../../view/parts.tsx";
import type { Column } from "../../view/sorting.tsx";
import {
  labelOf,
  money,
  moneyIn,
  number,
  Spent,
  unitsText,
} from "../../view/texts.tsx";
import { wordsOf } from "./reasons.ts";

/** The units other than tokens that were counted. */
export const unitsIn = (counts: Counts) =>
  USAGE_UNITS.filter((unit) => counts[unit]);

const unitsOf = (counts: Counts): string =>
  unitsIn(counts).map((unit) => unitsText(counts[unit] ?? 0, unit)).join(", ");

/** The counts that are always shown, and those of caches if anything was cached. */
const countsIn = (total: Counts) => [
  ...MAIN_COUNTS,
  ...CACHE_COUNTS.filter((name) => total[name]),
];

/** The counts of a total, whichever of them are shown. */
export const countFacts = (total: Counts): Record<string, string> =>
  Object.fromEntries(
    [...countsIn(total), ...unitsIn(total)]
      .map((name) => [labelOf(name), number(total[name] ?? 0)]),
  );

/** Whether anything was spent, or would have been if it had a price. */
export const hasSpend = (total: Counts): boolean =>
  Boolean(total.cost || total.unpriced);

/** The spend of a total, and the counts that belong to it. */
export function spendFacts(
  total: Counts,
  currency: string,
): Record<string, string> {
  if (!hasSpend(total)) return {};
  const { cost = 0, estimatedCost = 0 } = total;
  // How many requests had no price stands beside it.
  const facts: Record<string, string> = { Cost: money(cost, currency) };
  if (estimatedCost !== 0) {
    facts[labelOf("estimatedCost")] = money(estimatedCost, currency);
  }
  for (const name of REQUEST_COUNTS) {
    if (total[name]) facts[labelOf(name)] = number(total[name]);
  }
  return facts;
}

/** A name and its counts. */
export type Row = readonly [name: Child, counts: Counts];

const spentColumn = (amount: (nanos: number) => string): Column<Row> => [
  "Cost",
  ([, counts]) => <Spent key="" counts={counts} amount={amount} />,
  "sum",
];

/**
 * A column for each count, and one for all units. Beside units, no tokens are shown
 * instead of 0.
 */
export const countColumns = (
  head: string,
  total: Counts,
  currency: string,
): readonly Column<Row>[] => [
  [head, ([name]) => name],
  ...hasSpend(total) ? [spentColumn(moneyIn(currency))] : [],
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

/** A row for each name, the most used first. */
export function mostUsed(
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

/** A table of the reasons of refused and failed requests, if there are any. */
export function Failures(
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
