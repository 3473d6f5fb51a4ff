/** `requests …`: the request log, as the page "Requests" of the console shows it. */
import type { z } from "zod";
import { REQUESTS as PAGE } from "../api/answers.ts";
import { shortTime } from "../domain/models/model_views.ts";
import { TIME_FORMS } from "../domain/requests/request_query.ts";
import { namedAccount, pageOf } from "./accounts.ts";
import { type Area, type Invocation, type Output } from "./command_line.ts";

type RequestJson = z.output<typeof PAGE>["requests"][number];

const COLUMNS = [
  "time",
  "what",
  "reason",
  "status",
  "key_id",
  "model",
  "took",
  "server",
  "request_id",
] as const;

async function search(invocation: Invocation): Promise<Output> {
  const { api, options } = invocation;
  const { from, until, key, model, code, request, outcome } = options;
  const account = await namedAccount(invocation);
  const texts = { from, until, key, model, code, request, outcome };
  const { after, rows } = pageOf(invocation);
  const query = { account, ...texts, after, rows };
  const page = await api.ask(PAGE, "GET /requests", { query });
  const { requests, next, missing_before: missing, at } = page;
  const notes = [
    requests.length === 0 &&
    "No requests found: none was refused, failed or slow",
    missing !== null && `Requests before ${missing} may be missing`,
    next !== null && `More: --after "${next}"`,
  ].filter((note) => note !== false);
  return {
    json: { requests, next, at },
    table: { rows: requests.map(rowOf), columns: COLUMNS },
    note: notes.length === 0 ? "" : `\n${notes.join("\n")}`,
  };
}

const rowOf = (
  row: RequestJson,
): Record<typeof COLUMNS[number], unknown> => ({
  time: row.time,
  what: row.more === 0 ? row.outcome : `${row.outcome} (+${row.more})`,
  reason: reasonOf(row),
  status: row.status,
  key_id: row.key_id,
  model: row.model || "-",
  took: shortTime(row.duration_ms),
  server: row.server || "-",
  request_id: row.request_id,
});

/**
 * Returns the reason of a refusal, with the numbers of the budget if one refused it.
 */
const reasonOf = (row: RequestJson): string =>
  row.budget === null
    ? row.reason || "-"
    : `${row.reason}: ${row.budget_spent} of ${row.budget_allowed} spent, ${row.budget_held} held`;

/** The commands on requests. */
export const REQUESTS: Area = {
  title: "Find requests that were refused, that failed or that were slow.",
  commands: [{
    usage: "search",
    help: "show them, newest first (default)",
    run: search,
    options: [
      "owner",
      "project",
      "from",
      "until",
      "key",
      "model",
      "code",
      "request",
      "outcome",
      "rows",
      "after",
    ],
  }],
  usual: "search",
  notes:
    `Without --owner or --project, those of all accounts. Times: ${TIME_FORMS}.
(+N): N more like it in the same second. Prompts and answers are not stored.`,
};
