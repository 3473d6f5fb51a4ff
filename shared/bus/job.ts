/**
 * A job: one chat request on its way from an edge to a worker. JSON, because it is
 * read once per request; everything that is read per token is binary (`frame.ts`).
 *
 * The reply subject of the message is where the frames go; its last two ids are
 * the edge and the request.
 */
import { z } from "zod";
import { BUS_LIMITS } from "../limits.ts";
import type { ChatRequest } from "../openai/chat.ts";

export const JOB_VERSION = 1;

const jobSchema = z.object({
  version: z.int(),
  /** Which try of the request this is, from 1. */
  attempt: z.int().min(1),
  /** The edge gives up this long after it sent the job. */
  deadlineMs: z.int().min(1),
  /** W3C trace context of the request. */
  traceparent: z.string().max(100).exactOptional(),
  /** Set when the request follows in pieces because it is too large for one message. */
  body: z.object({ bytes: z.int().min(1), pieces: z.int().min(1) })
    .exactOptional(),
  request: z.unknown().optional(),
});

/** A job. Its request travels inside it or follows in pieces. */
export type JobMessage = Omit<z.infer<typeof jobSchema>, "request"> & {
  request?: ChatRequest;
};

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

/** Bytes of a job. */
export function encodeJob(job: JobMessage): Uint8Array {
  return encoder.encode(JSON.stringify(job));
}

/** Bytes of a request, to be cut into pieces. */
export function encodeRequest(request: ChatRequest): Uint8Array {
  return encoder.encode(JSON.stringify(request));
}

/**
 * Reads a job. The envelope is checked in full; the request only for what the
 * worker relies on before a backend reads it, because edges have checked it and
 * nobody else may publish here.
 */
export function decodeJob(bytes: Uint8Array): JobMessage {
  const parsed = jobSchema.safeParse(parseJson(bytes));
  if (!parsed.success) {
    throw new JobFormatError(
      `Cannot read a job: ${z.prettifyError(parsed.error)}`,
      null,
    );
  }
  const { request, ...envelope } = parsed.data;
  const { version, attempt, body } = envelope;
  if (version !== JOB_VERSION) {
    throw new JobFormatError(
      `Cannot read a job of version ${version}: this worker speaks ${JOB_VERSION}`,
      attempt,
    );
  }
  if (body === undefined) return { ...envelope, request: requestOf(request) };
  if (body.pieces !== pieceCount(body.bytes)) {
    throw new JobFormatError(
      `Cannot read a job: ${body.bytes} bytes do not make ${body.pieces} pieces here`,
      attempt,
    );
  }
  return envelope;
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

/*
 * Pieces of a request too large for one message. The edge cuts, the worker puts
 * together; every piece is a NATS request whose empty reply acknowledges it.
 *
 * 0  u32  attempt   which try of the request this belongs to
 * 4  u32  index     0, 1, 2 …
 * 8  …    bytes
 */
const PIECE_HEADER_BYTES = 8;
const INDEX_OFFSET = 4;

export interface BodyPiece {
  attempt: number;
  index: number;
  /** A view into the message. */
  bytes: Uint8Array;
}

/** How many pieces a body of this size makes. */
export function pieceCount(bodyBytes: number): number {
  return Math.ceil(bodyBytes / BUS_LIMITS.pieceBytes);
}

/** Message with piece `index` of `body`. */
export function encodePiece(
  body: Uint8Array,
  attempt: number,
  index: number,
): Uint8Array {
  const start = index * BUS_LIMITS.pieceBytes;
  const part = body.subarray(start, start + BUS_LIMITS.pieceBytes);
  const message = new Uint8Array(PIECE_HEADER_BYTES + part.length);
  const view = new DataView(message.buffer);
  view.setUint32(0, attempt);
  view.setUint32(INDEX_OFFSET, index);
  message.set(part, PIECE_HEADER_BYTES);
  return message;
}

/** Reads a piece, or null when the message is too short to be one. */
export function decodePiece(message: Uint8Array): BodyPiece | null {
  if (message.length < PIECE_HEADER_BYTES) return null;
  const view = new DataView(
    message.buffer,
    message.byteOffset,
    PIECE_HEADER_BYTES,
  );
  return {
    attempt: view.getUint32(0),
    index: view.getUint32(INDEX_OFFSET),
    bytes: message.subarray(PIECE_HEADER_BYTES),
  };
}

/** What became of a piece that was added. */
export type AddedPiece = "more" | "complete" | "invalid";

/**
 * Puts a body together. Memory is taken once, for the announced size, so a
 * sender cannot make it grow; a piece twice is harmless.
 */
export class BodyAssembly {
  readonly #body: Uint8Array;
  readonly #has: boolean[];
  #missing: number;

  constructor(announced: { bytes: number; pieces: number }) {
    if (announced.pieces !== pieceCount(announced.bytes)) {
      throw new RangeError(
        `Cannot assemble a body: ${announced.bytes} bytes do not make ${announced.pieces} pieces`,
      );
    }
    this.#body = new Uint8Array(announced.bytes);
    this.#has = new Array<boolean>(announced.pieces).fill(false);
    this.#missing = announced.pieces;
  }

  /** The body, once `add` said it is complete. */
  get body(): Uint8Array {
    return this.#body;
  }

  add(piece: BodyPiece): AddedPiece {
    const start = piece.index * BUS_LIMITS.pieceBytes;
    const expected = Math.min(
      BUS_LIMITS.pieceBytes,
      this.#body.length - start,
    );
    if (piece.bytes.length !== expected) return "invalid";
    if (this.#has[piece.index] === false) {
      this.#has[piece.index] = true;
      this.#missing -= 1;
      this.#body.set(piece.bytes, start);
    }
    return this.#missing === 0 ? "complete" : "more";
  }
}

/*
 * Beats: how edges know which workers live and how full they are. Those of edges
 * are empty.
 */
export const BEAT_VERSION = 1;

/** What a worker says of itself every `workerBeatMs`. */
export interface WorkerBeat {
  version: number;
  /** Jobs it runs at once. */
  slots: number;
  inFlight: number;
  /** It takes no more jobs and will leave. */
  draining: boolean;
  /** Ids of the models it can run. */
  models: string[];
}

const workerBeatSchema = z.object({
  version: z.literal(BEAT_VERSION),
  slots: z.number().int().min(0),
  inFlight: z.number().int().min(0),
  draining: z.boolean(),
  models: z.array(z.string()),
});

export function encodeWorkerBeat(beat: WorkerBeat): Uint8Array {
  return encoder.encode(JSON.stringify(beat));
}

/** The beat, or null when it is of another version or damaged: such a worker is not used. */
export function decodeWorkerBeat(bytes: Uint8Array): WorkerBeat | null {
  let value: unknown;
  try {
    value = JSON.parse(decoder.decode(bytes));
  } catch {
    return null; // Damaged: the same as silence.
  }
  const parsed = workerBeatSchema.safeParse(value);
  return parsed.success ? parsed.data : null;
}
