import { REQUEST_LIMITS } from "../limits.ts";
import {
  clip,
  formatPath,
  isJsonObject,
  nameOfType,
  type PathStep,
  valueAt,
} from "../process/error_text.ts";
import type { ChatMessage, ChatRequest } from "./chat.ts";
import { type ApiError, fieldError } from "./error.ts";
import type { WireRequest } from "./request_schema.ts";

/** What a model can do, as far as a request is checked against it. */
export interface ModelAbilities {
  /** What clients put in `model`. */
  id: string;
  /** Prompt and answer together. Absent: the backend decides. */
  contextTokensMax?: number;
  /** Upper bound of `max_tokens`. Absent: the backend decides. */
  outputTokensMax?: number;
  /** Upper bound of `n`. Absent: the backend decides. */
  choicesMax?: number;
  /** Image parts are accepted. */
  vision: boolean;
  /** Top-level request fields passed on beside the known ones, for example `top_k`. */
  passFields: readonly string[];
}

/** What a schema cannot say: rules between the parts of a request and between a request and its model. */
interface Checked {
  /** As it arrived. */
  body: { readonly [name: string]: unknown };
  wire: WireRequest;
  request: ChatRequest;
  model: ModelAbilities;
}

/** Throws an {@link ApiError} for the first rule that the request breaks. */
export function requireRules({ body, wire, request, model }: Checked): void {
  requireSupportedFields(body, model);
  requireLogprobsForTop(wire);
  requireVision(request.messages, model);
  requireAnsweredToolCalls(request.messages);
  requireChosenTool(wire);
  requireModelBounds(wire, model);
  requireStreamForOptions(wire);
  requireCleanJson(request);
  requireContent(body, request);
}

/** Unanswered call ids named in one message. */
const NAMED_IDS_MAX = 8;

