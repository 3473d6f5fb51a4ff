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

const TRIES_MAX = 50;

/**
 * Asks again, as clients do, when Redis, or a worker if `codes` has `overloaded`, did
 * not answer the edge in time: on a busy machine that is no outage.
 */
export async function patiently(
  ask: () => Promise<Response>,
  codes = /"service_unavailable"/,
): Promise<Response> {
  for (let tries = 1;; tries += 1) {
    const response = await ask();
    if (response.status !== 503) return response;
    const text = await response.text();
    const isBusy = codes.test(text);
    if (!isBusy || tries === TRIES_MAX) return new Response(text, response);
  }
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
