/** What a search for requests finds, as a CSV file. */
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
  ]);
