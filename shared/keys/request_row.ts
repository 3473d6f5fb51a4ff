/**
 * The rows of the request log: requests that were refused, that failed or that were
 * slow. Edges write them to `requests:{owner}`, a stream of Redis; key-admin searches
 * them. A row has no content of a request, and no key.
 */

/**
 * What is remarkable about a request. `cut`: it ran, and an error ended its stream.
 * `slow`: it did not fail, but its first byte came late.
 */
export const REQUEST_OUTCOMES = ["refused", "failed", "cut", "slow"] as const;
/** A member of {@link REQUEST_OUTCOMES}. */
export type RequestOutcome = typeof REQUEST_OUTCOMES[number];

/** The reason of requests with a key that was deleted. They are in no count. */
export const KEY_DELETED = "key_deleted";

/** A row of the request log. An empty text: not known, or there is none. */
export interface RequestRow {
  /** When it ended, by the clock of its edge. */
  timeMs: number;
  /** As the client got it: `req_` and 32 hexadecimal digits. */
  requestId: string;
  keyId: string;
  outcome: RequestOutcome;
  /** The status that was sent: 200 for a stream that had started. */
  status: number;
  /** The code in the body of the error. */
  code: string;
  /** A `FailureReason`, or {@link KEY_DELETED}; empty for a slow one. */
  reason: string;
  /** The field of the request that was wrong. */
  param: string;
  /** As the client named it, clipped. */
  model: string;
  /** A `UsageEndpoint`. */
  endpoint: string;
  /** From its arrival to its end. */
  durationMs: number;
  /** From its arrival to the first byte of its answer; null: there was none. */
  firstByteMs: number | null;
  /** The model server that was asked last. */
  backend: string;
  /** How many workers were offered it. */
  attempts: number;
  clientAddress: string;
  /** Further requests like it, of the same second, that have no row of their own. */
  more: number;
  /** The budget that refused it, see `budgetText`; rows of earlier versions: empty. */
  budget: string;
}

/** A row as it is stored: a JSON list, which takes half the space of an object. */
export const encodeRow = (row: RequestRow): string =>
  JSON.stringify([
    Math.round(row.timeMs),
    row.requestId,
    row.keyId,
    row.outcome,
    row.status,
    row.code,
    row.reason,
    row.param,
    row.model,
    row.endpoint,
    Math.round(row.durationMs),
    row.firstByteMs === null ? null : Math.round(row.firstByteMs),
    row.backend,
    row.attempts,
    row.clientAddress,
    row.more,
    row.budget,
  ]);

/**
 * A stored row. Throws if it is none; a later version may have written more. By hand,
 * because a million of them are read at a time.
 */
export function decodeRow(text: string): RequestRow {
  const parts: unknown = JSON.parse(text);
  const outcome = REQUEST_OUTCOMES.find((each) => each === partOf(parts, 3));
  if (outcome === undefined) throw new Error("A row has an unknown outcome");
  return {
    timeMs: numberOf(parts, 0),
    requestId: textOf(parts, 1),
    keyId: textOf(parts, 2),
    outcome,
    status: numberOf(parts, 4),
    code: textOf(parts, 5),
    reason: textOf(parts, 6),
    param: textOf(parts, 7),
    model: textOf(parts, 8),
    endpoint: textOf(parts, 9),
    durationMs: numberOf(parts, 10),
    firstByteMs: partOf(parts, 11) === null ? null : numberOf(parts, 11),
    backend: textOf(parts, 12),
    attempts: numberOf(parts, 13),
    clientAddress: textOf(parts, 14),
    more: numberOf(parts, 15),
    budget: partOf(parts, 16) === undefined ? "" : textOf(parts, 16),
  };
}

const partOf = (parts: unknown, at: number): unknown =>
  Array.isArray(parts) ? parts[at] : undefined;

function textOf(parts: unknown, at: number): string {
  const part = partOf(parts, at);
  if (typeof part !== "string") throw new Error(`A row lacks its text ${at}`);
  return part;
}

function numberOf(parts: unknown, at: number): number {
  const part = partOf(parts, at);
  if (typeof part !== "number") throw new Error(`A row lacks its number ${at}`);
  return part;
}
