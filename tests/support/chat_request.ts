import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
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

/** Sends a chat request as a client does; its only message is "ping" where `body` has none. Headers of `init` come on top. */
export function postChat(
  baseUrl: string,
  key: string,
  body: object = {},
  init: RequestInit & { client?: Deno.HttpClient } = {},
): Promise<Response> {
  return fetch(`${baseUrl}/chat/completions`, {
    ...init,
    method: "POST",
    headers: {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
      ...Object(init.headers),
    },
    body: JSON.stringify({
      model: DEFAULT_MODEL_ID,
      messages: [{ role: "user", content: "ping" }],
      ...body,
    }),
  });
}
