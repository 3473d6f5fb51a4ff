/** Whole answers to forwarded requests: read, looked into, and passed on. */
import { Buffer } from "node:buffer";
import { encodeAnswerHead } from "@gateway/shared/forward/answer_head";
import { answerHeaders } from "@gateway/shared/forward/passed_headers";
import type { ForwardName } from "@gateway/shared/forward/endpoints";
import { readEventsForWhole } from "@gateway/shared/forward/events/events_for_whole";
import type { ForwardRequest } from "@gateway/shared/forward/request";
import {
  readWholeAnswer,
  type WholeAnswer,
} from "@gateway/shared/forward/usage";
import { type Usage, usageOfTokens } from "@gateway/shared/openai/completion";
import type { BodyStart } from "@gateway/shared/upstream/body_form";
import { frameError } from "@gateway/shared/upstream/error_response";
import {
  invalidAnswer,
  UpstreamError,
} from "@gateway/shared/upstream/http/errors";
import { parseJson } from "@gateway/shared/upstream/json";
import type {
  ModelServer,
  ServerResponse,
} from "@gateway/shared/upstream/model_server";
import type { JobContext } from "@gateway/shared/worker/jobs/job_ports";
import type { HeldBytes } from "@gateway/shared/worker/jobs/memory";
import { dropHeaders, type ForwardAttempt } from "./attempt.ts";
import { failureOf } from "./events.ts";
import { BYTES_PER_TOKEN } from "@gateway/shared/openai/tokens";

/** The largest whole answer: 1,000 vectors of 1,536 numbers in decimal fit. */
const ANSWER_BYTES_MAX = 32 * 1024 * 1024;
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];
/** Bytes passed on at a time: a quarter of the credit window. */
const PIECE_BYTES_MAX = 64 * 1024;

const JSON_TYPE = "application/json";

/** What is not looked into may be anything, and costs no tokens. */
const ANY_ANSWER: WholeAnswer = {
  usage: usageOfTokens(0, 0),
  vectors: null,
  isError: false,
};

/** A whole answer, which has been looked into. */
export interface ReadAnswer {
  /** The line that precedes it. */
  readonly head: string;
  readonly body: Uint8Array;
  readonly usage: Usage;
}

/**
 * Reads a whole answer, after the `start` that was read already. Rejects with
 * `upstream_invalid` if it is none, or has another number of vectors than it should.
 */
export async function readAnswer(
  attempt: ForwardAttempt,
  response: ServerResponse,
  { bytes: start, form }: BodyStart,
): Promise<ReadAnswer> {
  const { request, heldBytes } = attempt;
  const bytes = await readWhole(response, { heldBytes, start });
  const areEvents = form === "events" && request.forward !== "other";
  const body = areEvents ? answerInEvents(bytes, attempt) : bytes;
  const answer = request.forward === "other"
    ? ANY_ANSWER
    : lookInto(body, request.forward);
  if (answer === null) throw invalidAnswer("Neither a JSON object nor a list");
  if (answer.isError) throw errorOf(body, response.server);
  if (answer.addsUp === false) {
    attempt.progress.onOddity("usage_repaired", 1);
  }
  const { vectors } = request;
  if (vectors !== null && answer.vectors !== vectors) {
    throw invalidAnswer(`${answer.vectors} vectors for ${vectors} inputs`);
  }
  const { fields } = response.head;
  const label = fields.get("content-type");
  return {
    head: encodeAnswerHead({
      content_type: areEvents ? JSON_TYPE : label ?? JSON_TYPE,
      length: body.length,
      headers: { ...answerHeaders(fields), ...dropHeaders(attempt) },
    }),
    body,
    usage: chargedUsage(answer.usage, request, body.length),
  };
}

/**
 * The whole answer within events. Rejects with the error that they report or, because
 * the model has done its work, with one after which no other server is asked.
 */
