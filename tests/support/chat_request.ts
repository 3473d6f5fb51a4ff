import type { ChatRequest } from "@gateway/shared/openai/chat";

/** A request without a message and without an answer, but for `part`. */
export function chatRequest(part: Partial<ChatRequest> = {}): ChatRequest {
  return {
    model: "m",
    messages: [],
    stream: false,
    include_usage: false,
    n: 1,
    max_tokens: 0,
    ...part,
  };
}
