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

type CallOptions = Omit<RequestInit, "body"> & { client?: Deno.HttpClient };

/**
 * Sends a request with a key: with a body a POST, as JSON where it is no form. Headers
 * of `init` come on top.
 */
export function callApi(
  url: string,
  key: string,
  body?: object,
  init: CallOptions = {},
): Promise<Response> {
  const isJson = body !== undefined && !(body instanceof FormData);
  return fetch(url, {
    ...body && { method: "POST", body: isJson ? JSON.stringify(body) : body },
    ...init,
    headers: {
      authorization: `Bearer ${key}`,
      ...isJson && { "content-type": "application/json" },
      ...Object(init.headers),
    },
  });
}

/** Sends a chat request; its only message is "ping" where `body` has none. */
export function postChat(
  baseUrl: string,
  key: string,
  body: object = {},
  init?: CallOptions,
): Promise<Response> {
  const messages = [{ role: "user", content: "ping" }];
  const asked = { model: DEFAULT_MODEL_ID, messages, ...body };
  return callApi(`${baseUrl}/chat/completions`, key, asked, init);
}
