/**
 * One attempt to run a request at a model server: reading the server's answer and
 * passing it on, for all kinds of requests.
 */
import {
  encodeMediaHead,
  type MediaHead,
} from "@gateway/shared/bus/media_head";
import type { MediaRequest } from "@gateway/shared/openai/media";
import { textTokens } from "@gateway/shared/openai/tokens";
import { isPlain } from "@gateway/shared/upstream/http/content_coding";
import {
  invalidAnswer,
  unsupportedAnswer,
  type UpstreamError,
} from "@gateway/shared/upstream/http/errors";
import {
  isJsonObject,
  type JsonObject,
  parseJson,
  textOf,
} from "@gateway/shared/upstream/json";
import type {
  ModelServer,
  RequestOptions,
  ServerRequest,
  ServerResponse,
} from "@gateway/shared/upstream/model_server";
import type { AttemptProgress } from "@gateway/shared/upstream/pool";
import { frameError } from "@gateway/shared/upstream/error_response";
import { SseParser } from "@gateway/shared/upstream/http/sse_parser";
import type { AnswerMemory } from "@gateway/shared/worker/memory";
import type { JobCall } from "@gateway/shared/worker/job";

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
  { server, answer: { call, progress } }: MediaAttempt,
  { to, body = "", mustBeginSoon = true, totalMs, statuses, ...like }: Ask,
  read: (response: ServerResponse) => Promise<Result>,
): Promise<Result> {
  const encode = server.encoder(to, like);
  const sent = { encode, body, call, mustBeginSoon, totalMs, statuses };
  return server.exchange(sent, (response) => {
    if (!isPlain(response.head.contentEncoding)) {
      progress.onOddity("coding_unasked", 1);
    }
    return read(response);
  });
}

/**
 * The error for an answer of another type than is `wanted`. A web page is no answer of
 * the model, and another server may have one; all else has cost its work.
 */
export function otherType(contentType: string, wanted: string): UpstreamError {
  const detail = `${contentType} instead of ${wanted}`;
  return contentType === "text/html"
    ? invalidAnswer(detail)
    : unsupportedAnswer(detail);
}

/**
 * The pieces of a body. Each is read when the one before has been handled, which may
 * wait for a slow client.
 */
export async function* piecesOf(
  { connection, deadlines, server }: ServerResponse,
  bytesMax: number,
): AsyncGenerator<Uint8Array> {
  connection.bytesLeft = bytesMax;
  for (;;) {
    const piece = await connection.read();
    if (piece === null) return;
    deadlines.rest();
    yield piece;
    // Not earlier: some servers send a head long before the rest.
    deadlines.arm("betweenTokens", server.config.deadlines.between_tokens_ms);
  }
}

/**
 * Reads a body of at most `bytesMax` bytes as text. Rejects with `upstream_invalid` if
 * it is longer.
 */
export function textIn(
  { connection, server }: ServerResponse,
  bytesMax: number,
): Promise<string> {
  connection.bytesLeft = bytesMax;
  return connection.readText(server.config.deadlines.between_tokens_ms);
}

/** An event of an answer with the type `text/event-stream`, parsed. */
export interface ServerEvent {
  /** The `type` of the event's data, or the name of the event. */
  type: string;
  data: JsonObject;
}

const DONE = "[DONE]";

/**
 * The events of an answer, one by one: more is read when the last one has been handled,
 * which may wait for a slow client. Ends with `[DONE]` or the end of the stream.
 * Whatever comes, a comment too, says that the server is alive. What is no JSON is
 * skipped. Rejects with an `UpstreamError` for an error event, or if all was skipped.
 */
export async function* eventsOf(
  { connection, deadlines, server }: ServerResponse,
  { progress, bytesMax, eventCharsMax = bytesMax, onHeld }: {
    /** Learns of what was skipped. */
    progress: Pick<AttemptProgress, "onOddity">;
    bytesMax: number;
    eventCharsMax?: number;
    /** Called with the characters that are held from now on; resolves when it may be. */
    onHeld?: (chars: number) => Promise<void> | undefined;
  },
): AsyncGenerator<ServerEvent> {
  const { between_tokens_ms } = server.config.deadlines;
  const found = new EventQueue(server, eventCharsMax);
  connection.bytesLeft = bytesMax;
  try {
    while (!found.isOver) {
      const piece = await connection.read();
      if (piece === null) found.end();
      else found.push(piece);
      await onHeld?.(found.heldChars);
      for (const event of found.take()) {
        deadlines.rest();
        yield event;
      }
      deadlines.arm("betweenTokens", between_tokens_ms);
    }
  } finally {
    if (found.skipped > 0) progress.onOddity("event_skipped", found.skipped);
  }
}

