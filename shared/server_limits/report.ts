/** What a worker tells the others of its use of limited servers and keys. */
import { z } from "zod";
import { encodeJson, parsePayload } from "../bus/stream/frame.ts";

/** The version of reports; one of another version is ignored. */
const REPORT_VERSION = 1;
/** A message of this many entries has some 700 kB. */
const ENTRIES_MAX = 5_000;

const count = z.number().nonnegative();
/** Clocks differ, so that only durations are told. */
const durationMs = z.number().nonnegative();

const useEntry = z.object({
  /** The server or the key of it, see `idOf()`. */
  id: z.string().max(64),
  inFlight: count,
  /** Requests of the last minute; the tokens are those of the last minute, too. */
  requests: count,
  tokens: count,
  /** When the first of them are forgotten. */
  nextFreeMs: durationMs,
  /** How long it is not to be used, because its server has said so to this worker. */
  coolingMs: durationMs,
  /** Whether that was by a refusal: then one request tries it first. */
  isRefused: z.boolean(),
  /** How long it is not to be used, because its server does not know the key. */
  deadMs: durationMs,
});

const proof = z.object({
  /** The server and its model, see `idOf()`. */
  id: z.string().max(64),
  /** How long ago it has answered this worker. */
  agoMs: durationMs,
});

const reportSchema = z.object({
  version: z.literal(REPORT_VERSION),
  /** The worker has just started, and wants to hear from the others. */
  isNew: z.boolean(),
  /** The worker takes no more requests. */
  isLeaving: z.boolean(),
  uses: z.array(useEntry).max(ENTRIES_MAX),
  /** Servers that are probed and have answered, so that no other need ask them. */
  proved: z.array(proof).max(ENTRIES_MAX).default([]),
});

/** The use of one server or key, as a worker tells it. */
export type UseEntry = z.infer<typeof useEntry>;

/** What a worker tells. */
export type UseReport = Omit<z.infer<typeof reportSchema>, "version">;

/** Returns the message of a report. */
export function encodeReport(report: UseReport): Uint8Array {
  const uses = report.uses.slice(0, ENTRIES_MAX);
  const proved = report.proved.slice(0, ENTRIES_MAX);
  return encodeJson({ version: REPORT_VERSION, ...report, uses, proved });
}

/** Reads a report; null if it is malformed or of another version. */
export function decodeReport(bytes: Uint8Array): UseReport | null {
  return parsePayload(reportSchema, bytes);
}
