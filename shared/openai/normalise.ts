import type {
  ChatMessage,
  ChatRequest,
  ContentPart,
  ResponseFormat,
  Tool,
} from "./chat.ts";
import type { WireMessage, WireRequest } from "./request_schema.ts";

/**
 * Between the parts of a text that came in pieces. Model servers that take only
 * strings join with a line end too, so an answer does not depend on who joins.
 */
const PART_SEPARATOR = "\n";

/**
 * Brings a checked body into the one form the rest of the gateway knows: nulls
 * and unknown members gone, defaults filled in, text parts joined, `stop` an
 * array. Does not look at `extra`, see {@link passedFields}.
 */
export function normaliseRequest(wire: WireRequest): ChatRequest {
  const request: ChatRequest = {
    model: wire.model,
    messages: wire.messages.map(normaliseMessage),
    stream: wire.stream ?? false,
    include_usage: wire.stream_options?.include_usage ?? false,
    n: wire.n ?? 1,
  };
  copy(request, "temperature", wire.temperature);
  copy(request, "top_p", wire.top_p);
  copy(request, "max_tokens", tokensMaxOf(wire)?.value);
  copy(request, "presence_penalty", wire.presence_penalty);
  copy(request, "frequency_penalty", wire.frequency_penalty);
  copy(request, "repetition_penalty", wire.repetition_penalty);
  copy(request, "seed", wire.seed);
  copy(request, "response_format", responseFormatOf(wire));
  copy(request, "enable_thinking", wire.enable_thinking);
  copy(request, "thinking_budget", wire.thinking_budget);
  copy(request, "stop", stopOf(wire));
  if (wire.logprobs === true) {
    request.logprobs = true;
    copy(request, "top_logprobs", wire.top_logprobs);
  }
  // Without tools these two say nothing; model servers refuse them.
  if (hasTools(wire)) {
    request.tools = wire.tools.map(normaliseTool);
    copy(request, "tool_choice", wire.tool_choice);
    copy(request, "parallel_tool_calls", wire.parallel_tool_calls);
  }
  return request;
}

/**
 * The fields of the body as it arrived that a model's configuration lets through
 * to its backends untouched, or null when the body has none of them.
 */
export function passedFields(
  body: { readonly [name: string]: unknown },
  names: readonly string[],
): { [name: string]: unknown } | null {
  let passed: { [name: string]: unknown } | null = null;
  for (const name of names) {
    if (!Object.hasOwn(body, name) || !isGiven(body[name])) continue;
    passed ??= {};
    passed[name] = body[name];
  }
  return passed;
}

/** Whether the body declares at least one tool; an empty list declares none. */
export function hasTools(
  wire: WireRequest,
): wire is WireRequest & { tools: NonNullable<WireRequest["tools"]> } {
  return isGiven(wire.tools) && wire.tools.length > 0;
}

/** The smaller of the two bounds on the answer, and the name of the field that set it. */
export function tokensMaxOf(
  wire: WireRequest,
): { field: "max_tokens" | "max_completion_tokens"; value: number } | null {
  const older = wire.max_tokens ?? Infinity;
  const newer = wire.max_completion_tokens ?? Infinity;
  if (older === Infinity && newer === Infinity) return null;
  return newer <= older
    ? { field: "max_completion_tokens", value: newer }
    : { field: "max_tokens", value: older };
}

/** True for a value that is there: neither absent nor null. */
function isGiven<T>(value: T): value is NonNullable<T> {
  return value !== undefined && value !== null;
}

/** Sets a member only when there is a value, so that absent members stay absent. */
function copy<T extends object, K extends keyof T>(
  target: T,
  name: K,
  value: T[K] | null | undefined,
): void {
  if (isGiven(value)) target[name] = value;
}

function normaliseMessage(wire: WireMessage): ChatMessage {
  const message: ChatMessage = {
    role: wire.role,
    content: contentOf(wire.content),
  };
  if (isGiven(wire.name) && wire.name !== "") message.name = wire.name;
  if (wire.role === "tool") message.tool_call_id = wire.tool_call_id;
  if (wire.role === "assistant") {
    copy(message, "tool_calls", wire.tool_calls);
    copy(message, "refusal", wire.refusal ?? refusalOf(wire.content));
    copy(message, "reasoning_content", wire.reasoning_content);
  }
  return message;
}

type WireContent = WireMessage["content"];

function contentOf(content: WireContent): ChatMessage["content"] {
  if (typeof content === "string") return content;
  if (!isGiven(content)) return null;
  const parts: ContentPart[] = [];
  let isText = true;
  for (const part of content) {
    if (part.type === "text") parts.push(part);
    if (part.type === "image_url") {
      isText = false;
      const image: { url: string; detail?: "auto" | "low" | "high" } = {
        url: part.image_url.url,
      };
      copy(image, "detail", part.image_url.detail);
      parts.push({ type: "image_url", image_url: image });
    }
  }
  // An assistant's refusal alone is no text, not an empty one.
  if (parts.length === 0 && content.length > 0) return null;
  return isText ? joinTexts(parts) : parts;
}

function joinTexts(parts: ContentPart[]): string {
  return parts
    .map((part) => part.type === "text" ? part.text : "")
    .join(PART_SEPARATOR);
}

/** A refusal that the assistant's turn carries as a part rather than as a member. */
function refusalOf(content: WireContent): string | null {
  if (!Array.isArray(content)) return null;
  const texts = content.flatMap((part) =>
    part.type === "refusal" ? [part.refusal] : []
  );
  return texts.length === 0 ? null : texts.join(PART_SEPARATOR);
}

function normaliseTool(
  { function: given }: NonNullable<WireRequest["tools"]>[number],
): Tool {
  const definition: Tool["function"] = { name: given.name };
  copy(definition, "description", given.description);
  copy(definition, "parameters", given.parameters);
  copy(definition, "strict", given.strict);
  return { type: "function", function: definition };
}

function responseFormatOf(wire: WireRequest): ResponseFormat | null {
  const format = wire.response_format;
  if (!isGiven(format)) return null;
  if (format.type !== "json_schema") return { type: format.type };
  const given = format.json_schema;
  const schema: Extract<ResponseFormat, { type: "json_schema" }>[
    "json_schema"
  ] = { name: given.name };
  copy(schema, "description", given.description);
  copy(schema, "schema", given.schema);
  copy(schema, "strict", given.strict);
  return { type: "json_schema", json_schema: schema };
}

function stopOf({ stop }: WireRequest): string[] | null {
  if (typeof stop === "string") return [stop];
  return isGiven(stop) && stop.length > 0 ? stop : null;
}
