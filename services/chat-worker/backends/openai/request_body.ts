import type { OpenAiBackendConfig } from "@gateway/shared/models/catalog";
import type {
  ChatMessage,
  ChatRequest,
  ToolCall,
} from "@gateway/shared/openai/chat";
import { isJsonObject, type JsonObject } from "./json.ts";

/** Fields that are sent under their own name when the client gave them. */
const SAME_FIELDS = [
  "temperature",
  "top_p",
  "presence_penalty",
  "frequency_penalty",
  "repetition_penalty",
  "seed",
  "stop",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "response_format",
  "thinking_budget",
  "logprobs",
  "top_logprobs",
] as const satisfies readonly (keyof ChatRequest)[];

/** What of the configuration shapes a body. */
export type BodyDialect = Pick<
  OpenAiBackendConfig,
  "model" | "maxTokensField" | "thinkingField"
>;

/**
 * The JSON text that asks a model server for what the client asked us. Only
 * fields that were given are in it, since servers refuse what they do not know;
 * `n` is one of them, being 1 unless said otherwise. Fields the model's
 * configuration lets through come first, so that they replace none of the known.
 * Usage is asked for in every stream, whether the client wants to see it or not.
 */
export function encodeRequestBody(
  request: ChatRequest,
  dialect: BodyDialect,
): string {
  const body: JsonObject = {
    ...request.extra,
    model: dialect.model,
    messages: request.messages.map(spelledOut),
    stream: request.stream,
  };
  if (request.stream) body.stream_options = { include_usage: true };
  if (request.n > 1) body.n = request.n;
  for (const field of SAME_FIELDS) {
    if (request[field] !== undefined) body[field] = request[field];
  }
  if (request.max_tokens !== undefined) {
    body[dialect.maxTokensField ?? "max_tokens"] = request.max_tokens;
  }
  if (request.enable_thinking !== undefined) {
    putThinking(body, request.enable_thinking, dialect);
  }
  return JSON.stringify(body);
}

/**
 * A turn of the assistant without nulls and blanks that mean "none", which some
 * servers refuse and all take in words: `""` for the content beside a refusal,
 * `{}` for the arguments of a call without any. Null beside tool calls all know.
 */
function spelledOut(message: ChatMessage): ChatMessage {
  const { content, tool_calls: calls } = message;
  if (calls !== undefined) {
    return { ...message, tool_calls: calls.map(withArguments) };
  }
  return content === null ? { ...message, content: "" } : message;
}

function withArguments(call: ToolCall): ToolCall {
  if (call.function.arguments !== "") return call;
  return { ...call, function: { ...call.function, arguments: "{}" } };
}

function putThinking(
  body: JsonObject,
  isEnabled: boolean,
  dialect: BodyDialect,
): void {
  if (dialect.thinkingField !== "chat_template_kwargs") {
    body.enable_thinking = isEnabled;
    return;
  }
  const given = body.chat_template_kwargs;
  body.chat_template_kwargs = {
    ...(isJsonObject(given) ? given : {}),
    enable_thinking: isEnabled,
  };
}
