/** The files with the spend of a month, and the links to them. */
import {
  spendMonths,
  type SpendQuery,
} from "../../../domain/keys/spend_csv.ts";
import { type ConsoleContext, Refused } from "../../context.ts";

/**
 * Returns the month that the address asks for, if it is still there; by default the
 * current one.
 */
export function spendQueryOf(c: ConsoleContext): SpendQuery {
  const { now, catalog } = c.var.deps;
  const nowMs = now();
  const months = spendMonths(nowMs);
  const month = c.req.query("month") ?? months[0] ?? "";
  if (!months.includes(month)) {
    throw new Refused(404, "The usage of this month is not there as a whole");
  }
  return { month, currency: catalog.prices.currency, nowMs };
}

/** Returns the name of the file of a month. */
export const spendFile = ({ month }: SpendQuery): string =>
  `spend-${month}.csv`;

/** A form that downloads the file of a month. */
export const spendForm = (path: string, nowMs: number) => (
  <form class="row search" method="get" action={path}>
    <select name="month" aria-label="Month">
      {spendMonths(nowMs).map((month) => (
        <option value={month}>Spend of {month}</option>
      ))}
    </select>
    <button type="submit">Download CSV</button>
  </form>
);