/** The events in what has arrived of a stream. */
class EventQueue {
  /** `[DONE]` or the end of the stream has come, or the last event before it. */
  isOver = false;
  readonly #server: ModelServer;
  readonly #parser: SseParser;
  readonly #waiting: { data: string; name: string }[] = [];
  /** How many were no JSON. */
  skipped = 0;
  #hasEvents = false;

  constructor(server: ModelServer, eventCharsMax: number) {
    this.#server = server;
    const onEvent = (data: string, name: string) =>
      void this.#waiting.push({ data, name });
    this.#parser = new SseParser(onEvent, eventCharsMax);
  }

  get heldChars(): number {
    return this.#waiting.reduce(
      (sum, { data }) => sum + data.length,
      this.#parser.pendingChars,
    );
  }

  push(piece: Uint8Array): void {
    this.#parser.push(piece);
  }

  /** The stream has ended. */
  end(): void {
    this.isOver = true;
    const rest = this.#parser.end();
    // It may be cut: then the end of the stream is the error to report.
    if (parseJson(rest) !== undefined) {
      this.#waiting.push({ data: rest, name: "" });
    }
  }

  /** The events that have arrived. Throws the error that one of them is. */
  *take(): Generator<ServerEvent> {
    for (const { data: text, name } of this.#waiting.splice(0)) {
      if (text.length < 16 && text.trim() === DONE) {
        this.isOver = true;
        break;
      }
      if (text === "") continue;
      const data = parseJson(text);
      if (!isJsonObject(data)) {
        this.skipped += 1;
        continue;
      }
      const type = textOf(data.type) || name;
      if (/(^|\.)error$/.test(type)) {
        throw frameError(data, this.#server.redact);
      }
      throwIfError(data, this.#server);
      this.#hasEvents = true;
      yield { type, data };
    }
    if (this.isOver && this.skipped > 0 && !this.#hasEvents) {
      throw invalidAnswer("Events that are not JSON");
    }
  }
}

/** Throws the error that a body or event with status 200 reports, if it does. */
export function throwIfError(
  data: JsonObject,
  { redact }: ModelServer,
): void {
  const { error } = data;
  if (isJsonObject(error) || textOf(error) !== "") {
    throw frameError(data, redact);
  }
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

/** The media type of server-sent events. */
export const EVENT_STREAM = "text/event-stream";

/**
 * The answer to one attempt: its head, then bytes. Nothing is sent before the model
 * server has made something.
 */
export class AttemptAnswer {
  /** What has been made, in the unit that such requests cost. */
  made = 0;
  /**
   * What the model server was asked for that it makes as a whole, in the same unit; 0
   * where closing the connection stops it.
   */
  started = 0;
  head: MediaHead;
  #isOpen = false;

  constructor(
    readonly call: JobCall,
    readonly progress: AttemptProgress,
    request: MediaRequest,
  ) {
    this.head = { content_type: mediaTypeOf(request) };
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
      this.call.write(encodeMediaHead(this.head), this.made);
    }
    const bytes = typeof part === "string" ? encoder.encode(part) : part;
    for (let at = 0; at < bytes.length; at += PIECE_BYTES_MAX) {
      const piece = bytes.subarray(at, at + PIECE_BYTES_MAX);
      const room = this.call.write(piece, this.made);
      if (room === undefined) continue;
      await room;
      this.call.signal.throwIfAborted();
    }
  }

  /** Keeps what the server says its answer is, if the format did not tell. */
  setTypeIfUnknown(type: string): void {
    if (this.head.content_type !== "") return;
    this.head = { content_type: type || "application/octet-stream" };
  }

  writeEvent(event: JsonObject & { type: string }): Promise<void> {
    const data = JSON.stringify(event);
    return this.write(`event: ${event.type}\ndata: ${data}\n\n`);
  }
}

/**
 * Follows the request, because each server names the formats differently. Empty for a
 * format that only the server knows.
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
/** The formats of transcriptions that are JSON. */
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
