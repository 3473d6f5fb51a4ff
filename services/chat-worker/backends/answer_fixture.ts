/** Requests for tests of the worker, readers for the answers to them, and bytes in pieces. */
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { CompletionCall } from "./answer.ts";

/** A streamed request with usage, except for `change`. */
export function requestWith(change: Partial<ChatRequest> = {}): ChatRequest {
  return {
    model: "neutral-3.7-plus",
    messages: [{ role: "user", content: "hi" }],
    stream: true,
    include_usage: true,
    n: 1,
    ...change,
  };
}

/** A call that collects what is passed on. */
export interface RecordedCall extends CompletionCall {
  lines: string;
  /** The count of the last call of `write`. */
  tokens: number;
}

export function recordCall(
  signal: AbortSignal = new AbortController().signal,
): RecordedCall {
  const call: RecordedCall = {
    requestId: "req1",
    created: 1_767_622_290,
    signal,
    lines: "",
    tokens: 0,
    write(lines, tokens) {
      call.lines += lines;
      call.tokens = tokens;
      return undefined;
    },
  };
  return call;
}

/** The lines, parsed. */
export function parsed(lines: string): unknown[] {
  return lines.split("\n").slice(0, -1).map((line) => JSON.parse(line));
}

/**
 * The content of the chunks, one entry each, without the role chunks: `"text"` for
 * text of the first choice and `"1:text"` for text of the second, `"[stop]"` for a
 * finish reason, `"3+2"` for usage, and for anything else the delta with its log
 * probabilities.
 */
export function seen(lines: string): unknown[] {
  return lines.split("\n").slice(0, -1).flatMap((line): unknown[] => {
    const { choices: [choice], usage } = JSON.parse(line);
    if (choice === undefined) {
      return [`${usage.prompt_tokens}+${usage.completion_tokens}`];
    }
    const { index, delta, logprobs, finish_reason } = choice;
    const where = index === 0 ? "" : `${index}:`;
    if (finish_reason !== null) return [`${where}[${finish_reason}]`];
    if (delta.role !== undefined) return [];
    const isText = Object.keys(delta).join() === "content" && !logprobs;
    if (isText) return [where + delta.content];
    return [logprobs === null ? delta : { ...delta, logprobs }];
  });
}

export function* piecesOf(
  bytes: Uint8Array,
  size: number,
): Iterable<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) {
    yield bytes.subarray(at, at + size);
  }
}

/** The bytes whole, byte by byte, and cut in two at every place. */
export function* everySplit(
  input: string | Uint8Array,
): Iterable<Uint8Array[]> {
  const isText = typeof input === "string";
  const bytes = isText ? new TextEncoder().encode(input) : input;
  yield [bytes];
  yield [...piecesOf(bytes, 1)];
  for (let at = 1; at < bytes.length; at++) {
    yield [bytes.subarray(0, at), bytes.subarray(at)];
  }
}
