/** Encodes requests to model servers: the body, in the server's dialect, and the HTTP request. */
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { Dialect } from "@gateway/shared/models/dialects";
import type {
  ChatMessage,
  ChatRequest,
  ToolCall,
} from "@gateway/shared/openai/chat";
import { isJsonObject } from "@gateway/shared/process/error_text";
import type { JsonObject } from "./json.ts";
import type { CompletionCall } from "./answer.ts";

/** Fields that are sent unchanged if the client sent them. */
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
 * The body of a request to a model server, in the server's dialect. It contains only
 * fields that the client sent, since servers refuse unknown fields; `n` is omitted if
 * it is 1. Extra fields that the model's configuration permits come first, so that
 * they cannot replace known ones. Every stream requests usage, even if the client did
 * not.
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
  if (field !== "chat_template_kwargs") {
    body[field] = value;
    return;
  }
  const given = body[field];
  body[field] = { ...(isJsonObject(given) ? given : {}), [ours]: value };
}

/**
 * A message in the form that every server accepts: `""` for null content, `{}` for
 * the arguments of a call without any, the role `system` instead of `developer` if
 * the server does not support that role.
 */
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

const VISIBLE_ASCII = /^[\x20-\x7e\t]*$/;
const ID = /^[\w-]{1,128}$/;
const encoder = new TextEncoder();

/**
 * Creates the function that encodes HTTP requests to `url`, ready to be written. The
 * constant part is built only once; `headers` were checked with the models file. If the
 * key cannot be sent, throws an Error that does not contain it.
 */
export function createRequestEncoder(
  url: URL,
  apiKey: string | null,
  headers: { readonly [name: string]: string },
): (
  body: string,
  call: Pick<CompletionCall, "requestId" | "traceparent">,
) => Uint8Array {
  if (!VISIBLE_ASCII.test(apiKey ?? "")) {
    throw new Error("The key of a backend is not visible ASCII");
  }
  const fixed = [
    `POST ${url.pathname}${url.search} HTTP/1.1`,
    `host: ${url.host}`,
    "accept: text/event-stream, application/json",
    "accept-encoding: identity",
    "content-type: application/json",
    ...(apiKey === null ? [] : [`authorization: Bearer ${apiKey}`]),
    ...Object.entries(headers).map(([name, value]) =>
      `${name.toLowerCase()}: ${value}`
    ),
    "content-length: ",
  ].join("\r\n");
  return (body, { requestId, traceparent = "" }) => {
    const bodyBytes = encoder.encode(body);
    let head = `${fixed}${bodyBytes.length}\r\n`;
    if (ID.test(requestId)) head += `x-request-id: ${requestId}\r\n`;
    if (ID.test(traceparent)) head += `traceparent: ${traceparent}\r\n`;
    head += "\r\n";
    // The head is ASCII: one byte per character.
    const request = new Uint8Array(head.length + bodyBytes.length);
    encoder.encodeInto(head, request);
    request.set(bodyBytes, head.length);
    return request;
  };
}
