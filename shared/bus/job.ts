/**
 * A job: one request on its way from an edge to a worker. Its reply subject names the
 * edge, which gets the frames, and the request.
 */
import { Buffer } from "node:buffer";
import { z } from "zod";
import { BUS_LIMITS } from "../limits.ts";
import { WORKER_FAMILIES } from "./subjects.ts";
import { serverListsSchema } from "./server_lists.ts";
import { encodeJson, parsePayload, readU32, writeU32 } from "./stream/frame.ts";

const MIB = 1024 * 1024;

/** The version of a job. A worker rejects jobs of any other. */
export const JOB_VERSION = 2;

const encoder = new TextEncoder();
const CLOSING_BRACE = "}".charCodeAt(0);

/** A request as a job carries it. The service that runs it knows its other fields. */
export interface JobRequest {
  readonly model: string;
  readonly stream: boolean;
}

const requestSchema = z.custom<JobRequest>((value) =>
  typeof value === "object" && value !== null &&
  "model" in value && typeof value.model === "string" &&
  "stream" in value && typeof value.stream === "boolean"
);

const versionSchema = z.object({
  version: z.int(),
  /**
   * The number of this offer of the request, from 1. The name is older than the word
   * "offer", and stays: edges and workers of different releases read it.
   */
  attempt: z.int().min(1),
});

const jobSchema = versionSchema.extend({
  /** The edge ends the request this long after it sent the job. */
  deadlineMs: z.int().min(1),
  traceparent: z.string().max(100).optional(),
  /** Whose request it is. Absent: the edge's own, or that of an older edge. */
  account: z.string().max(100).optional(),
  /** The tokens that it asks for, if it has waited at its edge. */
  queuedTokens: z.number().min(0).optional(),
  /** The conversation that it belongs to, where a model has several equal servers. */
  session: z.string().regex(/^[0-9a-f]{16}$/).optional(),
  /** Its answer is also kept in the log, encrypted with this key. */
  keep: z.object({
    /** 32 bytes in base64. */
    key: z.base64().length(44),
    /** The API key of the request, which may be stopped without its edge. */
    keyId: z.string().max(100),
  }).optional(),
  /**
   * Set when the request follows in pieces: it is too large for one message, or files
   * come before it.
   */
  upload: z.literal(true).optional(),
  request: requestSchema.optional(),
});

/** A job as it was received: either its request, or `upload` if pieces follow. */
export type JobMessage = z.infer<typeof jobSchema>;

/**
 * Returns the message of a job with its request, which is JSON in UTF-8; null if that
 * is too large for one message.
 */
export function encodeWholeJob(
  job: Omit<JobMessage, "upload" | "request">,
  request: Uint8Array,
): Uint8Array | null {
  // The members of a job are ASCII.
  const head = `${JSON.stringify(job).slice(0, -1)},"request":`;
  const bytes = head.length + request.length + 1;
  if (bytes > BUS_LIMITS.jobBytesMax) return null;
  const message = Buffer.allocUnsafe(bytes);
  encoder.encodeInto(head, message);
  message.set(request, head.length);
  message[bytes - 1] = CLOSING_BRACE;
  return message;
}

/** The number of the offer of a job whose version this worker does not know. */
export interface MismatchedJob {
  mismatchedOffer: number;
}

/**
 * Reads a job; null if it is malformed. Of a job of another version, which another
 * worker may understand, it reads only the number of the offer. Of the request it
 * checks the fields of {@link JobRequest}: edges have checked the others.
 */
export function decodeJob(
  bytes: Uint8Array,
): JobMessage | MismatchedJob | null {
  const job = parsePayload(jobSchema, bytes);
  const { version, attempt } = job ?? parsePayload(versionSchema, bytes) ?? {};
  if (attempt === undefined) return null;
  if (version !== JOB_VERSION) return { mismatchedOffer: attempt };
  const isValid = (job?.upload === undefined) !== (job?.request === undefined);
  return isValid ? job : null;
}

const PIECE_HEADER_BYTES = 8;
/** The index of the last piece, which is an {@link UploadEnd}. */
const UPLOAD_END_INDEX = 2 ** 32 - 1;

/**
 * A piece of files, or of a request that is too large for one message. Every piece is a
 * NATS request whose empty reply acknowledges it. Numbers are big-endian.
 *
 * ```
 * 0  u32  offer number   the offer that this belongs to
 * 4  u32  index          0, 1, 2 …
 * 8  …    bytes
 * ```
 */
export interface BodyPiece {
  offerNumber: number;
  index: number;
  /** A view of the message. */
  bytes: Uint8Array;
}

/** Returns the message of a piece, which {@link decodePiece} reads. */
export function encodePiece(
  bytes: Uint8Array,
  offerNumber: number,
  index: number,
): Uint8Array {
  const message = new Uint8Array(PIECE_HEADER_BYTES + bytes.length);
  writeU32(message, 0, offerNumber);
  writeU32(message, 4, index);
  message.set(bytes, PIECE_HEADER_BYTES);
  return message;
}

/**
 * The request of an upload as JSON if it is too large for the last piece, else null.
 */
export function encodeLargeRequest({ request }: UploadEnd): Uint8Array | null {
  if (request === undefined) return null;
  const bytes = encodeJson(request);
  return bytes.length > BUS_LIMITS.jobBytesMax ? bytes : null;
}

/** Returns the message of the last piece of an upload. */
export function encodeUploadEnd(
  end: UploadEnd,
  offerNumber: number,
): Uint8Array {
  return encodePiece(encodeJson(end), offerNumber, UPLOAD_END_INDEX);
}

