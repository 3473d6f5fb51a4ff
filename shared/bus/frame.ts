/**
 * Frames of one answer on its way from a worker to an edge: 16 bytes of header,
 * then the payload. Numbers are big-endian.
 *
 * ```
 * 0  u8   version        1
 * 1  u8   type           see FrameType
 * 2  u16  flags          none defined: sent as 0, not looked at
 * 4  u32  sequence       1, 2, 3 … over DATA, END and ERR; other types carry the last one sent
 * 8  u32  attempt        which try of the request this belongs to, from 1
 * 12 u32  tokens         completion tokens produced up to here
 * 16 …    payload
 * ```
 *
 * Every dispatch of a request has its own attempt number, a dispatch that was
 * rejected included: it is all that tells a late frame from a current one.
 *
 * DATA payloads, put together in order, are one byte stream of lines, each ended
 * by `\n`. A line is one chunk of JSON, or, for a call without `stream`, the one
 * whole response. A frame may hold several lines or end in the middle of one.
 *
 * All other payloads are JSON with the worker's id in it, so that an edge can
 * answer such a frame even when it knows nothing of the request. Receivers do not
 * trust them: one that is not what its type says parses to null.
 */
import { z } from "zod";
import type { Usage } from "../openai/chat.ts";
import { ApiError, ERROR_KINDS, type ErrorCode } from "../openai/error.ts";

const FRAME_VERSION = 1;
export const FRAME_HEADER_BYTES = 16;

/** Largest value of the header's 32-bit numbers. */
export const FRAME_NUMBER_MAX = 0xffff_ffff;

/** What a frame says. */
export const FrameType = {
  /** The job runs here. Payload: {@link AcceptPayload}. Implied by BEAT, and by DATA, END and ERR when the edge chose the worker. */
  ACCEPT: 1,
  /** The job does not run here. Payload: {@link RejectPayload}. Has no sequence number and is never repeated. */
  REJECT: 2,
  /** Part of the answer. */
  DATA: 3,
  /** The answer is complete. Payload: {@link EndPayload}. */
  END: 4,
  /** The answer will not be completed. Payload: {@link ErrPayload}. */
  ERR: 5,
  /** Still at work, and this is how far it got. Payload: {@link AcceptPayload}. */
  BEAT: 6,
} as const;

export type FrameType = typeof FrameType[keyof typeof FrameType];

/** Each type at its own number. */
const FRAME_TYPES: readonly (FrameType | undefined)[] = [
  undefined,
  ...Object.values(FrameType),
];

/** The header of a frame, without what is the same in every frame. */
export interface FrameHeader {
  type: FrameType;
  sequence: number;
  attempt: number;
  tokens: number;
}

/** A frame as it was received. `payload` is a view into the message, not a copy. */
export interface Frame extends FrameHeader {
  payload: Uint8Array;
}

/** Why bytes are not a frame. Their receiver counts and ignores them. */
export type FrameFault = "short" | "unknown_version" | "unknown_type";

/** One message: header and payload in one new array. */
export function encodeFrame(
  header: FrameHeader,
  payload: Uint8Array,
): Uint8Array<ArrayBuffer> {
  const frame = new Uint8Array(FRAME_HEADER_BYTES + payload.length);
  writeFrameHeader(header, frame);
  frame.set(payload, FRAME_HEADER_BYTES);
  return frame;
}

/** Writes the header into the first 16 bytes. Numbers beyond 32 bits are cut. */
export function writeFrameHeader(
  header: FrameHeader,
  target: Uint8Array,
): void {
  target[0] = FRAME_VERSION;
  target[1] = header.type;
  target[2] = 0;
  target[3] = 0;
  writeU32(target, 4, header.sequence);
  writeU32(target, 8, header.attempt);
  writeU32(target, 12, header.tokens);
}

/** Reads one message. Never throws: what cannot be read is named by a {@link FrameFault}. */
export function decodeFrame(message: Uint8Array): Frame | FrameFault {
  if (message.length < FRAME_HEADER_BYTES) return "short";
  if (message[0] !== FRAME_VERSION) return "unknown_version";
  const type = FRAME_TYPES[message[1] ?? 0];
  if (type === undefined) return "unknown_type";
  return {
    type,
    sequence: readU32(message, 4),
    attempt: readU32(message, 8),
    tokens: readU32(message, 12),
    payload: message.subarray(FRAME_HEADER_BYTES),
  };
}

/** Big-endian. By hand because a DataView per frame costs more than the four writes. */
export function writeU32(
  target: Uint8Array,
  offset: number,
  value: number,
): void {
  target[offset] = value >>> 24;
  target[offset + 1] = value >>> 16;
  target[offset + 2] = value >>> 8;
  target[offset + 3] = value;
}

/** Big-endian. Bytes beyond the end read as 0: the caller has checked the length. */
export function readU32(source: Uint8Array, offset: number): number {
  return (((source[offset] ?? 0) << 24) |
    ((source[offset + 1] ?? 0) << 16) |
    ((source[offset + 2] ?? 0) << 8) |
    (source[offset + 3] ?? 0)) >>> 0;
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

/** ACCEPT and BEAT: which worker runs the job. */
const acceptSchema = z.object({ worker: workerId });
export type AcceptPayload = z.infer<typeof acceptSchema>;

const rejectSchema = z.object({
  worker: workerId,
  /** `stale`: it slept while the job waited. `other`: one that this version does not know. */
  reason: z.enum([
    "full",
    "draining",
    "unknown_model",
    "stale",
    "unsupported_version",
    "other",
  ]).catch("other"),
  /** When this worker expects to have room. */
  retryAfterMs: durationMs.nullable(),
});
export type RejectPayload = z.infer<typeof rejectSchema>;
/** Why a worker does not run a job. */
export type RejectReason = RejectPayload["reason"];

const endSchema = z.object({
  worker: workerId,
  /** What the backend counted, or null when it counted nothing. */
  usage: usageSchema.nullable(),
  /** One for each choice, by its index. */
  finishReasons: z.array(
    z.enum(["stop", "length", "tool_calls", "content_filter"]),
  ),
});
export type EndPayload = Omit<z.infer<typeof endSchema>, "worker">;

/** An {@link ApiError} on its way to the edge, and what the attempt had used up. */
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
  /** Whether another worker may try, as long as the client has not seen a byte. */
  retryable: z.boolean(),
  usage: usageSchema.nullable(),
});
export type ErrPayload = Omit<z.infer<typeof errSchema>, "worker">;

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
