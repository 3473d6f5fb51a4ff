/**
 * A job: one chat request on its way from an edge to a worker. JSON, because it is
 * read once per request; everything that is read per token is binary (`frame.ts`).
 *
 * The reply subject of the message is where the frames go; its last two ids are
 * the edge and the request.
 */
import { z } from "zod";
import type { ChatRequest } from "../openai/chat.ts";
import { pieceCount } from "./body_piece.ts";

export const JOB_VERSION = 1;

/** Everything of a job but the request. */
export interface JobEnvelope {
  version: number;
  /** Which try of the request this is, from 1. */
  attempt: number;
  /** The edge gives up this long after it sent the job. */
  deadlineMs: number;
  /** W3C trace context of the request. */
  traceparent?: string;
  /** Set when the request follows in pieces because it is too large for one message. */
  body?: { bytes: number; pieces: number };
}

/** A job whose request travels inside it. */
export interface Job extends JobEnvelope {
  request: ChatRequest;
}

const envelopeSchema = z.object({
  version: z.number().int(),
  attempt: z.number().int().min(1),
  deadlineMs: z.number().int().min(1),
  traceparent: z.string().max(100).exactOptional(),
  body: z.object({
    bytes: z.number().int().min(1),
    pieces: z.number().int().min(1),
  }).exactOptional(),
});

/** A message that is not a job this worker understands. */
export class JobFormatError extends Error {
  override readonly name = "JobFormatError";
  constructor(
    message: string,
    /** The attempt, when only the version or its piece size is wrong: another worker may understand the job. */
    readonly mismatchedAttempt: number | null,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** Bytes of a job with its request inside. */
export function encodeJob(job: Job): Uint8Array {
  return encoder.encode(JSON.stringify(job));
}

/** Bytes of a job whose request follows in pieces. */
export function encodeEnvelope(envelope: JobEnvelope): Uint8Array {
  return encoder.encode(JSON.stringify(envelope));
}

/** Bytes of a request, to be cut into pieces. */
export function encodeRequest(request: ChatRequest): Uint8Array {
  return encoder.encode(JSON.stringify(request));
}

/** A received job; `request` is absent when it follows in pieces. */
export interface ReceivedJob extends JobEnvelope {
  request?: ChatRequest;
}

/**
 * Reads a job. The envelope is checked in full; the request only for what the
 * worker relies on before a backend reads it, because edges have checked it and
 * nobody else may publish here.
 */
export function decodeJob(bytes: Uint8Array): ReceivedJob {
  const value = parseJson(bytes);
  const parsed = envelopeSchema.safeParse(value);
  if (!parsed.success) {
    throw new JobFormatError(
      `Cannot read a job: ${z.prettifyError(parsed.error)}`,
      null,
    );
  }
  if (parsed.data.version !== JOB_VERSION) {
    throw new JobFormatError(
      `Cannot read a job of version ${parsed.data.version}: this worker speaks ${JOB_VERSION}`,
      parsed.data.attempt,
    );
  }
  const envelope: JobEnvelope = parsed.data;
  const { attempt, body } = envelope;
  if (body !== undefined && body.pieces !== pieceCount(body.bytes)) {
    throw new JobFormatError(
      `Cannot read a job: ${body.bytes} bytes do not make ${body.pieces} pieces here`,
      attempt,
    );
  }
  if (body !== undefined) return envelope;
  return { ...envelope, request: requestOf(memberOf(value, "request")) };
}

/** Reads a request that came in pieces, put together again. */
export function decodeRequest(bytes: Uint8Array): ChatRequest {
  return requestOf(parseJson(bytes));
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(decoder.decode(bytes));
  } catch (cause) {
    throw new JobFormatError("Cannot read a job: it is not JSON", null, {
      cause,
    });
  }
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null
    ? Object.getOwnPropertyDescriptor(value, name)?.value
    : undefined;
}

function requestOf(value: unknown): ChatRequest {
  if (!isChatRequest(value)) {
    throw new JobFormatError(
      "Cannot read a job: its request is damaged",
      null,
    );
  }
  return value;
}

function isChatRequest(value: unknown): value is ChatRequest {
  return typeof value === "object" && value !== null &&
    "model" in value && typeof value.model === "string" &&
    "messages" in value && Array.isArray(value.messages) &&
    "stream" in value && typeof value.stream === "boolean" &&
    "include_usage" in value && typeof value.include_usage === "boolean" &&
    "n" in value && typeof value.n === "number";
}
