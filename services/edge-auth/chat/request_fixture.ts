/** Shared by the tests of requests. */
import { parseCatalog } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import {
  assertDescribed,
  ruleBehind,
} from "../../../tests/support/api_document.ts";
import { parseChatRequest } from "./request.ts";

const backends = [
  { type: "openai", base_url: "http://127.0.0.1:9/v1", model: "m" },
];
const base = {
  id: "neutral-3.7-plus",
  context_tokens: 131_072,
  output_tokens: 32_768,
  backends,
};

/**
 * A text model, one with vision, one closed to unknown fields and to addresses, one
 * that takes no `top_k`, one limited to a single choice, and one without any bounds.
 */
export const catalog = parseCatalog({
  models: [
    base,
    { ...base, id: "seer", accepts: ["image", "audio"], fetches_urls: true },
    { ...base, id: "closed", vision: true, only_known_fields: true },
    { ...base, id: "picky", refuse_fields: ["top_k"] },
    { ...base, id: "single", choices: 1 },
    { id: "plain", vision: true, backends },
  ],
});

/** The smallest valid request. */
export const ping: { [name: string]: unknown } = {
  model: "neutral-3.7-plus",
  messages: [{ role: "user", content: "ping" }],
};

/** A tool that `tool_choice` may name. */
export const weatherTool = {
  type: "function",
  function: { name: "get_weather", parameters: { type: "object" } },
};

/** One call of {@link weatherTool} in a history. */
export function callOf(id: string): { [name: string]: unknown } {
  const call = { name: "get_weather", arguments: '{"city":"Rome"}' };
  return { id, type: "function", function: call };
}

/** Fields of a request. */
export type Fields = { [name: string]: unknown };

/** The result of parsing {@link ping}. */
export const PONG: ChatRequest = {
  model: "neutral-3.7-plus",
  messages: [{ role: "user", content: "ping" }],
  stream: false,
  include_usage: false,
  n: 1,
};
/**
 * What the request with these fields becomes. The description of the API allows it,
 * too.
 */
export function parse(fields: Fields): ChatRequest {
  const body = { ...ping, ...fields };
  assertDescribed(body);
  return parseChatRequest(body, catalog);
}

/**
 * The error that a body is refused with, by the description of the API, too, or by one
 * of its rules.
 */
export function refusalOf(body: unknown): ApiError {
  try {
    parseChatRequest(body, catalog);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    ruleBehind(body, error);
    return error;
  }
  throw new Error(`accepted ${JSON.stringify(body)?.slice(0, 200)}`);
}
/** A `tool_choice` that names a function. */
export function chosen(name: string) {
  return { type: "function", function: { name } };
}

/** Content in parts. */
export const parts = [
  { type: "text", text: "one" },
  { type: "text", text: "two" },
];
