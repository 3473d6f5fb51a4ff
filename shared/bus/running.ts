/**
 * What runs now. key-admin asks when somebody wants to see it; edges tell their
 * requests, and workers at which backends they are. Nothing is told without a question,
 * so a request costs nothing more for it.
 */
import { z } from "zod";
import { REQUEST_LIMITS } from "../limits.ts";
import { encodeJson, parsePayload } from "./stream/frame.ts";

/** What edges and workers tell of the requests that run, each in one message. */
export const RUNNING_LIMITS = {
  /**
   * Requests that one edge reports. With the longest names, a message of 900 KiB: the
   * bus takes 1 MiB. The newest are left out beyond that, and the page says so.
   */
  runsMax: 1_000,
  /** Requests that one worker reports: half a MiB. */
  backendsMax: 4_000,
  /** Longest name of a backend. */
  nameCharsMax: 64,
} as const;

/**
 * How far a request has come: `waiting` for a worker, `running` without a byte of its
 * answer at the client, or `streaming`.
 */
export const RUN_STATES = ["waiting", "running", "streaming"] as const;

const id = z.string().regex(/^[0-9A-Za-z_]{1,64}$/);
const requestId = z.string().regex(/^[0-9a-f]{32}$/);
const count = z.int().nonnegative();

const questionSchema = z.discriminatedUnion("what", [
  /** Tell the requests of an account; null: of all. */
  z.object({ what: z.literal("list"), ask: id, account: id.nullable() }),
  /** Stop a request of an account, and say so. */
  z.object({ what: z.literal("stop"), ask: id, account: id, requestId }),
]);

/** What key-admin asks of edges and workers; `ask` comes back with each answer. */
export type RunningQuestion = z.infer<typeof questionSchema>;

const runSchema = z.object({
  requestId,
  keyId: id,
  account: id,
  kind: z.string().max(RUNNING_LIMITS.nameCharsMax),
  model: z.string().max(REQUEST_LIMITS.modelCharsMax),
  workerId: id.nullable(),
  state: z.enum(RUN_STATES),
  /** How long ago it was admitted. */
  ageMs: count,
  /** What it has made so far, in tokens or the unit of its kind. */
  tokens: count,
});

/** A request that runs, as its edge knows it. */
export type RunningRequest = z.infer<typeof runSchema>;

const answerSchema = z.discriminatedUnion("from", [
  z.object({
    from: z.literal("edge"),
    ask: id,
    /** How many run that were asked for; the oldest are told. */
    total: count,
    runs: z.array(runSchema).max(RUNNING_LIMITS.runsMax),
    /** Whether it has stopped the request that it was asked to stop. */
    hasStopped: z.boolean(),
  }),
  z.object({
    from: z.literal("worker"),
    ask: id,
    /** The backend that was asked last, by request. */
    backends: z.record(requestId, z.string().max(RUNNING_LIMITS.nameCharsMax)),
  }),
]);

/** What one edge or one worker answers. */
export type RunningAnswer = z.infer<typeof answerSchema>;

/** Returns the message of a question, which {@link decodeRunningQuestion} reads. */
export const encodeRunningQuestion = (question: RunningQuestion): Uint8Array =>
  encodeJson(question);

/** Reads a question; null if it is malformed or of another version. */
export const decodeRunningQuestion = (
  bytes: Uint8Array,
): RunningQuestion | null => parsePayload(questionSchema, bytes);

/** Returns the message of an answer, which {@link decodeRunningAnswer} reads. */
export const encodeRunningAnswer = (answer: RunningAnswer): Uint8Array =>
  encodeJson(answer);

/** Reads an answer; null if it is malformed or of another version. */
export const decodeRunningAnswer = (bytes: Uint8Array): RunningAnswer | null =>
  parsePayload(answerSchema, bytes);
