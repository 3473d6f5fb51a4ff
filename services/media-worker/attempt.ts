/**
 * One attempt to run a request at a model server: asking it and passing its answer on,
 * for all kinds of requests.
 */
import {
  encodeMediaHead,
  type MediaHead,
} from "@gateway/shared/bus/media_head";
import type { MediaRequest } from "@gateway/shared/openai/media";
import { textTokens } from "@gateway/shared/openai/tokens";
import { isPlain } from "@gateway/shared/upstream/http/content_coding";
import { isJsonObject, type JsonObject } from "@gateway/shared/upstream/json";
import type {
  ModelServer,
  RequestOptions,
  ServerRequest,
  ServerResponse,
} from "@gateway/shared/upstream/model_server";
import type { AttemptProgress } from "@gateway/shared/upstream/attempt";
import type { AnswerMemory } from "@gateway/shared/worker/jobs/memory";
import type { JobContext } from "@gateway/shared/worker/jobs/job_ports";
import { EVENT_STREAM } from "./answer_body.ts";

const encoder = new TextEncoder();

/** One attempt: a request, the server that runs it, and the answer that it fills. */
export interface MediaAttempt<Request extends MediaRequest = MediaRequest> {
  request: Request;
  server: ModelServer;
  answer: AttemptAnswer;
  /** What its job may hold. */
  memory: AnswerMemory;
}

interface Ask
  extends
    RequestOptions,
    Partial<Omit<ServerRequest, "encode" | "call" | "signal">> {
  /** A path below the base URL, or another URL of the server. */
  to: string | URL;
}

/** Sends one request of an attempt, and returns what `read` makes of the response. */
export function ask<Result>(
  { server, answer: { context, progress } }: MediaAttempt,
  { to, body = "", mustBeginSoon = true, totalMs, statuses, ...like }: Ask,
  read: (response: ServerResponse) => Promise<Result>,
): Promise<Result> {
  const encode = server.encoder(to, like);
  const exchange = { encode, body, context, mustBeginSoon, totalMs, statuses };
  return server.exchange(exchange, (response) => {
    if (!isPlain(response.head.contentEncoding)) {
      progress.onOddity("coding_unasked", 1);
    }
    return read(response);
  });
}

/**
 * The first of these usages that has a total, also under OpenAI's names for images and
 * audio; if there is none, an estimate of the input, since clients rely on this member.
 */
export function usageOf(
  usages: readonly unknown[],
  input: string,
): JsonObject {
  const usage = usages.filter(isJsonObject)
    .find(({ total_tokens: total }) => typeof total === "number");
  if (usage !== undefined) return tokenUsage(usage);
  const tokens = Math.ceil(textTokens(input));
  return { input_tokens: tokens, output_tokens: 0, total_tokens: tokens };
}

/** A usage in tokens, whose names may be those of chat completions. */
export function tokenUsage(usage: JsonObject): JsonObject {
  const { prompt_tokens: input, completion_tokens: output } = usage;
  return {
    ...typeof input === "number" && { input_tokens: input },
    ...typeof output === "number" && { output_tokens: output },
    ...usage,
  };
}

/** Bytes passed on at a time: a quarter of the credit window. */
const PIECE_BYTES_MAX = 64 * 1024;

/**
 * The answer to one attempt: its head, then bytes. Nothing is sent before the model
 * server has made something.
 */
export class AttemptAnswer {
  #unitsMade = 0;
  #unitsStarted = 0;
  #head: MediaHead;
  #isOpen = false;

  constructor(
    readonly context: JobContext,
    readonly progress: AttemptProgress,
    request: MediaRequest,
  ) {
    this.#head = { content_type: mediaTypeOf(request) };
  }

  /** How much has been made, in the unit that such requests cost. */
  get unitsMade(): number {
    return this.#unitsMade;
  }

  /**
   * How much the model server was asked for that it makes as a whole, in the same unit;
   * 0 where closing the connection stops it.
   */
  get unitsStarted(): number {
    return this.#unitsStarted;
  }

  /** Notes how much has been made so far. */
  noteMade(units: number): void {
    this.#unitsMade = units;
  }

  /** Notes how much the model server was asked for as a whole. */
  noteStarted(units: number): void {
    this.#unitsStarted = units;
  }

  /** Changes members of the head. Must be called before the first part. */
  changeHead(change: Partial<MediaHead>): void {
    this.#head = { ...this.#head, ...change };
  }

  /** The model server has started to answer: nothing is repeated from now on. */
  begin(): void {
    if (this.progress.hasSent) return;
    this.progress.hasSent = true;
    this.progress.onBegun();
  }

  /**
   * Passes on the next part; the first one, even if it is empty, sends the head.
   * Rejects when the answer is no longer needed.
   */
  async write(part: string | Uint8Array): Promise<void> {
    if (!this.#isOpen) {
      this.#isOpen = true;
      this.begin();
      this.context.write(encodeMediaHead(this.#head), this.#unitsMade);
    }
    const bytes = typeof part === "string" ? encoder.encode(part) : part;
    for (let at = 0; at < bytes.length; at += PIECE_BYTES_MAX) {
      const piece = bytes.subarray(at, at + PIECE_BYTES_MAX);
      const room = this.context.write(piece, this.#unitsMade);
      if (room === undefined) continue;
      await room;
      this.context.signal.throwIfAborted();
    }
  }

  /** Keeps what the server says its answer is, if the format did not tell. */
  setTypeIfUnknown(type: string): void {
    if (this.#head.content_type !== "") return;
    this.#head = { content_type: type || "application/octet-stream" };
  }

  writeEvent(event: JsonObject & { type: string }): Promise<void> {
    const data = JSON.stringify(event);
    return this.write(`event: ${event.type}\ndata: ${data}\n\n`);
  }
}

/**
 * The media type of the format that was requested: servers label their formats
 * differently. Empty for a format that only the server knows.
 */
function mediaTypeOf(request: MediaRequest): string {
  if (request.stream) return EVENT_STREAM;
  switch (request.kind) {
    case "speech":
      return SOUND_TYPES[request.format] ?? "";
    case "transcription": {
      const isJson = JSON_FORMAT.test(request.format);
      const type = isJson ? JSON_TYPE : TEXT_TYPES[request.format];
      return type === undefined ? "" : `${type}; charset=utf-8`;
    }
    default:
      return JSON_TYPE;
  }
}

const JSON_TYPE = "application/json";
/** Formats of transcriptions that are JSON. */
export const JSON_FORMAT = /json$/;
const TEXT_TYPES: { readonly [format: string]: string } = {
  text: "text/plain",
  srt: "application/x-subrip",
  vtt: "text/vtt",
};
const SOUND_TYPES: { readonly [format: string]: string } = {
  mp3: "audio/mpeg",
  opus: "audio/opus",
  aac: "audio/aac",
  flac: "audio/flac",
  wav: "audio/wav",
  pcm: "audio/pcm",
};