/** Refuses images where the model takes only text. */
function requireVision(
  messages: readonly ChatMessage[],
  model: ModelAbilities,
): void {
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
 * a `tool` message before anybody else speaks, and every `tool` message answers a
 * call of the assistant turn before it. Call ids may repeat in later turns.
 */
function requireAnsweredToolCalls(
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
  return fieldError(
    "invalid_value",
    `messages[${index}]`,
    "Messages with role 'tool' must respond to a preceding message with " +
      "'tool_calls' that contains their 'tool_call_id'.",
  );
}

function unansweredCalls(index: number, open: ReadonlySet<string>): ApiError {
  const ids = [...open].slice(0, NAMED_IDS_MAX).map((id) => clip(id));
  const more = open.size > ids.length ? ", …" : "";
  return fieldError(
    "invalid_value",
    `messages[${index}]`,
    "An assistant message with 'tool_calls' must be followed by tool messages " +
      "responding to each 'tool_call_id'. The following tool_call_ids did not " +
      `have response messages: ${ids.join(", ")}${more}`,
  );
}

/** A choice that needs a tool needs one that is declared. `none` and `auto` need nothing. */
function requireChosenTool(wire: WireRequest): void {
  const choice = wire.tool_choice ?? "none";
  if (choice === "none" || choice === "auto") return;
  const { tools = [] } = wire;
  if (tools.length === 0) {
    throw fieldError(
      "invalid_value",
      "tool_choice",
      "'tool_choice' is only allowed when 'tools' are specified.",
    );
  }
  if (choice === "required") return;
  const { name } = choice.function;
  if (tools.some((tool) => tool.function.name === name)) return;
  throw fieldError(
    "invalid_value",
    "tool_choice.function.name",
    `Invalid value for 'tool_choice': no function named '${name}' was ` +
      "specified in the 'tools' parameter.",
  );
}

/** The bound on the answer and the number of choices must be ones the model can honour. */
function requireModelBounds(wire: WireRequest, model: ModelAbilities): void {
  const tokensMax = tokensMaxOf(wire);
  const {
    outputTokensMax = Infinity,
    contextTokensMax = Infinity,
    choicesMax = Infinity,
  } = model;
  const most = Math.min(outputTokensMax, contextTokensMax);
  if (tokensMax !== null && tokensMax.value > most) {
    throw aboveMax(tokensMax.field, most, tokensMax.value);
  }
  if (wire.n !== undefined && wire.n > choicesMax) {
    throw aboveMax("n", choicesMax, wire.n);
  }
}

function aboveMax(field: string, most: number, value: number): ApiError {
  return fieldError(
    "integer_above_max_value",
    field,
    `Invalid '${field}': integer above maximum value. Expected a value ` +
      `<= ${most}, but got ${value} instead.`,
  );
}

/**
 * Refuses what would change the answer and that no model server here is asked for:
 * anything but text, and the functions that tools have replaced. A model whose
 * configuration passes such a field on may have it.
 */
function requireSupportedFields(
  body: { readonly [name: string]: unknown },
  { passFields }: ModelAbilities,
): void {
  for (const [name, instead] of UNSUPPORTED) {
    const value = body[name] ?? null;
    if (value === null || passFields.includes(name)) continue;
    if (name === "modalities" && isTextOnly(value)) continue;
    throw fieldError(
      "unsupported_parameter",
      name,
      `Unsupported parameter: '${name}' is not supported. ${instead}`,
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
function requireLogprobsForTop(wire: WireRequest): void {
  if ((wire.top_logprobs ?? 0) === 0 || wire.logprobs === true) return;
  throw fieldError(
    "invalid_value",
    "top_logprobs",
    "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
  );
}

/** Options of a stream make sense only for a stream. */
function requireStreamForOptions(wire: WireRequest): void {
  if (wire.stream_options === undefined || wire.stream === true) return;
  throw fieldError(
    "invalid_value",
    "stream_options",
    "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
  );
}

/** Only an assistant that called a tool or refused may have said nothing. */
function requireContent(body: unknown, { messages }: ChatRequest): void {
  const index = messages.findIndex(({ content, tool_calls, refusal }) =>
    content === null && tool_calls === undefined && refusal === undefined
  );
  if (index < 0) return;
  const path = ["messages", index, "content"];
  const param = formatPath(path);
  const content = valueAt(body, path);
  if (content === undefined) {
    const message = `Missing required parameter: '${param}'.`;
    throw fieldError("missing_required_parameter", param, message);
  }
  throw fieldError(
    "invalid_type",
    param,
    `Invalid type for '${param}': expected one of a string or array of ` +
      `objects, but got ${nameOfType(content)} instead.`,
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
 * Refuses values that would change when they are written as JSON again, so that
 * what was checked is what the model server gets: numbers too large for a double
 * (they would become null), unpaired surrogates (they would become U+FFFD), and
 * nesting beyond the limit (it would break recursive readers).
 */
export function requireCleanJson(value: unknown): void {
  const found = findUnclean(value, 0);
  if (found === null) return;
  const param = formatPath(found.steps.reverse());
  const message = `Invalid '${param}': ${found.why}.`;
  throw fieldError("invalid_value", param, message);
}

interface Unclean {
  why: string;
  /** From the innermost step outwards. */
  steps: PathStep[];
}

const SURROGATE = "the text has an unpaired surrogate and is not valid Unicode";

function findUnclean(value: unknown, depth: number): Unclean | null {
  if (typeof value === "string") return uncleanText(value);
  if (typeof value === "number" && !Number.isFinite(value)) {
    const why = "number out of range. Expected a finite number";
    return { why, steps: [] };
  }
  const isList = Array.isArray(value);
  if (!isList && !isJsonObject(value)) return null;
  if (depth >= REQUEST_LIMITS.depthMax) {
    const why = `nested deeper than ${REQUEST_LIMITS.depthMax} levels`;
    return { why, steps: [] };
  }
  if (isList) {
    for (let index = 0; index < value.length; index++) {
      const found = findUnclean(value[index], depth + 1);
      if (found !== null) return within(found, index);
    }
    return null;
  }
  // Allocates nothing; the objects are JSON, so they inherit no members.
  for (const name in value) {
    const found = uncleanText(name) ?? findUnclean(value[name], depth + 1);
    if (found !== null) return within(found, name);
  }
  return null;
}

function uncleanText(text: string): Unclean | null {
  return text.isWellFormed() ? null : { why: SURROGATE, steps: [] };
}

function within(found: Unclean, step: PathStep): Unclean {
  found.steps.push(step);
  return found;
}
