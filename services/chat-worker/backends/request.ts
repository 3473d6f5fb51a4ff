/** Encodes the bodies of requests to model servers, in the server's dialect. */
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { Dialect } from "@gateway/shared/models/dialects";
import type {
  ChatMessage,
  ChatRequest,
  ToolCall,
} from "@gateway/shared/openai/chat";
import { isJsonObject } from "@gateway/shared/process/error_text";
import type { JsonObject } from "@gateway/shared/upstream/json";

const SAME_FIELDS = [
  "temperature",
  "top_p",
  "presence_penalty",
  "frequency_penalty",
  "seed",
  "stop",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "response_format",
  "logprobs",
  "top_logprobs",
] as const satisfies readonly (keyof ChatRequest)[];

/**
 * The body of a request, in the server's dialect. It has only fields that the client
 * sent, since servers refuse unknown ones. Permitted extra fields come first, so that
 * they replace no others. Every stream requests usage.
 */
export function encodeRequestBody(
  request: ChatRequest,
  { model, dialect }: Pick<BackendConfig, "model" | "dialect">,
): string {
  const body: JsonObject = {
    ...request.extra,
    model,
    messages: request.messages.map((each) => spelledOut(each, dialect)),
    stream: request.stream,
  };
  if (request.stream && dialect.stream_usage) {
    body.stream_options = { include_usage: true };
  }
  if (request.n > 1) body.n = request.n;
  for (const field of SAME_FIELDS) {
    if (request[field] !== undefined) body[field] = request[field];
  }
  put(body, dialect.max_tokens_field, request.max_tokens);
  put(body, dialect.repetition_penalty_field, request.repetition_penalty);
  const { enable_thinking: isEnabled, thinking_budget: budget } = request;
  if (dialect.thinking_field !== "reasoning_effort") {
    put(body, dialect.thinking_field, isEnabled, "enable_thinking");
  } else if (isEnabled !== undefined) {
    body.reasoning_effort ??= isEnabled ? "medium" : "none";
  }
  put(body, dialect.thinking_budget_field, budget, "thinking_budget");
  return JSON.stringify(body);
}

/** Adds a field under the server's name for it, if both exist; `ours` is its name in `chat_template_kwargs`. */
function put(
  body: JsonObject,
  field: string,
  value: unknown,
  ours = field,
): void {
  if (value === undefined || field === "none") return;
  const given = isJsonObject(body[field]) ? body[field] : {};
  const isKwargs = field === "chat_template_kwargs";
  body[field] = isKwargs ? { ...given, [ours]: value } : value;
}

/** A message that every server accepts: no null content, no empty arguments, `developer` only where supported. */
function spelledOut(message: ChatMessage, dialect: Dialect): ChatMessage {
  const { role, content, tool_calls: calls } = message;
  if (role === "developer" && !dialect.developer_role) {
    return { ...message, role: "system" };
  }
  if (calls === undefined && content !== null) return message;
  return {
    ...message,
    content: content ?? "",
    ...(calls === undefined ? {} : { tool_calls: calls.map(withArguments) }),
  };
}

function withArguments(call: ToolCall): ToolCall {
  if (call.function.arguments !== "") return call;
  return { ...call, function: { ...call.function, arguments: "{}" } };
}
