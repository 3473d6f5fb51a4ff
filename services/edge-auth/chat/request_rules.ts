import { REQUEST_LIMITS } from "@gateway/shared/limits";
import type { ModelConfig } from "@gateway/shared/models/catalog";
import { type ApiError, fieldError } from "@gateway/shared/openai/error";
import {
  clip,
  formatPath,
  type PathStep,
} from "@gateway/shared/process/error_text";
import type { WireRequest } from "./request_schema.ts";

/** The abilities of a model that requests are checked against. */
export type ModelAbilities = Pick<
  ModelConfig,
  | "id"
  | "vision"
  | "pass_fields"
  | "context_tokens"
  | "output_tokens"
  | "choices"
>;

type Messages = WireRequest["messages"];

/**
 * The rules that a schema cannot express, between the parts of a request and between
 * a request and its model. Throws an {@link ApiError} for the first violation.
 */
export function requireRules(
  body: { readonly [name: string]: unknown },
  wire: WireRequest,
  model: ModelAbilities,
): void {
  requireSupportedFields(body, model);
  requireVision(wire.messages, model);
  requireAnsweredToolCalls(wire.messages);
  requireChosenTool(wire);
  requireModelBounds(wire, model);
  if ((wire.top_logprobs ?? 0) > 0 && wire.logprobs !== true) {
    throw invalid(
      "top_logprobs",
      "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
    );
  }
  if (wire.stream_options !== undefined && !wire.stream) {
    throw invalid(
      "stream_options",
      "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    );
  }
}

function invalid(param: string, message: string): ApiError {
  return fieldError("invalid_value", param, message);
}

const UNSUPPORTED = [
  ["modalities", "Answers are always text. Leave it out, or use ['text']."],
  ["audio", "Answers are always text."],
  ["functions", "Use 'tools' instead."],
  ["function_call", "Use 'tool_choice' instead."],
] as const;

/** Refuses fields that would change the answer and are not supported. */
function requireSupportedFields(
  body: { readonly [name: string]: unknown },
  { pass_fields: passed }: ModelAbilities,
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
function requireVision(messages: Messages, model: ModelAbilities): void {
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
 * Checks tool histories both ways: every call of an assistant turn is answered by
 * a `tool` message before the next turn, and every `tool` message answers a
 * call of the assistant turn before it. Call ids may repeat in later turns.
 */
function requireAnsweredToolCalls(messages: Messages): void {
  let asked: ReadonlySet<string> = new Set();
  let open = new Set<string>();
  let askedAt = 0;
  for (const [index, message] of messages.entries()) {
    if (message.role === "tool") {
      const id = message.tool_call_id ?? "";
      if (!asked.has(id)) {
        throw invalid(
          `messages[${index}]`,
          "Messages with role 'tool' must respond to a preceding message with " +
            "'tool_calls' that contains their 'tool_call_id'.",
        );
      }
      open.delete(id);
      continue;
    }
    if (open.size > 0) throw unansweredCalls(askedAt, open);
    asked = new Set(message.tool_calls?.map(({ id }) => id));
    open = new Set(asked);
    askedAt = index;
  }
  if (open.size > 0) throw unansweredCalls(askedAt, open);
}

function unansweredCalls(index: number, open: ReadonlySet<string>): ApiError {
  const [first = ""] = open;
  return invalid(
    `messages[${index}]`,
    "An assistant message with 'tool_calls' must be followed by tool messages " +
      `responding to each 'tool_call_id', but '${clip(first)}' has none.`,
  );
}

/** A tool that must be called must be declared. */
function requireChosenTool({ tool_choice, tools = [] }: WireRequest): void {
  const choice = tool_choice ?? "none";
  if (choice === "none" || choice === "auto") return;
  if (tools.length === 0) {
    throw invalid(
      "tool_choice",
      "'tool_choice' is only allowed when 'tools' are specified.",
    );
  }
  if (choice === "required") return;
  const { name } = choice.function;
  if (tools.some((tool) => tool.function.name === name)) return;
  throw invalid(
    "tool_choice.function.name",
    `Invalid value for 'tool_choice': no function named '${name}' was ` +
      "specified in the 'tools' parameter.",
  );
}

/** The length of the answer and the number of choices must be within the model's bounds. */
function requireModelBounds(wire: WireRequest, model: ModelAbilities): void {
  const {
    output_tokens: outputTokens = Infinity,
    context_tokens: contextTokens = Infinity,
    choices = Infinity,
  } = model;
  const tokens = tokensMaxOf(wire);
  if (tokens !== null) {
    const most = Math.min(outputTokens, contextTokens);
    requireAtMost(tokens.field, tokens.value, most);
  }
  requireAtMost("n", wire.n, choices);
}

function requireAtMost(param: string, value: number, most: number): void {
  if (value <= most) return;
  throw fieldError(
    "integer_above_max_value",
    param,
    `Invalid '${param}': expected a value <= ${most}, but got ${value}.`,
  );
}

/** The smaller of the two bounds on the answer, and the name of the field that set it. */
export function tokensMaxOf(
  { max_tokens = Infinity, max_completion_tokens = Infinity }: WireRequest,
): { field: "max_tokens" | "max_completion_tokens"; value: number } | null {
  const value = Math.min(max_tokens, max_completion_tokens);
  if (value === Infinity) return null;
  const isNewer = value === max_completion_tokens;
  return { field: isNewer ? "max_completion_tokens" : "max_tokens", value };
}

/**
 * Refuses values that would change when they are written as JSON again, so that the
 * model server gets what was checked: numbers too large for a double (they would
 * become null), unpaired surrogates (they would become U+FFFD), and nesting beyond
 * the limit (it would break recursive readers).
 */
export function requireCleanJson(value: unknown): void {
  const path = uncleanPath(value, 0);
  if (path === null) return;
  const param = formatPath(path);
  const message =
    `Invalid '${param}': expected valid Unicode, finite numbers ` +
    `and at most ${REQUEST_LIMITS.depthMax} levels.`;
  throw invalid(param, message);
}

/** The path of the first value that is not clean; null if there is none. */
function uncleanPath(value: unknown, depth: number): PathStep[] | null {
  if (typeof value === "string") return value.isWellFormed() ? null : [];
  if (typeof value === "number") return Number.isFinite(value) ? null : [];
  if (typeof value !== "object" || value === null) return null;
  if (depth >= REQUEST_LIMITS.depthMax) return [];
  const isList = Array.isArray(value);
  for (const [name, member] of Object.entries(value)) {
    const path = name.isWellFormed() ? uncleanPath(member, depth + 1) : [];
    if (path !== null) return [isList ? Number(name) : name, ...path];
  }
  return null;
}
