/** A row of the request log as commands and the admin API show it. */
import { isoTime } from "../keys/key_json.ts";
import { budgetCells } from "./request_csv.ts";
import type { FoundRequest } from "./request_log.ts";

/** In the order and with the names of the CSV file. */
export const requestJson = (row: FoundRequest) => ({
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
