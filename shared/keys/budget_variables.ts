/** What services that know budgets read of their environment. */
import * as env from "../process/env.ts";
import { z } from "zod";
import { isTimeZone } from "./budget_calendar.ts";

/** The same for edges and key-admin. */
export const BUDGET_VARIABLES = {
  BUDGET_TIME_ZONE: env.variable(z.string().refine(isTimeZone), {
    expects: "a time zone such as Europe/Berlin",
  }).default("UTC").describe(
    "The time zone in which the days and months of budgets begin; the same for edges and key-admin",
  ),
};