function answerInEvents(
  bytes: Buffer,
  { request, server, progress }: ForwardAttempt,
): Buffer {
  const { forward, promptTokens } = request;
  progress.onOddity("form_converted", 1);
  const { answer, failure, usage, estimatedTokens } = lookIntoEvents();
  if (failure !== null) throw failureOf(failure, server);
  if (answer !== null) return answer;
  throw new UpstreamError("unsupported", {
    message: "The model server sent events although `stream` is not set",
    usage: usage ?? usageOfTokens(promptTokens, estimatedTokens),
  });

  function lookIntoEvents() {
    try {
      return readEventsForWhole(bytes, forward);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw invalidAnswer(error.message);
    }
  }
}

/** The error that a body with a status of success reports. */
function errorOf(
  body: Buffer,
  { redact }: Pick<ModelServer, "redact">,
): UpstreamError {
  return frameError(parseJson(body.toString("utf8").trimStart()), redact);
}

/** Names and numbers are ASCII; read as Latin-1, nothing else has to be decoded. */
function lookInto(body: Buffer, endpoint: ForwardName) {
  const isMarked = BYTE_ORDER_MARK.every((byte, at) => body[at] === byte);
  const from = isMarked ? BYTE_ORDER_MARK.length : 0;
  return readWholeAnswer(body.toString("latin1", from), endpoint);
}

/** Reads all of a body, of which each byte is counted. */
async function readWhole(
  { head, connection, deadlines, server }: ServerResponse,
  { heldBytes, start }: { heldBytes: HeldBytes; start: Uint8Array | null },
): Promise<Buffer> {
  const { between_tokens_ms: betweenMs } = server.config.deadlines;
  connection.bytesLeft = ANSWER_BYTES_MAX;
  connection.onPiece = (bytes) => heldBytes.grow(bytes);
  const body = new WholeBody(lengthOf(head));
  if (start !== null) body.add(start);
  for (;;) {
    deadlines.arm("betweenTokens", betweenMs);
    const piece = await connection.read();
    if (piece === null) return body.taken();
    body.add(piece);
  }
}

/** The length that a head announces; 0 if it announces none. */
const lengthOf = ({ framing }: ServerResponse["head"]): number =>
  typeof framing === "number" ? Math.min(framing, ANSWER_BYTES_MAX) : 0;

/** A body that is put together where it stays: vectors may be megabytes. */
class WholeBody {
  #bytes: Uint8Array;
  #length = 0;

  /** `expected` bytes need no more room; the system gives it as it is written. */
  constructor(expected: number) {
    this.#bytes = new Uint8Array(expected);
  }

  /** Copies a piece, since the next read takes its buffer. */
  add(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    if (length > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(length, 2 * this.#length));
      larger.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = larger;
    }
    this.#bytes.set(piece, this.#length);
    this.#length = length;
  }

  /** All of them, as they are. */
  taken(): Buffer {
    const { buffer, byteOffset } = this.#bytes;
    return Buffer.from(buffer, byteOffset, this.#length);
  }
}

/**
 * What the server states, or one token for every four bytes. Some servers say that they
 * have read nothing.
 */
function chargedUsage(
  stated: Usage | null,
  { forward, promptTokens: prompt }: ForwardRequest,
  bytes: number,
): Usage {
  if (stated !== null && (stated.prompt_tokens > 0 || costsNothing(stated))) {
    return stated;
  }
  const isInput = forward === "embeddings" || forward === "rerank";
  if (isInput) return usageOfTokens(prompt, 0);
  const written = stated?.completion_tokens ??
    Math.ceil(bytes / BYTES_PER_TOKEN);
  return { ...stated, ...usageOfTokens(prompt, written) };
}

/** So it was stated of what only counts tokens. */
const costsNothing = ({ total_tokens: total }: Usage) => total === 0;

/** Sends an answer to its edge, as fast as the client takes it. */
export async function passOn(
  { head, body, usage }: ReadAnswer,
  context: JobContext,
): Promise<void> {
  const { completion_tokens: tokens } = usage;
  context.write(head, tokens);
  for (let at = 0; at < body.length; at += PIECE_BYTES_MAX) {
    const room = context.write(body.subarray(at, at + PIECE_BYTES_MAX), tokens);
    if (room === undefined) continue;
    await room;
    context.signal.throwIfAborted();
  }
}
