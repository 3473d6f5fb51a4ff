/** Builders of what a model server says, right or wrong, for `startScriptedServer`. */
import { Buffer } from "node:buffer";
import type { Step, WholeRequest } from "./scripted_server.ts";

type Fields = { [name: string]: string };
interface ResponseOptions {
  status?: number;
  /** Beside the content type and the framing. */
  headers?: Fields;
}

/** A JSON response with a content length. A string is sent as it is. */
export function jsonResponse(body: unknown, options: ResponseOptions = {}) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const head = responseHead(options, {
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(text)),
  });
  return [{ send: head + text }];
}

/** The head of an event stream in chunks. */
export function streamHead(options: ResponseOptions = {}): Step {
  return {
    send: responseHead(options, {
      "content-type": "text/event-stream; charset=utf-8",
      "transfer-encoding": "chunked",
    }),
  };
}

/** A head of any kind, and perhaps the start of a body. */
export function head(lines: string, body: string | Uint8Array = ""): Step {
  const start = Buffer.from(`HTTP/1.1 ${lines}\r\n\r\n`);
  return { send: Buffer.concat([start, Buffer.from(body)]) };
}

/** The server goes silent and keeps its connection. */
export const STALL: Step = { stall: true };
/** The server closes its connection. */
export const CLOSE: Step = { close: true };
/** So that what was sent before arrives in a packet of its own. */
export const PAUSE: Step = { pauseMs: 20 };

/** The head of an answer in chunks. */
export const typed = (type: string): Step =>
  streamHead({ headers: { "content-type": type } });

/** An HTTP chunk with this content. */
export function chunk(data: string | Uint8Array): Step {
  const bytes = Buffer.from(data);
  const size = Buffer.from(`${bytes.length.toString(16)}\r\n`);
  return { send: Buffer.concat([size, bytes, Buffer.from("\r\n")]) };
}

/** The chunk that ends a response. */
export const lastChunk: Step = { send: "0\r\n\r\n" };

/** `data: …` and a blank line. A string is sent as it is. */
export function event(data: unknown): string {
  return `data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;
}

/** A whole event stream, one HTTP chunk per event, ended by `[DONE]`. */
export function streamResponse(
  payloads: readonly unknown[],
  options: ResponseOptions = {},
): Step[] {
  return [
    streamHead(options),
    ...payloads.map((payload) => chunk(event(payload))),
    chunk(event("[DONE]")),
    lastChunk,
  ];
}

/** A `chat.completion.chunk` of one choice. */
export function choiceChunk(
  delta: unknown,
  finishReason: string | null = null,
  index = 0,
): { [name: string]: unknown } {
  return {
    id: "chatcmpl-upstream",
    object: "chat.completion.chunk",
    created: 1_767_622_290,
    model: "upstream-model",
    choices: [{ index, delta, logprobs: null, finish_reason: finishReason }],
  };
}

/** The chunk without choices that states the usage. */
export function usageChunk(prompt: number, completion: number) {
  return {
    ...choiceChunk({}),
    choices: [],
    usage: {
      prompt_tokens: prompt,
      completion_tokens: completion,
      total_tokens: prompt + completion,
    },
  };
}

/**
 * A well-behaved server: streams or answers whole as it was asked, for every `n` up to
 * `choicesMax`.
 */
export function chatReply(
  { words, choicesMax = Infinity }: {
    /** One per chunk. */
    words: readonly string[];
    /** Answers with no more choices than these, whatever `n` says. */
    choicesMax?: number;
  },
): (request: Pick<WholeRequest, "json">) => Iterable<Step> {
  return function* (request) {
    const { n: count = 1, stream = false } = Object(request.json());
    const n = Math.min(count, choicesMax);
    const indexes = Array.from({ length: n }, (_, index) => index);
    const usage = usageChunk(1, words.length * n);
    if (!stream) {
      const message = { role: "assistant", content: words.join("") };
      yield* jsonResponse({
        ...usage,
        object: "chat.completion",
        choices: indexes.map((index) => (
          { index, message, logprobs: null, finish_reason: "stop" }
        )),
      });
      return;
    }
    const say = (delta: unknown, finish: string | null = null) =>
      indexes.map((index) => chunk(event(choiceChunk(delta, finish, index))));
    yield streamHead();
    yield* say({ role: "assistant", content: "" });
    for (const content of words) yield* say({ content });
    yield* say({}, "stop");
    yield* [chunk(event(usage)), chunk(event("[DONE]")), lastChunk];
  };
}

function responseHead(
  { status = 200, headers }: ResponseOptions,
  fixed: Fields,
) {
  const lines = Object.entries({ ...fixed, ...headers })
    .map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} Status\r\n${lines.join("")}\r\n`;
}
