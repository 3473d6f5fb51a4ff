/** Reads what model servers send, valid or not. */
import { textTokens } from "@gateway/shared/openai/tokens";
import { isJsonObject } from "@gateway/shared/process/error_text";
import { invalidAnswer } from "@gateway/shared/upstream/errors";
import {
  type JsonObject,
  parseJson,
  textOf,
} from "@gateway/shared/upstream/json";
import type { ServerResponse } from "@gateway/shared/upstream/model_server";
import type { Redact } from "@gateway/shared/upstream/redact";
import { frameError } from "@gateway/shared/upstream/refusal";
import { SseParser } from "@gateway/shared/upstream/sse_parser";

/** How the answer of a model server is read. */
export interface ReadOptions {
  /** How long the server may pause within its answer. */
  betweenMs: number;
  redact: Redact;
}

export interface EngineEvent {
  /** Its `type`, or the name of the event. */
  type: string;
  data: JsonObject;
}

const DONE = "[DONE]";

/**
 * The events of an answer, one by one: more is read when the last one has been
 * handled. Ends with `[DONE]` or the end of the stream. Comments extend no deadline.
 * Rejects with an `UpstreamError` for an error event, or anything that is not JSON.
 */
export async function* eventsOf(
  { connection, deadlines }: ServerResponse,
  { betweenMs, redact, eventCharsMax, onHeld }: ReadOptions & {
    eventCharsMax: number;
    /** Called with the characters that are held from now on. */
    onHeld?: (chars: number) => void;
  },
): AsyncGenerator<EngineEvent> {
  const events: [data: string, name: string][] = [];
  const onEvent = (data: string, name: string) => events.push([data, name]);
  const parser = new SseParser(onEvent, eventCharsMax);
  for (let isOver = false; !isOver;) {
    const piece = await connection.read();
    if (piece === null) {
      isOver = true;
      const rest = parser.end();
      // It may be cut: then the end of the stream is the error to report.
      if (parseJson(rest) !== undefined) onEvent(rest, "");
    } else parser.push(piece);
    const isData = events.length > 0 || parser.isInEvent;
    const chars = events.reduce((sum, [data]) => sum + data.length, 0);
    onHeld?.(chars + parser.pendingChars);
    for (const [data, name] of events.splice(0)) {
      if (data.length < 16 && data.trim() === DONE) return;
      if (data !== "") yield parseEvent(data, name, redact);
    }
    if (isData) deadlines.arm("betweenTokens", betweenMs);
  }
}

function parseEvent(text: string, name: string, redact: Redact): EngineEvent {
  const data = parseJson(text);
  if (!isJsonObject(data)) throw invalidAnswer("An event that is not JSON");
  const type = textOf(data.type) || name;
  if (/(^|\.)error$/.test(type) || isError(data)) {
    throw frameError(data, redact);
  }
  return { type, data };
}

/** Whether a body or event with status 200 reports an error. */
export const isError = ({ error }: JsonObject): boolean =>
  isJsonObject(error) || textOf(error) !== "";

/** The usage that the server states or, since clients rely on this member, an estimate of the input. */
export function usageOf(stated: unknown, input: string): JsonObject {
  if (isJsonObject(stated) && typeof stated.total_tokens === "number") {
    return stated;
  }
  const tokens = Math.ceil(textTokens(input));
  return { input_tokens: tokens, output_tokens: 0, total_tokens: tokens };
}

/** The bytes, or `upstream_invalid` for text that is not base64. */
export function fromBase64(text: string): Uint8Array {
  try {
    return Uint8Array.fromBase64(text);
  } catch {
    throw invalidAnswer("Not base64");
  }
}
