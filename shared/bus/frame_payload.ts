/**
 * What the rare frames carry: JSON, made by the sender and never trusted by the
 * receiver. A payload that is not what its type says parses to null.
 */

import { z } from "zod";
import { ApiError, ERROR_KINDS, type ErrorCode } from "../openai/error.ts";
import type { FinishReason, Usage } from "../openai/chat.ts";
import { encodeFrame, FrameType } from "./frame.ts";

/** ACCEPT and BEAT: which worker runs the job. `{"worker":"w1"}` */
export interface AcceptPayload {
  worker: string;
}

/**
 * Why a worker does not run a job. `stale`: it slept while the job waited.
 * `other`: a reason that this version does not know.
 */
const REJECT_REASONS = [
  "full",
  "draining",
  "unknown_model",
  "stale",
  "unsupported_version",
  "other",
] as const;

/** One of {@link REJECT_REASONS}. */
export type RejectReason = typeof REJECT_REASONS[number];

/** REJECT. `{"worker":"w1","reason":"full","retryAfterMs":200}` */
export interface RejectPayload {
  worker: string;
  reason: RejectReason;
  /** When this worker expects to have room. */
  retryAfterMs: number | null;
}

/** END. `{"worker":"w1","usage":{…},"finishReasons":["stop"]}` */
export interface EndPayload {
  /** What the backend counted, or null when it counted nothing. */
  usage: Usage | null;
  /** One for each choice, by its index. */
  finishReasons: FinishReason[];
}

/** ERR: an {@link ApiError} on its way to the edge, and what the attempt had used up. */
export interface ErrPayload {
  status: number;
  code: ErrorCode;
  message: string;
  type: string;
  param: string | null;
  wireCode: string | null;
  retryAfterMs: number | null;
  /** Whether another worker may try, as long as the client has not seen a byte. */
  retryable: boolean;
  usage: Usage | null;
}

/** Texts of an error are cut at these lengths so that an ERR always fits one frame. */
const MESSAGE_CHARS_MAX = 8_192;
const NAME_CHARS_MAX = 512;

const count = z.int().nonnegative();
const durationMs = z.number().nonnegative();
/** Ids become part of subjects, so nothing but base62 passes. */
const workerId = z.string().regex(/^[0-9A-Za-z]{1,64}$/);

const usageSchema = z.object({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  prompt_tokens_details: z.object({ cached_tokens: count }).exactOptional(),
  completion_tokens_details: z.object({ reasoning_tokens: count })
    .exactOptional(),
});

const acceptSchema = z.object({ worker: workerId });

const rejectSchema = z.object({
  worker: workerId,
  reason: z.enum(REJECT_REASONS).catch("other"),
  retryAfterMs: durationMs.nullable(),
});

const endSchema = z.object({
  worker: workerId,
  usage: usageSchema.nullable(),
  finishReasons: z.array(
    z.enum(["stop", "length", "tool_calls", "content_filter"]),
  ),
});

const errSchema = z.object({
  worker: workerId,
  status: z.int().min(400).max(599),
  // A newer worker may know codes that this edge does not.
  code: z.string().transform((code) =>
    isErrorCode(code) ? code : "internal_error"
  ),
  message: z.string(),
  type: z.string(),
  param: z.string().nullable(),
  wireCode: z.string().nullable(),
  retryAfterMs: durationMs.nullable(),
  retryable: z.boolean(),
  usage: usageSchema.nullable(),
});

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** Payload of ACCEPT and BEAT. */
export function encodeAccept(worker: string): Uint8Array {
  return encoder.encode(JSON.stringify({ worker }));
}

/** A whole REJECT frame: a rejected job never has a sender. */
export function encodeRejectFrame(
  attempt: number,
  reject: RejectPayload,
): Uint8Array {
  return encodeFrame(
    { type: FrameType.REJECT, sequence: 0, attempt, tokens: 0 },
    encoder.encode(JSON.stringify(reject)),
  );
}

/** Payload of END. */
export function encodeEnd(worker: string, end: EndPayload): Uint8Array {
  return encoder.encode(JSON.stringify({ worker, ...end }));
}

/** Payload of ERR. Overlong texts are cut. */
export function encodeErr(worker: string, error: ErrPayload): Uint8Array {
  return encoder.encode(JSON.stringify({
    worker,
    ...error,
    message: error.message.slice(0, MESSAGE_CHARS_MAX),
    type: error.type.slice(0, NAME_CHARS_MAX),
    param: error.param?.slice(0, NAME_CHARS_MAX) ?? null,
    wireCode: error.wireCode?.slice(0, NAME_CHARS_MAX) ?? null,
  }));
}

/** The worker that sent an ACCEPT, BEAT, END or ERR. */
export function parseWorker(payload: Uint8Array): string | null {
  return parseJson(acceptSchema, payload)?.worker ?? null;
}

/** REJECT. A reason from a newer worker is `other`. */
export function parseReject(payload: Uint8Array): RejectPayload | null {
  return parseJson(rejectSchema, payload);
}

/** END, with the worker that sent it. */
export function parseEnd(
  payload: Uint8Array,
): (AcceptPayload & EndPayload) | null {
  return parseJson(endSchema, payload);
}

/** ERR, with the worker that sent it. A code from a newer worker is `internal_error`. */
export function parseErr(
  payload: Uint8Array,
): (AcceptPayload & ErrPayload) | null {
  return parseJson(errSchema, payload);
}

/** Packs an error for the bus. */
export function errPayloadOf(
  error: ApiError,
  attempt: { retryable: boolean; usage: Usage | null },
): ErrPayload {
  return {
    status: error.status,
    code: error.code,
    message: error.message,
    type: error.type,
    param: error.param,
    wireCode: error.wireCode,
    retryAfterMs: error.retryAfterMs,
    retryable: attempt.retryable,
    usage: attempt.usage,
  };
}

/** Unpacks it again: what the edge sends to the client. */
export function apiErrorOf(payload: ErrPayload): ApiError {
  const { status, type, wireCode, param, retryAfterMs } = payload;
  return new ApiError(payload.code, payload.message, {
    status,
    type,
    wireCode,
    ...(param === null ? {} : { param }),
    ...(retryAfterMs === null ? {} : { retryAfterMs }),
  });
}

function parseJson<T>(schema: z.ZodType<T>, payload: Uint8Array): T | null {
  let value: unknown;
  try {
    value = JSON.parse(decoder.decode(payload));
  } catch {
    // Neither UTF-8 nor JSON: the caller treats null as a broken frame.
    return null;
  }
  const parsed = schema.safeParse(value);
  return parsed.success ? parsed.data : null;
}

function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERROR_KINDS, code);
}
