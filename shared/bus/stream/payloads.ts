/**
 * The payloads of frames other than DATA: JSON with the worker's id, so that an edge
 * can answer such a frame even if it does not know the request. Receivers do not trust
 * them: a malformed one parses to null.
 */
import { z } from "zod";
import type { Usage } from "../../openai/completion.ts";
import { ApiError, isErrorCode } from "../../openai/error.ts";
import { encodeFrame, encodeJson, FrameType, parsePayload } from "./frame.ts";

const count = z.int().nonnegative();
const durationMs = z.number().nonnegative();

/** Part of every payload but DATA. Ids become part of subjects, so they are base62. */
const workerSchema = z.object({
  worker: z.string().regex(/^[0-9A-Za-z]{1,64}$/),
});

const usageSchema = z.object({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  prompt_tokens_details: z.object({
    cached_tokens: count,
    cache_write_tokens: count.exactOptional(),
  }).exactOptional(),
  completion_tokens_details: z.object({ reasoning_tokens: count })
    .exactOptional(),
});

const rejectSchema = workerSchema.extend({
  /**
   * `stale`: it was stalled while the job waited. `saturated`: the servers of the model
   * are at limits of theirs. `other`: a reason that this version does not know.
   */
  reason: z.enum([
    "full",
    "draining",
    "unknown_model",
    "stale",
    "saturated",
    "unsupported_version",
    "other",
  ]).catch("other"),
  /** When this worker expects to have a free slot or, of `saturated`, its servers. */
  retryAfterMs: durationMs.nullable(),
});

/** The payload of REJECT: the worker, why it refuses, and when it may have a slot. */
export type RejectPayload = z.infer<typeof rejectSchema>;

/** Why a worker does not run a job. */
export type RejectReason = RejectPayload["reason"];

const BACKEND_CHARS_MAX = 200;
/** The backend that was asked last, for logs. */
const backend = z.string().max(BACKEND_CHARS_MAX).optional();
const backendSchema = z.object({ backend });

const endSchema = workerSchema.extend({
  usage: usageSchema.nullable(),
  backend,
});

/** What a worker says of an answer that is complete. */
export interface AnswerEnd {
  /** The backend's count, or null if it sent none. */
  usage: Usage | null;
  /** The backend that made it. Absent: an older worker. */
  backend?: string | undefined;
}

/** What the last frame of a complete answer says. */
export interface EndPayload extends AnswerEnd {
  worker: string;
}

/** Why the answer failed, and its usage up to then. */
export interface Failure {
  /** The code of the error that the client gets. */
  error: ApiError;
  /** Whether another worker may try, if the client has not received a byte. */
  retryable: boolean;
  /** The backend's count, or null if it sent none. */
  usage: Usage | null;
  /** The backend that was asked last. Absent: none was, or by an older worker. */
  backend?: string | undefined;
}

/** What the last frame of a failed answer says. */
export interface ErrPayload extends Failure {
  worker: string;
}

const ownAnswerSchema = z.object({
  status: z.int().min(400).max(599),
  contentType: z.string(),
  body: z.string(),
  headers: z.record(z.string(), z.string()),
});

const errSchema = endSchema.extend({
  status: z.int().min(400).max(599),
  code: z.string(),
  message: z.string(),
  type: z.string(),
  param: z.string().nullable(),
  wireCode: z.string().nullable(),
  retryAfterMs: durationMs.nullable(),
  retryable: z.boolean(),
  answer: ownAnswerSchema.optional(),
}).transform(({ code, message, ...read }) => {
  const { worker, usage, backend, retryable, ...rest } = read;
  // A newer worker may know codes that this edge does not.
  const knownCode = isErrorCode(code) ? code : "internal_error";
  const error = new ApiError(knownCode, message, {
    ...rest,
    param: rest.param ?? undefined,
    retryAfterMs: rest.retryAfterMs ?? undefined,
  });
  return { worker, usage, backend, retryable, error };
});

/** Returns a whole REJECT frame, because a rejected job never has a sender. */
export function encodeRejectFrame(
  offerNumber: number,
  reject: RejectPayload,
): Uint8Array {
  const header = {
    type: FrameType.REJECT,
    sequence: 0,
    offerNumber,
    tokens: 0,
  };
  return encodeFrame(header, encodeJson(reject));
}

/** Bounds of the texts in an ERR, so that it always fits one frame. */
const MESSAGE_CHARS_MAX = 8_192;
const NAME_CHARS_MAX = 512;
/** The longest answer of a model server that is passed on; a longer one is left out. */
const ANSWER_BYTES_MAX = 32 * 1024;

/** Returns the payload of ERR. Texts that are too long for one frame are cut. */
export function encodeErr(
  worker: string,
  { error, retryable, usage, backend }: Failure,
): Uint8Array {
  const { status, code, message, type, param, wireCode, retryAfterMs } = error;
  const { answer } = error;
  const fits = answer !== null &&
    encodeJson(answer).length <= ANSWER_BYTES_MAX;
  return encodeJson({
    worker,
    status,
    code,
    message: message.slice(0, MESSAGE_CHARS_MAX),
    type: type.slice(0, NAME_CHARS_MAX),
    param: param?.slice(0, NAME_CHARS_MAX) ?? null,
    wireCode: wireCode?.slice(0, NAME_CHARS_MAX) ?? null,
    retryAfterMs,
    retryable,
    usage,
    backend,
    answer: fits ? answer : undefined,
  });
}

/**
 * Returns the id of the worker that sent an ACCEPT, BEAT, END or ERR; null if the
 * payload names none.
 */
export function parseWorker(payload: Uint8Array): string | null {
  return parsePayload(workerSchema, payload)?.worker ?? null;
}

/** Returns the backend that an END or ERR names, if any. */
export function parseBackend(payload: Uint8Array): string | undefined {
  return parsePayload(backendSchema, payload)?.backend;
}

/** Reads the payload of REJECT; null if it is malformed. */
export function parseReject(payload: Uint8Array): RejectPayload | null {
  return parsePayload(rejectSchema, payload);
}

/** Reads the payload of END; null if it is malformed. */
export function parseEnd(payload: Uint8Array): EndPayload | null {
  return parsePayload(endSchema, payload);
}

/** Reads the payload of ERR; null if it is malformed. */
export function parseErr(payload: Uint8Array): ErrPayload | null {
  return parsePayload(errSchema, payload);
}
