/** Searches for requests, for tests. */
import type { RequestQuery } from "./request_log.ts";

/** A search for all requests of all accounts. */
export const ANY: RequestQuery = {
  ownerId: null,
  keyIds: null,
  model: "",
  code: "",
  requestId: "",
  outcome: "",
  fromMs: null,
  toMs: null,
  after: "",
  rows: 50,
};
