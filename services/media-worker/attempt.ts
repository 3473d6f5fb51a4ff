/** One attempt to run a request at a model server, and the reading of its answer, for all kinds of requests. */
import type { MediaRequest } from "@gateway/shared/openai/media";
import { textTokens } from "@gateway/shared/openai/tokens";
import { isJsonObject } from "@gateway/shared/process/error_text";
import { invalidAnswer } from "@gateway/shared/upstream/errors";
import * as json from "@gateway/shared/upstream/json";
import type {
  ModelServer,
  RequestOptions,
  ServerRequest,
  ServerResponse,
} from "@gateway/shared/upstream/model_server";
import { frameError } from "@gateway/shared/upstream/refusal";
import { SseParser } from "@gateway/shared/upstream/sse_parser";
import type { AnswerMemory } from "./answer_memory.ts";
import type { MediaAnswer } from "./media_answer.ts";

export interface Attempt<Request extends MediaRequest = MediaRequest> {
  request: Request;
  server: ModelServer;
  answer: MediaAnswer;
  /** Shared by all model servers of the process. */
  memory: AnswerMemory;
}

/** A request to a model server, by default `POST` with JSON. */
interface Ask
  extends
    RequestOptions,
    Partial<Omit<ServerRequest, "encode" | "call" | "signal">> {
  /** A path below the base URL, or another URL of the server. */
  to: string | URL;
}

/** Sends one request of an attempt, and returns what `read` makes of the response. */
export function ask<Result>(
  { server, answer: { call } }: Attempt,
  { to, body = "", mustBeginSoon = true, totalMs, statuses, ...like }: Ask,
  read: (response: ServerResponse) => Promise<Result>,
): Promise<Result> {
  const encode = server.encoder(to, like);
  const sent = { encode, body, call, mustBeginSoon, totalMs, statuses };
  return server.exchange(sent, read);
}

/** The pieces of a body. Each is read when the one before has been handled. */
export async function* piecesOf(
  { connection, deadlines, server }: ServerResponse,
  bytesMax: number,
): AsyncGenerator<Uint8Array> {
  connection.bytesLeft = bytesMax;
  for (;;) {
    const piece = await connection.read();
    if (piece === null) return;
    yield piece;
    // Not earlier: some servers send a head long before the rest.
    deadlines.arm("betweenTokens", server.config.deadlines.between_tokens_ms);
  }
}

/** The body of an answer as text. */
export function textIn(
  { connection, server }: ServerResponse,
  bytesMax: number,
): Promise<string> {
  connection.bytesLeft = bytesMax;
  return connection.readText(server.config.deadlines.between_tokens_ms);
}

export interface ServerEvent {
  /** Its `type`, or the name of the event. */
  type: string;
  data: json.JsonObject;
}

const DONE = "[DONE]";

/**
 * The events of an answer, one by one: more is read when the last one has been
 * handled. Ends with `[DONE]` or the end of the stream. Comments extend no deadline.
 * Rejects with an `UpstreamError` for an error event, or anything that is not JSON.
 */
export async function* eventsOf(
  { connection, deadlines, server }: ServerResponse,
  { bytesMax, eventCharsMax = bytesMax, onHeld }: {
    bytesMax: number;
    eventCharsMax?: number;
    /** Called with the characters that are held from now on. */
    onHeld?: (chars: number) => void;
  },
): AsyncGenerator<ServerEvent> {
  const { between_tokens_ms } = server.config.deadlines;
  const events: [data: string, name: string][] = [];
  const onEvent = (data: string, name: string) => events.push([data, name]);
  const parser = new SseParser(onEvent, eventCharsMax);
  connection.bytesLeft = bytesMax;
  for (let isOver = false; !isOver;) {
    const piece = await connection.read();
    if (piece === null) {
      isOver = true;
      const rest = parser.end();
      // It may be cut: then the end of the stream is the error to report.
      if (json.parseJson(rest) !== undefined) onEvent(rest, "");
    } else parser.push(piece);
    const chars = events.reduce((sum, [data]) => sum + data.length, 0);
    const isData = events.length > 0 || parser.isInEvent;
    onHeld?.(chars + parser.pendingChars);
    for (const [text, name] of events.splice(0)) {
      if (text.length < 16 && text.trim() === DONE) return;
      if (text === "") continue;
      const data = json.parseJson(text);
      if (!isJsonObject(data)) throw invalidAnswer("An event that is not JSON");
      const type = json.textOf(data.type) || name;
      if (/(^|\.)error$/.test(type)) throw frameError(data, server.redact);
      throwIfError(data, server);
      yield { type, data };
    }
    if (isData) deadlines.arm("betweenTokens", between_tokens_ms);
  }
}

/** Throws the error that a body or event with status 200 reports, if it does. */
export function throwIfError(
  data: json.JsonObject,
  { redact }: ModelServer,
): void {
  const { error } = data;
  if (isJsonObject(error) || json.textOf(error) !== "") {
    throw frameError(data, redact);
  }
}

/** The usage that the server states or, since clients rely on this member, an estimate of the input. */
export function usageOf(stated: unknown, input: string): json.JsonObject {
  if (isJsonObject(stated) && typeof stated.total_tokens === "number") {
    return stated;
  }
  const tokens = Math.ceil(textTokens(input));
  return { input_tokens: tokens, output_tokens: 0, total_tokens: tokens };
}
