/** Requests for tests of the worker, and what a client sees of their answers. */
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { CompletionCall } from "./answer.ts";

/** A streamed request that wants to see the usage, but for `change`. */
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
  /** As told last. */
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

/** The lines as they are. */
export function parsed(lines: string): unknown[] {
  return lines.split("\n").slice(0, -1).map((line) => JSON.parse(line));
}

/**
 * What is in the chunks, one entry each, without those of roles: `"text"` for text
 * of the first choice and `"1:text"` for that of the next, `"[stop]"` for a finish
 * reason, the delta with its log probabilities for anything else, and `"3+2"` for
 * usage.
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
