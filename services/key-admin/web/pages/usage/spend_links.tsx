/** The files with the spend of a month, and the links to them. */
import {
  type SpendMonth,
  spendMonths,
  type SpendQuery,
} from "../../../domain/keys/spend_csv.ts";
import { type ConsoleContext, Refused } from "../../context.ts";

/**
 * Returns the month that the address asks for, if it is still there; by default the
 * current one.
 */
export function spendQueryOf(c: ConsoleContext): SpendQuery {
  const { now, catalog, budgetZone } = c.var.deps;
  const nowMs = now();
  const months = spendMonths(nowMs, budgetZone);
  const name = c.req.query("month");
  const month = name === undefined
    ? months[0]
    : months.find((each) => each.name === name);
  if (month === undefined) {
    throw new Refused(404, "The usage of this month is not there as a whole");
  }
  return { month, currency: catalog.prices.currency, nowMs };
}

/** Returns the name of the file of a month. */
export const spendFile = ({ month }: SpendQuery): string =>
  `spend-${month.name}.csv`;

/** A form that downloads the file of a month. */
export const spendForm = (path: string, months: readonly SpendMonth[]) => (
  <form class="row search" method="get" action={path}>
    <select name="month" aria-label="Month">
      {months.map(({ name }) => (
        <option key={name} value={name}>Spend of {name}</option>
      ))}
    </select>
    <button type="submit">Download CSV</button>
  </form>
);
