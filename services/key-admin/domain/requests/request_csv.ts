/** What a search for requests finds, as a CSV file. */
import { parseBudgetText } from "@gateway/shared/keys/budget_state";
import { formatAmount } from "@gateway/shared/money/amount";
import { csvHead, csvLine } from "../store/csv.ts";
import type {
  FoundRequest,
  RequestLog,
  RequestPage,
  RequestQuery,
} from "./request_log.ts";

const ROWS = 1_000;

const COLUMNS = [
  "time",
  "request_id",
  "account_id",
  "key_id",
  "outcome",
  "reason",
  "status",
  "code",
  "param",
  "endpoint",
  "model",
  "duration_ms",
  "first_byte_ms",
  "server",
  "attempts",
  "client_address",
  "more",
  "budget",
  "budget_spent",
  "budget_held",
  "budget_allowed",
  "budget_reset_at",
];

/** All that a search finds, newest first, in parts of one page to bound memory. */
export async function* requestCsv(
  requests: Pick<RequestLog, "search">,
  query: Omit<RequestQuery, "after" | "rows">,
): AsyncGenerator<string> {
  yield csvHead(COLUMNS);
  let after: string | null = "";
  while (after !== null) {
    const page: RequestPage = await requests.search({
      ...query,
      after,
      rows: ROWS,
    });
    yield page.rows.map(lineOf).join("");
    after = page.next;
  }
}

const lineOf = (row: FoundRequest): string =>
  csvLine([
    new Date(row.timeMs).toISOString(),
    row.requestId,
    row.ownerId,
    row.keyId,
    row.outcome,
    row.reason,
    row.status,
    row.code,
    row.param,
    row.endpoint,
    row.model,
    row.durationMs,
    row.firstByteMs ?? "",
    row.backend,
    row.attempts,
    row.clientAddress,
    row.more,
    ...Object.values(budgetCells(row)).map((cell) => cell ?? ""),
  ]);

/** What a budget said that refused a request, by the names of the last columns. */
export function budgetCells({ budget: text }: Pick<FoundRequest, "budget">) {
  const budget = parseBudgetText(text);
  const amount = (nanos: number | undefined) =>
    nanos === undefined ? null : formatAmount(nanos);
  const resetMs = budget?.resetMs ?? null;
  return {
    budget: budget?.name ?? null,
    budget_spent: amount(budget?.spent),
    budget_held: amount(budget?.held),
    budget_allowed: amount(budget?.limit),
    budget_reset_at: resetMs === null ? null : new Date(resetMs).toISOString(),
  };
}
