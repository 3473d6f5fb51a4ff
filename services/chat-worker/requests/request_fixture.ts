/** Requests for tests of the worker. */
import type { ChatRequest } from "@gateway/shared/openai/chat";

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
