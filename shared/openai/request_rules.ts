import type { ModelConfig } from "../models/catalog.ts";
import type { ChatMessage, ChatRequest } from "./chat.ts";
import { ApiError } from "./error.ts";
import { hasTools, tokensMaxOf } from "./normalise.ts";
import type { WireRequest } from "./request_schema.ts";
import { clip, nameOfType } from "../process/error_text.ts";

/**
 * What a schema cannot say: rules between the parts of a request and between a
 * request and its model. Each throws an {@link ApiError} or does nothing.
 */

/** Unanswered call ids named in one message. */
const NAMED_IDS_MAX = 8;

/** Refuses images where the model has no eyes. */
export function requireVision(
  messages: readonly ChatMessage[],
  model: ModelConfig,
): void {
  if (model.vision) return;
  for (const [index, { content }] of messages.entries()) {
    if (!Array.isArray(content)) continue;
    const part = content.findIndex(({ type }) => type === "image_url");
    if (part < 0) continue;
    throw new ApiError(
      "unsupported_value",
      `The model '${model.id}' does not accept images. ` +
        "Supported content type is: 'text'.",
      { param: `messages[${index}].content[${part}].type` },
    );
  }
}

/**
 * Checks tool histories both ways: every call of an assistant turn is answered by
 * a `tool` message before anybody else speaks, and every `tool` message answers a
 * call of the assistant turn before it. Call ids may repeat in later turns.
 */
export function requireAnsweredToolCalls(
  messages: readonly ChatMessage[],
): void {
  let asked: ReadonlySet<string> = new Set();
  let open = new Set<string>();
  let askedAt = 0;
  for (const [index, message] of messages.entries()) {
    if (message.role === "tool") {
      const id = message.tool_call_id ?? "";
      if (!asked.has(id)) throw unaskedAnswer(index);
      open.delete(id);
      continue;
    }
    if (open.size > 0) throw unansweredCalls(askedAt, open);
    if (message.tool_calls === undefined) {
      if (asked.size > 0) asked = new Set();
      continue;
    }
    asked = new Set(message.tool_calls.map(({ id }) => id));
    open = new Set(asked);
    askedAt = index;
  }
  if (open.size > 0) throw unansweredCalls(askedAt, open);
}

function unaskedAnswer(index: number): ApiError {
  return new ApiError(
    "invalid_value",
    "Messages with role 'tool' must respond to a preceding message with " +
      "'tool_calls' that contains their 'tool_call_id'.",
    { param: `messages[${index}]` },
  );
}

function unansweredCalls(index: number, open: ReadonlySet<string>): ApiError {
  const ids = [...open].slice(0, NAMED_IDS_MAX).map((id) => clip(id));
  const more = open.size > ids.length ? ", …" : "";
  return new ApiError(
    "invalid_value",
    "An assistant message with 'tool_calls' must be followed by tool messages " +
      "responding to each 'tool_call_id'. The following tool_call_ids did not " +
      `have response messages: ${ids.join(", ")}${more}`,
    { param: `messages[${index}]` },
  );
}

/** A choice that needs a tool needs one that is declared. `none` and `auto` need nothing. */
export function requireChosenTool(wire: WireRequest): void {
  const choice = wire.tool_choice ?? "none";
  if (choice === "none" || choice === "auto") return;
  if (!hasTools(wire)) {
    throw new ApiError(
      "invalid_value",
      "'tool_choice' is only allowed when 'tools' are specified.",
      { param: "tool_choice" },
    );
  }
  if (choice === "required") return;
  const { name } = choice.function;
  if (wire.tools.some((tool) => tool.function.name === name)) return;
  throw new ApiError(
    "invalid_value",
    `Invalid value for 'tool_choice': no function named '${name}' was ` +
      "specified in the 'tools' parameter.",
    { param: "tool_choice.function.name" },
  );
}

/** The bound on the answer must be one the model can honour. */
export function requireTokensInRange(
  wire: WireRequest,
  model: ModelConfig,
): void {
  const asked = tokensMaxOf(wire);
  if (asked === null) return;
  const most = Math.min(
    model.outputTokensMax ?? Infinity,
    model.contextTokensMax ?? Infinity,
  );
  if (asked.value <= most) return;
  throw new ApiError(
    "integer_above_max_value",
    `Invalid '${asked.field}': integer above maximum value. Expected a value ` +
      `<= ${most}, but got ${asked.value} instead.`,
    { param: asked.field },
  );
}

/** Not every model server gives more than one choice. */
export function requireChoicesInRange(
  request: ChatRequest,
  { choicesMax = Infinity }: ModelConfig,
): void {
  if (request.n <= choicesMax) return;
  throw new ApiError(
    "integer_above_max_value",
    `Invalid 'n': integer above maximum value. Expected a value <= ` +
      `${choicesMax}, but got ${request.n} instead.`,
    { param: "n" },
  );
}

/**
 * Refuses what would change the answer and that no model server here is asked for:
 * anything but text, and the functions that tools have replaced. A model whose
 * configuration passes such a field on may have it.
 */
export function requireSupportedFields(
  body: { readonly [name: string]: unknown },
  { passFields }: ModelConfig,
): void {
  for (const [name, instead] of UNSUPPORTED) {
    const value = body[name] ?? null;
    if (value === null || passFields.includes(name)) continue;
    if (name === "modalities" && isTextOnly(value)) continue;
    throw new ApiError(
      "unsupported_parameter",
      `Unsupported parameter: '${name}' is not supported. ${instead}`,
      { param: name },
    );
  }
}

const UNSUPPORTED = [
  ["modalities", "Answers are always text. Leave it out, or use ['text']."],
  ["audio", "Answers are always text."],
  ["functions", "Use 'tools' instead."],
  ["function_call", "Use 'tool_choice' instead."],
] as const;

function isTextOnly(modalities: unknown): boolean {
  return Array.isArray(modalities) &&
    modalities.every((modality) => modality === "text");
}

/** How many alternatives there shall be says nothing where none are asked for. */
export function requireLogprobsForTop(wire: WireRequest): void {
  if ((wire.top_logprobs ?? 0) === 0 || wire.logprobs === true) return;
  throw new ApiError(
    "invalid_value",
    "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
    { param: "top_logprobs" },
  );
}

/** Options of a stream make sense only for a stream. */
export function requireStreamForOptions(wire: WireRequest): void {
  const isGiven = wire.stream_options !== undefined &&
    wire.stream_options !== null;
  if (!isGiven || wire.stream === true) return;
  throw new ApiError(
    "invalid_value",
    "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    { param: "stream_options" },
  );
}

/** Only an assistant that called a tool or refused may have said nothing. */
export function requireContent(
  wire: WireRequest,
  request: ChatRequest,
): void {
  for (const [index, message] of request.messages.entries()) {
    if (message.content !== null) continue;
    if (message.tool_calls !== undefined) continue;
    if (message.refusal !== undefined) continue;
    throw missingContent(index, wire.messages[index]?.content);
  }
}

function missingContent(index: number, content: unknown): ApiError {
  const param = `messages[${index}].content`;
  if (content === undefined) {
    return new ApiError(
      "missing_required_parameter",
      `Missing required parameter: '${param}'.`,
      { param },
    );
  }
  return new ApiError(
    "invalid_type",
    `Invalid type for '${param}': expected one of a string or array of ` +
      `objects, but got ${nameOfType(content)} instead.`,
    { param },
  );
}
