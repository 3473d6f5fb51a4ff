/** The body of a chat request in the dialect of a model server. */
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { isJsonObject, type JsonObject } from "@gateway/shared/upstream/json";
import { messagesFor } from "./messages.ts";

/**
 * The body of a request, in the server's dialect: what the client sent, except for the
 * model's name and the fields that servers name differently. Every stream requests
 * usage. `cacheSalt` keeps its account apart in the server's cache.
 */
export function encodeRequestBody(
  request: ChatRequest,
  { model, dialect }: Pick<BackendConfig, "model" | "dialect">,
  { cacheSalt }: { cacheSalt?: string | undefined } = {},
): string {
  const {
    include_usage: _,
    stream_options: options,
    n,
    max_tokens: tokensMax,
    repetition_penalty: penalty,
    enable_thinking: isEnabled,
    thinking_budget: budget,
    ...same
  } = request;
  const body: JsonObject = {
    ...same,
    model,
    messages: messagesFor(request.messages, dialect),
  };
  if (cacheSalt !== undefined) body.cache_salt = cacheSalt;
  if (request.stream && dialect.stream_usage) {
    body.stream_options = { ...options, include_usage: true };
  } else if (options !== undefined) body.stream_options = options;
  if (n > 1) body.n = n;
  put(body, { field: dialect.max_tokens_field, value: tokensMax });
  put(body, { field: dialect.repetition_penalty_field, value: penalty });
  if (dialect.thinking_field !== "reasoning_effort") {
    const name = "enable_thinking";
    put(body, { field: dialect.thinking_field, value: isEnabled, name });
  } else if (isEnabled !== undefined) {
    body.reasoning_effort ??= isEnabled ? "medium" : "none";
  }
  const name = "thinking_budget";
  put(body, { field: dialect.thinking_budget_field, value: budget, name });
  return JSON.stringify(body);
}

/**
 * Adds a field under the server's name for it, if both exist; `name` is its name in
 * `chat_template_kwargs`.
 */
function put(
  body: JsonObject,
  { field, value, name = field }: {
    field: string;
    value: unknown;
    name?: string;
  },
): void {
  if (value === undefined || field === "none") return;
  const members = isJsonObject(body[field]) ? body[field] : {};
  const isKwargs = field === "chat_template_kwargs";
  body[field] = isKwargs ? { ...members, [name]: value } : value;
}
