/** Reads the body of a model server's answer: by its bytes first, then by its label. */
import {
  type BodyForm,
  type BodyStart,
  isText,
  readStart,
} from "@gateway/shared/upstream/body_form";
import {
  invalidAnswer,
  unsupportedAnswer,
} from "@gateway/shared/upstream/http/errors";
import { frameError } from "@gateway/shared/upstream/error_response";
import {
  isJsonObject,
  type JsonObject,
  parseJson,
  textOf,
} from "@gateway/shared/upstream/json";
import type {
  ModelServer,
  ServerResponse,
} from "@gateway/shared/upstream/model_server";
import type { AttemptProgress } from "@gateway/shared/upstream/attempt";
import { SseParser } from "@gateway/shared/upstream/http/sse_parser";
import { kindOf } from "./files/file_types.ts";

/** The media type of server-sent events. */
export const EVENT_STREAM = "text/event-stream";
/** The largest body that is read for its error when it should have been a file. */
const ERROR_BYTES_MAX = 64 * 1024;

/** What a body is; a `file` has bytes that are no text, such as sound. */
export type MediaForm = BodyForm | "text" | "file";

/** A body, of which the first bytes were read. */
export interface AnswerBody {
  readonly form: MediaForm;
  /** The media type of a file; empty if it is not known. */
  readonly type: string;
  /** Valid until the next read. */
  readonly start: Uint8Array | null;
  readonly response: ServerResponse;
}

/** Who learns of a wrong label, and which label is believed. */
interface Opening {
  progress: Pick<AttemptProgress, "onOddity">;
  /** A label that is believed more than the bytes: a file may begin like anything. */
  trusted?: "text" | "file" | null;
}

/** Reads enough of a body to tell what it is, and counts if its label is wrong. */
export async function openBody(
  response: ServerResponse,
  { progress, trusted = null }: Opening,
): Promise<AnswerBody> {
  const { head: { contentType }, server: { config } } = response;
  const start = await readStart(response, config.deadlines.between_tokens_ms);
  const label = labelled(contentType);
  const isTrusted = (label ?? "file") === trusted &&
    (trusted === "file" || start.formOfBytes !== "page");
  const formOfBytes = isTrusted ? trusted : formShown(start);
  if (formOfBytes !== null && label !== null && formOfBytes !== label) {
    progress.onOddity("label_ignored", 1);
  }
  const form = formOfBytes ?? label ?? "file";
  const kind = start.bytes === null ? null : kindOf(start.bytes);
  const type = label === form
    ? contentType
    : kind?.type ?? (label === null ? contentType : "");
  return { form, type, start: start.bytes, response };
}

function formShown({ bytes, formOfBytes }: BodyStart): MediaForm | null {
  if (formOfBytes !== null || bytes === null) return formOfBytes;
  return kindOf(bytes) !== null || !isText(bytes) ? "file" : null;
}

/** What a content type says a body is; null if it says nothing. */
function labelled(contentType: string): MediaForm | null {
  if (/^$|^(application|binary)\/octet-stream$/.test(contentType)) return null;
  if (contentType === EVENT_STREAM) return "events";
  if (contentType === "text/html") return "page";
  if (/json$/.test(contentType)) return "json";
  return contentType.startsWith("text/") ? "text" : "file";
}

/**
 * Rejects with the error that a body reports in place of the `expectation`, or says
 * what it is. For a web page or an empty body another server may be asked, because no
 * model has worked; anything else has cost a model's work.
 */
export async function refuseBody(
  body: AnswerBody,
  expectation: string,
): Promise<never> {
  const { form, start, response: { head, server } } = body;
  const detail = `${form} of ${
    head.contentType || "no type"
  }, not ${expectation}`;
  if (form === "page" || start === null) throw invalidAnswer(detail);
  if (form !== "file") {
    const text = await textIn(body, ERROR_BYTES_MAX);
    throwIfError(Object(parseJson(text)), server);
  }
  throw unsupportedAnswer(detail);
}

/**
 * The pieces of a body. Each is read when the one before has been handled, which may
 * wait for a slow client.
 */
export async function* piecesOf(
  { start, response }: AnswerBody,
  bytesMax: number,
): AsyncGenerator<Uint8Array> {
  const { connection, deadlines, server } = response;
  const { between_tokens_ms: betweenMs } = server.config.deadlines;
  connection.bytesLeft = bytesMax - (start?.length ?? 0);
  for (
    let piece = start;
    piece !== null;
    piece = await connection.read()
  ) {
    deadlines.rest();
    yield piece;
    // Not earlier: some servers send a head long before the rest.
    deadlines.arm("betweenTokens", betweenMs);
  }
}

/**
 * Reads a body of at most `bytesMax` bytes as text. Rejects with `upstream_invalid` if
 * it is longer.
 */
export function textIn(
  { start, response: { connection, server } }: AnswerBody,
  bytesMax: number,
): Promise<string> {
  connection.bytesLeft = bytesMax - (start?.length ?? 0);
  return connection.readText(server.config.deadlines.between_tokens_ms, start);
}
/** An event of an answer, parsed. */
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
  { start, response: { connection, deadlines, server } }: AnswerBody,
  { progress, bytesMax, eventCharsMax = bytesMax, onHeld }: {
    /** Hears of what was skipped. */
    progress: Pick<AttemptProgress, "onOddity">;
    bytesMax: number;
    eventCharsMax?: number;
    /**
     * Called with the characters that are held from now on; resolves when it may be.
     */
    onHeld?: (chars: number) => Promise<void> | undefined;
  },
): AsyncGenerator<ServerEvent> {
  const { between_tokens_ms } = server.config.deadlines;
  const found = new EventQueue(server, eventCharsMax);
  connection.bytesLeft = bytesMax - (start?.length ?? 0);
  try {
    for (
      let piece = start;
      !found.isOver;
      piece = found.isOver ? null : await connection.read()
    ) {
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
  readonly #server: Pick<ModelServer, "redact">;
  readonly #parser: SseParser;
  readonly #waiting: { data: string; name: string }[] = [];
  /** How many events were no JSON. */
  skipped = 0;
  #hasEvents = false;

  constructor(server: Pick<ModelServer, "redact">, eventCharsMax: number) {
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
    // The event may be cut: then the end of the stream is the error to report.
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

/** Throws the error that a body or an event reports in spite of its status 200. */
export function throwIfError(
  data: JsonObject,
  { redact }: Pick<ModelServer, "redact">,
): void {
  const { error } = data;
  if (isJsonObject(error) || textOf(error) !== "") {
    throw frameError(data, redact);
  }
}