/** Reads a piece; null if the message is too short to be one. */
export function decodePiece(message: Uint8Array): BodyPiece | null {
  if (message.length < PIECE_HEADER_BYTES) return null;
  return {
    offerNumber: readU32(message, 0),
    index: readU32(message, 4),
    bytes: message.subarray(PIECE_HEADER_BYTES),
  };
}

const uploadEndSchema = z.object({
  /** Absent if the last pieces were those of the request. */
  request: requestSchema.optional(),
  /** The files whose bytes the first pieces had, in this order. */
  files: z.array(z.object({
    field: z.string(),
    name: z.string(),
    /** Its media type as the client stated it. */
    type: z.string(),
    bytes: z.int().min(0),
  })),
});

/** What follows the pieces of an upload. */
export type UploadEnd = z.infer<typeof uploadEndSchema>;

/** A file of an upload: what its form says about it, and its bytes. */
export type UploadedFile = Omit<UploadEnd["files"][number], "bytes"> & {
  content: Uint8Array;
};

/** A request that came in pieces, and the files that came before it. */
export interface UploadedRequest {
  /** Null if it is malformed. */
  request: JobRequest | null;
  files: readonly UploadedFile[];
}

/**
 * Memory that is set aside for an upload, but not taken before its pieces come: more
 * than any edge lets pass.
 */
const RESERVED_BYTES = 256 * MIB;

/** An upload whose pieces have all come. */
export class CompleteUpload {
  readonly #buffer: ArrayBuffer;
  readonly #end: UploadEnd;

  /** `buffer` has the pieces. */
  constructor(buffer: ArrayBuffer, end: UploadEnd) {
    this.#buffer = buffer;
    this.#end = end;
  }

  /** Whether all pieces are those of a request, which is not read yet. */
  get isJson(): boolean {
    const { request, files } = this.#end;
    return request === undefined && files.length === 0;
  }

  /** Reads the request. Its pieces are freed; files stay where they are. */
  read(): UploadedRequest {
    let at = 0;
    const files = this.#end.files.map(({ bytes, ...file }) => {
      const content = new Uint8Array(this.#buffer, at, bytes);
      at += bytes;
      return { ...file, content };
    });
    let { request = null } = this.#end;
    const rest = new Uint8Array(this.#buffer, at);
    if (rest.length > 0) request = parsePayload(requestSchema, rest);
    if (files.length === 0) this.#buffer.resize(0);
    return { request, files };
  }
}

/**
 * Assembles an upload from its pieces, which arrive in order, each once. Its bytes are
 * copied from the messages of the bus into one place that grows, and kept there: the
 * memory of small pieces would not go back to the system.
 */
export class UploadAssembly {
  readonly #buffer = new ArrayBuffer(0, { maxByteLength: RESERVED_BYTES });
  #pieces = 0;

  /**
   * Takes a copy of the next piece. Returns the upload after its last piece, and
   * `invalid` if a piece is missing or the files have other sizes than they should.
   */
  add({ index, bytes }: BodyPiece): "more" | "invalid" | CompleteUpload {
    if (index === UPLOAD_END_INDEX) return this.#end(bytes);
    const at = this.#buffer.byteLength;
    const size = at + bytes.length;
    if (index !== this.#pieces || size > RESERVED_BYTES) return "invalid";
    this.#pieces += 1;
    this.#buffer.resize(size);
    new Uint8Array(this.#buffer, at).set(bytes);
    return "more";
  }

  #end(bytes: Uint8Array): "invalid" | CompleteUpload {
    const end = parsePayload(uploadEndSchema, bytes);
    if (end === null) return "invalid";
    const size = end.files.reduce((sum, file) => sum + file.bytes, 0);
    const { byteLength } = this.#buffer;
    const isWhole = end.request === undefined
      ? size <= byteLength
      : size === byteLength;
    return isWhole ? new CompleteUpload(this.#buffer, end) : "invalid";
  }
}

/** The version of the beats of workers, which show how busy they are. */
const BEAT_VERSION = 2;

/** The longest mistake of a list that a beat has. */
export const MISTAKE_CHARS_MAX = 500;

const workerBeatSchema = z.object({
  version: z.literal(BEAT_VERSION),
  family: z.enum(WORKER_FAMILIES).default("chat"),
  /** How many jobs it can run at once. */
  slots: z.int().min(0),
  /** How many jobs it runs now, and slots that it keeps for an edge. */
  inFlight: z.int().min(0),
  /** It accepts no new jobs and will exit. */
  draining: z.boolean(),
  /** The ids of the models for which it takes jobs, but those that servers list. */
  models: z.array(z.string()),
  /**
   * The ids that servers list, by the names of the servers, for which it takes jobs,
   * too. Absent: as in the last beat that had them.
   */
  listed: serverListsSchema.exactOptional(),
  /** The first mistake for which it does not take the present list; absent: it does. */
  mistake: z.string().max(MISTAKE_CHARS_MAX).exactOptional(),
});

/** The beat that a worker publishes every `workerBeatMs`. */
export type WorkerBeat = z.infer<typeof workerBeatSchema>;

/** Returns the payload of a worker's beat. */
export function encodeWorkerBeat(
  beat: Omit<WorkerBeat, "version">,
): Uint8Array {
  return encodeJson({ version: BEAT_VERSION, ...beat });
}

/**
 * Reads a worker's beat; null if it is malformed or of another version: such a worker
 * is not used.
 */
export function decodeWorkerBeat(bytes: Uint8Array): WorkerBeat | null {
  return parsePayload(workerBeatSchema, bytes);
}
