/** Requests to the public API, with a key. */
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

/** What a call sends besides its key. */
export type CallOptions = Omit<RequestInit, "body"> & {
  /** Sent by POST, as JSON where it is no form. */
  body?: object | undefined;
  client?: Deno.HttpClient;
};

/** Sends a request with a key. Headers of the options come on top. */
export function callApi(
  url: string,
  key: string,
  { body, headers, ...init }: CallOptions = {},
): Promise<Response> {
  const isJson = body !== undefined && !(body instanceof FormData);
  return fetch(url, {
    ...body && { method: "POST", body: isJson ? JSON.stringify(body) : body },
    ...init,
    headers: {
      authorization: `Bearer ${key}`,
      ...isJson && { "content-type": "application/json" },
      ...Object(headers),
    },
  });
}

/**
 * Sends a chat request to the API at `baseUrl`; its only message is "ping" where the
 * body has none.
 */
export function postChat(
  baseUrl: string,
  key: string,
  { body, ...init }: CallOptions = {},
): Promise<Response> {
  const messages = [{ role: "user", content: "ping" }];
  const fields = { model: DEFAULT_MODEL_ID, messages, ...body };
  return callApi(`${baseUrl}/chat/completions`, key, { ...init, body: fields });
}
