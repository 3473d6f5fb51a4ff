/** `POST /v1/chat/completions`: what its requests may be, and how they are answered. */
import {
  type ChatRequest,
  chatRequestSchema,
} from "@gateway/shared/openai/chat";
import { fieldError } from "@gateway/shared/openai/error";
import type { Catalog, ModelConfig } from "@gateway/shared/models/catalog";
import { isJsonObject } from "@gateway/shared/process/error_text";
import { estimateTokens } from "../limits/cost.ts";
import { parseRequest, requireCleanJson } from "../requests/parse_request.ts";
import type { Endpoint } from "../requests/endpoint.ts";
import { bodyAnswer, EventAnswer } from "./answer.ts";

type Body = { readonly [name: string]: unknown };

/** Chat completions, as events or as one body. */
export const CHAT_ENDPOINT: Endpoint<ChatRequest> = {
  kind: "chat",
  parse: parseChatRequest,
  estimate(request, catalog) {
    return estimateTokens(request, catalog.get(request.model));
  },
  answer: ({ stream }) => (options) =>
    stream ? new EventAnswer(options) : bodyAnswer(options),
};

/**
 * Converts the parsed body of `POST /v1/chat/completions`. Throws an `ApiError` for
 * the first fault, in OpenAI's order: the model, the fields one by one, then rules
 * between fields. Messages never repeat prompts.
 */
export function parseChatRequest(given: unknown, models: Catalog): ChatRequest {
  const { request, model } = parseRequest(given, {
    schema: chatRequestSchema,
    kind: "chat",
    models,
  });
  const body: Body = isJsonObject(given) ? given : {};
  requireSupportedFields(body, model);
  requireVision(request, model);
  requireModelBounds(request, body, model);
  const extra = passedFields(body, model.pass_fields);
  requireCleanJson(extra);
  if (Object.keys(extra).length > 0) request.extra = extra;
  return request;
}

function passedFields(body: Body, names: readonly string[]): Body {
  const passed = names.filter((name) =>
    Object.hasOwn(body, name) && (body[name] ?? null) !== null
  );
  return Object.fromEntries(passed.map((name) => [name, body[name]]));
}

const UNSUPPORTED = [
  ["modalities", "Answers are always text. Leave it out, or use ['text']."],
  ["audio", "Answers are always text."],
  ["functions", "Use 'tools' instead."],
  ["function_call", "Use 'tool_choice' instead."],
] as const;

/** Refuses fields that would change the answer and are not supported. */
function requireSupportedFields(
  body: Body,
  { pass_fields: passed }: ModelConfig,
): void {
  for (const [name, instead] of UNSUPPORTED) {
    const value = body[name] ?? null;
    if (value === null || passed.includes(name)) continue;
    if (name === "modalities" && String(value) === "text") continue;
    const message = `Unsupported parameter: '${name}'. ${instead}`;
    throw fieldError("unsupported_parameter", name, message);
  }
}

function requireVision({ messages }: ChatRequest, model: ModelConfig): void {
  if (model.vision) return;
  for (const [index, { content }] of messages.entries()) {
    if (!Array.isArray(content)) continue;
    const part = content.findIndex(({ type }) => type === "image_url");
    if (part < 0) continue;
    throw fieldError(
      "unsupported_value",
      `messages[${index}].content[${part}].type`,
      `The model '${model.id}' does not accept images. ` +
        "Supported content type is: 'text'.",
    );
  }
}

/**
 * The length of the answer and the number of choices must be within the model's bounds.
 */
function requireModelBounds(
  { max_tokens: tokens = 0, n }: ChatRequest,
  body: Body,
  { output_tokens = Infinity, context_tokens = Infinity, choices }: ModelConfig,
): void {
  const isNewer = tokens === body.max_completion_tokens;
  const field = isNewer ? "max_completion_tokens" : "max_tokens";
  requireAtMost(field, tokens, Math.min(output_tokens, context_tokens));
  requireAtMost("n", n, choices ?? Infinity);
}

function requireAtMost(param: string, value: number, most: number): void {
  if (value <= most) return;
  throw fieldError(
    "integer_above_max_value",
    param,
    `Invalid '${param}': expected a value <= ${most}, but got ${value}.`,
  );
}
