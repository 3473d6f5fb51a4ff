/** What a worker tells of its backends: messages of some rows each. */
import { z } from "zod";
import { encodeJson, parsePayload } from "../bus/stream/frame.ts";
import { WORKER_FAMILIES, type WorkerFamily } from "../bus/subjects.ts";
import { BACKEND_LIMITS } from "./limits.ts";
import { CELLS } from "./log_histogram.ts";

const REPORT_VERSION = 1;
const ID_CHARS_MAX = 300;
const NAME_CHARS_MAX = 64;

/** The states of a circuit breaker, the worst first. */
export const BREAKER_STATES = ["open", "half-open", "closed"] as const;

const count = z.int().min(0);
/** Only durations: the clocks of machines differ. */
const ms = z.number().min(0);
const cells = z.array(z.tuple([z.int().min(0).max(CELLS - 1), count]))
  .max(CELLS);

const rowSchema = z.object({
  model: z.string().max(ID_CHARS_MAX),
  backend: z.string().max(NAME_CHARS_MAX),
  preference: count,
  /** Its share among backends of the same preference, as it counts now. */
  weight: z.number().positive(),
  state: z.enum(BREAKER_STATES),
  /** How long the breaker stays open; absent: it is not. */
  openMs: ms.optional(),
  /** How long the server has asked not to be called; absent: it has not. */
  limitedMs: ms.optional(),
  /** It gets no new requests. */
  isDrained: z.literal(true).optional(),
  /** How it has answered its last probe; absent: there was none. */
  probe: z.object({ ageMs: ms, isFailed: z.boolean() }).optional(),
  inFlight: count.default(0),
  /** In the last hour, as all that follows. */
  requests: count.default(0),
  failures: count.default(0),
  /** Counts by cell, without the cells that are empty. */
  firstTokens: cells.default([]),
  rates: cells.default([]),
  /** The last error, in the server's words, without secrets. */
  error: z.object({
    text: z.string().max(BACKEND_LIMITS.errorCharsMax),
    ageMs: ms,
  }).optional(),
});

const reportSchema = z.object({
  version: z.literal(REPORT_VERSION),
  family: z.enum(WORKER_FAMILIES),
  rows: z.array(rowSchema).max(BACKEND_LIMITS.rowsPerMessage),
});

/** One backend of one model, as a worker sees it. */
export type BackendRow = z.infer<typeof rowSchema>;
/** A row to send: what is absent counts as nothing. */
export type BackendRowInput = z.input<typeof rowSchema>;

/** Some of the backends of a worker. */
export interface BackendReport {
  family: WorkerFamily;
  rows: readonly BackendRow[];
}

/** The messages that tell these rows. */
export function encodeReports(
  family: WorkerFamily,
  rows: readonly BackendRowInput[],
): Uint8Array[] {
  const messages: Uint8Array[] = [];
  for (let at = 0; at < rows.length; at += BACKEND_LIMITS.rowsPerMessage) {
    const part = rows.slice(at, at + BACKEND_LIMITS.rowsPerMessage);
    messages.push(encodeJson({ version: REPORT_VERSION, family, rows: part }));
  }
  return messages;
}

/** Reads a message; null if it is malformed or of another version. */
export const decodeReport = (bytes: Uint8Array): BackendReport | null =>
  parsePayload(reportSchema, bytes);

/** The cells that are not empty, with their counts. */
export function sparse(counts: ArrayLike<number>): [number, number][] {
  const filled: [number, number][] = [];
  for (let cell = 0; cell < counts.length; cell++) {
    const count = counts[cell] ?? 0;
    if (count > 0) filled.push([cell, count]);
  }
  return filled;
}
