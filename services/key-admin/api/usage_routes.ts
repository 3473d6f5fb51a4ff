/** Routes of the admin API for usage and spend. */
import { z } from "zod";
import { spendCsv, spendMonths } from "../domain/keys/spend_csv.ts";
import { MONTHS } from "./answers.ts";
import { NO_BODY, NOTHING } from "./fields.ts";
import { AdminRefused, adminRoute } from "./route.ts";

/** Routes of the scope `usage`. */
export const USAGE_ROUTES = [
  adminRoute({
    method: "GET",
    path: "/usage/months",
    scope: "usage",
    summary: "List the months of which all usage is still there",
    query: NOTHING,
    body: NO_BODY,
    answers: MONTHS,
    run: ({ deps: { now } }) =>
      Promise.resolve({ json: { months: spendMonths(now()) } }),
  }),
  adminRoute({
    method: "GET",
    path: "/usage/months/:id",
    scope: "usage",
    summary:
      "Export a month, such as 2026-11, as CSV: a line for each account, key, endpoint and model",
    query: NOTHING,
    body: NO_BODY,
    answers: "csv",
    run: ({ deps: { redis, people, catalog, now }, id: month }) => {
      const months = spendMonths(now());
      if (!z.enum(months).safeParse(month).success) {
        const message = `There is usage of ${months.join(", ")}`;
        throw new AdminRefused("not_found", message);
      }
      const { currency = "" } = catalog?.prices ?? {};
      const query = { month, currency, nowMs: now() };
      const csv = spendCsv(redis, people.accounts(), query);
      return Promise.resolve({ csv });
    },
  }),
];
