/** `requests …`: the request log, as the page "Requests" of the console shows it. */
import { isoTime } from "../domain/keys/key_json.ts";
import { budgetCells } from "../domain/requests/request_csv.ts";
import { PAGE_ROWS } from "../domain/keys/key_page.ts";
import { shortTime } from "../domain/models/model_views.ts";
import type { FoundRequest } from "../domain/requests/request_log.ts";
import {
  parseRequestQuery,
  REQUEST_FIELDS,
  TIME_FORMS,
} from "../domain/requests/request_query.ts";
import {
  type Area,
  findOwner,
  findProject,
  type Invocation,
  type Output,
  UsageError,
} from "./command_line.ts";

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
  const { options, now, requests } = invocation;
  const query = queryFrom(invocation);
  const ownerId = await accountOf(invocation);
  const { rows, next, missingBeforeMs } = await requests.search({
    ...query,
    ownerId,
    after: options.after ?? "",
    rows: options.rows ?? PAGE_ROWS,
  });
  const notes = [
    rows.length === 0 && "No requests found: none was refused, failed or slow",
    missingBeforeMs !== null &&
    `Requests before ${isoTime(missingBeforeMs)} may be missing`,
    next !== null && `More: --after "${next}"`,
  ].filter((note) => note !== false);
  return {
    json: { requests: rows.map(jsonOf), next, at: isoTime(now()) },
    table: { rows: rows.map(rowOf), columns: COLUMNS },
    note: notes.length === 0 ? "" : `\n${notes.join("\n")}`,
  };
}

/** Returns the account that `--owner` or `--project` names; null for all accounts. */
async function accountOf(invocation: Invocation): Promise<string | null> {
  const { owner, project } = invocation.options;
  if (project === undefined) {
    return owner === undefined ? null : await findOwner(invocation, owner);
  }
  if (owner === undefined) return (await findProject(invocation, project)).id;
  throw new UsageError("--owner and --project: A key has one account");
}

function queryFrom({ options, now }: Invocation) {
  const texts = {
    from: options.from ?? "",
    until: options.until ?? "",
    key: options.key ?? "",
    model: options.model ?? "",
    code: options.code ?? "",
    request: options.request ?? "",
    outcome: options.outcome ?? "",
  } satisfies Record<typeof REQUEST_FIELDS[number], string>;
  const query = parseRequestQuery(texts, now());
  if ("message" in query) {
    throw new UsageError(`--${query.field}: ${query.message}`);
  }
  return query;
}

/** In the order and with the names of the CSV file. */
const jsonOf = (row: FoundRequest) => ({
  time: isoTime(row.timeMs),
  request_id: row.requestId,
  account_id: row.ownerId,
  key_id: row.keyId,
  outcome: row.outcome,
  reason: row.reason,
  status: row.status,
  code: row.code,
  param: row.param,
  endpoint: row.endpoint,
  model: row.model,
  duration_ms: row.durationMs,
  first_byte_ms: row.firstByteMs,
  server: row.backend,
  attempts: row.attempts,
  client_address: row.clientAddress,
  more: row.more,
  ...budgetCells(row),
});

const rowOf = (
  row: FoundRequest,
): Record<typeof COLUMNS[number], unknown> => ({
  time: isoTime(row.timeMs),
  what: row.more === 0 ? row.outcome : `${row.outcome} (+${row.more})`,
  reason: reasonOf(row),
  status: row.status,
  key_id: row.keyId,
  model: row.model || "-",
  took: shortTime(row.durationMs),
  server: row.backend || "-",
  request_id: row.requestId,
});

/**
 * Returns the reason of a refusal, with the numbers of the budget if one refused it.
 */
function reasonOf(row: FoundRequest): string {
  const { budget, budget_spent, budget_held, budget_allowed } = budgetCells(
    row,
  );
  return budget === null
    ? row.reason || "-"
    : `${row.reason}: ${budget_spent} of ${budget_allowed} spent, ${budget_held} held`;
}

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
(+N): so many more like it in the same second. Prompts and answers are not stored.`,
};
