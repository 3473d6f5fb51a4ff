import {
  type ChatRequest,
  chatRequestSchema,
} from "@gateway/shared/openai/chat";
import { ApiError, fieldError } from "@gateway/shared/openai/error";
import { requestFault } from "@gateway/shared/openai/request_fault";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import type { Catalog, ModelConfig } from "@gateway/shared/models/catalog";
import {
  clip,
  formatPath,
  isJsonObject,
  type PathStep,
} from "@gateway/shared/process/error_text";

type Body = { readonly [name: string]: unknown };
type Messages = ChatRequest["messages"];

/**
 * Checks the parsed body of `POST /v1/chat/completions` and converts it into the
 * form that travels inside the gateway. Does not change `body`.
 *
 * Throws an {@link ApiError} for the first fault, in OpenAI's order: the model
 * (404 `model_not_found` if `models` does not have it), then the fields one by one
 * (400 with `param`), then rules between fields. Messages never repeat prompts.
 *
 * Source: OpenAI's API reference and observed answers, September 2026.
 */
export function parseChatRequest(given: unknown, models: Catalog): ChatRequest {
  const body: Body = isJsonObject(given) ? given : {};
  const id = typeof body.model === "string" ? body.model : "";
  const model = models.get(id);
  const { data: request, error } = chatRequestSchema.safeParse(given);
  // The model comes first, because it decides what else is allowed.
  const [field = "model"] = error?.issues[0]?.path ?? ["messages"];
  if (model === undefined && field !== "model") throw modelNotFound(id);
  if (model === undefined || request === undefined) {
    throw requestFault(given, error);
  }
  requireSupportedFields(body, model);
  requireVision(request.messages, model);
  requireModelBounds(request, body, model);
  const extra = passedFields(body, model.pass_fields);
  requireCleanJson({ ...request, ...extra });
  if (Object.keys(extra).length > 0) request.extra = extra;
  return request;
}

/** The 404 for a model that does not exist or that the key may not use. */
export function modelNotFound(id: string): ApiError {
  const name = clip(id, REQUEST_LIMITS.modelCharsMax);
  return new ApiError(
    "model_not_found",
    `The model \`${name}\` does not exist or you do not have access to it.`,
  );
}

/** The fields that the model's configuration passes on unchanged. */
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

/** Refuses images if the model takes only text. */
function requireVision(messages: Messages, model: ModelConfig): void {
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

/** The length of the answer and the number of choices must be within the model's bounds. */
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

/**
 * Refuses values that would change when they are written as JSON again, so that the
 * model server gets what was checked: numbers too large for a double (they would
 * become null) and unpaired surrogates (they would become U+FFFD).
 */
function requireCleanJson(value: unknown): void {
  const path = uncleanPath(value);
  if (path === null) return;
  const param = formatPath(path);
  const message =
    `Invalid '${param}': expected valid Unicode and finite numbers.`;
  throw fieldError("invalid_value", param, message);
}

/**
 * The path of the first value that is not clean; null if there is none. The depth of
 * a body is bounded before it is parsed.
 */
function uncleanPath(value: unknown): PathStep[] | null {
  if (typeof value === "string") return value.isWellFormed() ? null : [];
  if (typeof value === "number") return Number.isFinite(value) ? null : [];
  if (typeof value !== "object" || value === null) return null;
  const isList = Array.isArray(value);
  for (const [name, member] of Object.entries(value)) {
    const path = name.isWellFormed() ? uncleanPath(member) : [];
    if (path !== null) return [isList ? Number(name) : name, ...path];
  }
  return null;
}
