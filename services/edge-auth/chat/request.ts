/** `POST /v1/chat/completions`: checks its body, and says what it may cost. */
import type {
  Catalog,
  Medium,
  ModelConfig,
} from "@gateway/shared/models/catalog";
import type { ContentPart } from "@gateway/shared/openai/chat_message";
import {
  CHAT_FIELDS,
  type ChatRequest,
  chatRequestSchema,
} from "@gateway/shared/openai/chat";
import { fieldError } from "@gateway/shared/openai/error";
import { findRefusedField } from "@gateway/shared/openai/refused_fields";
import { isJsonObject } from "@gateway/shared/process/error_text";
import { requireSpeaker } from "../forward/checks.ts";
import { estimateTokens } from "../limits/cost.ts";
import {
  MEDIUM_OF_PART,
  notAccepted,
} from "../requests/body/accepted_media.ts";
import { mustNotPass } from "../requests/body/addresses.ts";
import {
  mustNotFetch,
  parseRequest,
  requireAllowedFields,
  requireAtMost,
} from "../requests/body/parse_request.ts";
import type { Endpoint } from "../requests/endpoint.ts";
import { bodyAnswer, EventAnswer } from "./answer.ts";

type Body = { readonly [name: string]: unknown };

/** Chat completions, as events or as one body. */
export const CHAT_ENDPOINT: Endpoint<ChatRequest> = {
  kind: "chat",
  isKept: true,
  parse: parseChatRequest,
  conversation: (body) => body,
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
export function parseChatRequest(value: unknown, models: Catalog): ChatRequest {
  const { request, model } = parseRequest(value, {
    schema: chatRequestSchema,
    kind: "chat",
    models,
  });
  const body: Body = isJsonObject(value) ? value : {};
  requireSpeaker("chat", model);
  requirePassableFields(body, request, model);
  requireAcceptedParts(request, model);
  requireModelBounds(request, body, model);
  return request;
}

/** Refuses what must not pass to a model server, and what the operator excludes. */
function requirePassableFields(
  body: Body,
  { max_tokens: maxTokens }: ChatRequest,
  model: ModelConfig,
): void {
  const field = findRefusedField(body, { maxTokens });
  if (field !== null) {
    throw fieldError("unsupported_parameter", field.param, field.message);
  }
  requireAllowedFields(body, CHAT_FIELDS, model);
}

/** Refuses media that the model does not take, and addresses it must not fetch. */
function requireAcceptedParts(
  { messages }: ChatRequest,
  model: ModelConfig,
): void {
  for (const [index, { content }] of messages.entries()) {
    if (!Array.isArray(content)) continue;
    for (const [at, part] of content.entries()) {
      const medium = MEDIUM_OF_PART.get(part.type);
      if (medium === undefined) continue;
      requireAccepted(part, medium, {
        path: `messages[${index}].content[${at}]`,
        model,
      });
    }
  }
}

function requireAccepted(
  part: ContentPart,
  medium: Medium,
  { path, model }: { path: string; model: ModelConfig },
): void {
  if (!model.accepts.has(medium)) {
    throw notAccepted({ type: part.type, medium, path }, model);
  }
  const where = addressIn(part, model);
  if (where === null) return;
  throw mustNotFetch(`${path}.${where}`, model);
}

/** The path within a part of an address that its server must not fetch, or null. */
function addressIn(value: unknown, model: ModelConfig): string | null {
  if (!isJsonObject(value)) return null;
  for (const [name, member] of Object.entries(value)) {
    if (name === "text") continue;
    if (typeof member === "string" && mustNotPass(member, model)) return name;
    const inner = addressIn(member, model);
    if (inner !== null) return `${name}.${inner}`;
  }
  return null;
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
