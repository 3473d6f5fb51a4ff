/** Requests for tests of the worker, readers for the answers to them, and bytes in pieces. */
import assert from "node:assert/strict";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { AttemptProgress } from "@gateway/shared/upstream/pool";
import type { JobCall } from "@gateway/shared/worker/job";

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
export interface RecordedCall extends JobCall {
  lines: string;
  /** The count of the last call of `write`. */
  tokens: number;
}

export function recordCall(signal: AbortSignal = new AbortController().signal) {
  const call: RecordedCall = {
    requestId: "req1",
    created: 1_767_622_290,
    files: [],
    signal,
    lines: "",
    tokens: 0,
    write(lines, tokens) {
      assert.ok(typeof lines === "string");
      call.lines += lines;
      call.tokens = tokens;
      return undefined;
    },
  };
  return call;
}

/** The progress of an attempt that nobody watches. */
export const noProgress = (): AttemptProgress => ({
  hasSent: false,
  onBegun: () => {},
});

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
