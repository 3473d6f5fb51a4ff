/**
 * The schema of the body of `POST /v1/chat/completions`, in the order in which OpenAI
 * reports faults, and the form that travels inside the gateway. Null means absent;
 * unknown members are dropped, as SDKs expect. Fields are `optional()`: an absent one
 * costs more with `exactOptional()` than to be checked. An error text says what is
 * expected where zod's issue does not; that of a `custom` issue is a whole sentence.
 */
import * as z from "zod";
import { REQUEST_LIMITS as LIMITS } from "../limits.ts";
import { clip } from "../process/error_text.ts";
import {
  anyObject,
  decimal,
  identifier,
  integer,
  INTEGER_MAX,
  listOf,
  model,
  nameText,
  nullable,
  plainText,
  stringOr,
} from "./fields.ts";

/** Model servers that take only strings join the parts with a line end, too. */
const PART_SEPARATOR = "\n";

const textPart = z.object({ type: z.literal("text"), text: z.string() })
  .meta({ id: "TextPart" });
/** A refusal in a message history counts as text. */
const refusalPart = z.object({
  type: z.literal("refusal"),
  refusal: z.string(),
}).meta({ id: "RefusalPart" }).transform(({ refusal }) => ({
  type: "text" as const,
  text: refusal,
}));
const imagePart = z.object({
  type: z.literal("image_url"),
  image_url: nullable(z.object({
    // `file:` URLs would let a caller read the model server's files.
    url: z.string().min(1).regex(/^(?i:https?:\/\/|data:image\/)/, {
      error: "a URL that begins with 'https://', 'http://' or 'data:image/'",
    }),
    detail: z.enum(["auto", "low", "high"]).optional(),
  })),
}).meta({ id: "ImagePart", description: "For models that accept images." });

/**
 * One part of a message whose content is an array. An array of texts becomes one
 * string.
 */
export type ContentPart = z.infer<typeof textPart | typeof imagePart>;

const contentOf = <T extends z.ZodType<ContentPart>>(part: T) =>
  stringOr(z.string(), listOf(part, LIMITS.contentPartsMax), "an array");
const textContent = contentOf(z.discriminatedUnion("type", [textPart]));

/** A call of a tool in a message, whose answer is a `tool` message with its `id`. */
export const toolCall = z.object({
  id: nameText,
  type: z.literal("function"),
  function: z.object({
    name: nameText,
    arguments: z.string().describe("JSON as text, never an object."),
  }),
}).meta({ id: "ToolCall" });

/** A call of a tool, as the model made it. */
export type ToolCall = z.infer<typeof toolCall>;

const name = plainText.optional();
const wireMessage = z.discriminatedUnion("role", [
  z.object({
    role: z.enum(["system", "developer"]),
    content: textContent,
    name,
  }).meta({ id: "SystemMessage" }),
  z.object({
    role: z.literal("user"),
    content: contentOf(z.discriminatedUnion("type", [textPart, imagePart])),
    name,
  }).meta({ id: "UserMessage" }),
  z.object({
    role: z.literal("assistant"),
    content: contentOf(z.discriminatedUnion("type", [textPart, refusalPart]))
      .optional(),
    name,
    refusal: z.string().optional(),
    reasoning_content: z.string().optional(),
    tool_calls: listOf(toolCall, LIMITS.toolCallsPerMessageMax, 1)
      .optional(),
  }).refine(
    ({ content, tool_calls, refusal }) =>
      (content ?? tool_calls ?? refusal) !== undefined,
    {
      path: ["content"],
      error: "An assistant message without 'content' must have 'tool_calls' " +
        "or a 'refusal'.",
    },
  ).meta({
    id: "AssistantMessage",
    description: "Has `content`, `tool_calls` or a `refusal`.",
  }),
  z.object({
    role: z.literal("tool"),
    content: textContent,
    name,
    tool_call_id: nameText,
  }).meta({
    id: "ToolMessage",
    description: "The result of a call in the assistant message before it.",
  }),
]);

/** One message of the conversation, in the one form that travels inside the gateway. */
export interface ChatMessage {
  role: z.infer<typeof wireMessage>["role"];
  /** Null only in an assistant message with tool calls or a refusal. */
  content: string | ContentPart[] | null;
  name?: string;
  tool_calls?: ToolCall[] | undefined;
  tool_call_id?: string;
  refusal?: string | undefined;
  reasoning_content?: string | undefined;
}

/** Joins text parts and leaves out an empty name. */
function toMessage(
  { content, name, ...rest }: z.infer<typeof wireMessage>,
): ChatMessage {
  return {
    ...rest,
    ...(name === undefined || name === "" ? {} : { name }),
    content: typeof content === "object" ? joined(content) : content ?? null,
  };
}

function joined(parts: ContentPart[]): string | ContentPart[] {
  const texts = parts.flatMap((part) => part.type === "text" ? part.text : []);
  return texts.length < parts.length ? parts : texts.join(PART_SEPARATOR);
}

const tool = z.object({
  type: z.literal("function"),
  function: nullable(z.object({
    name: identifier,
    description: z.string().optional(),
    parameters: anyObject.optional().describe("A JSON Schema."),
    strict: z.boolean().optional(),
  })),
}).meta({ id: "Tool" });

/** A function that the model may call. */
export type Tool = z.infer<typeof tool>;

const toolChoice = stringOr(
  z.enum(["none", "auto", "required"]),
  z.object({
    type: z.literal("function"),
    function: z.object({ name: identifier }),
  }).meta({ id: "ToolName" }),
  "an object",
);

const responseFormat = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text") }).meta({ id: "TextFormat" }),
  z.object({ type: z.literal("json_object") }).meta({ id: "JsonFormat" }),
  z.object({
    type: z.literal("json_schema"),
    json_schema: nullable(z.object({
      name: identifier,
      description: z.string().optional(),
      schema: anyObject.optional().describe("A JSON Schema."),
      strict: z.boolean().optional(),
    })),
  }).meta({ id: "SchemaFormat" }),
]);

const stopText = z.string().min(1).max(LIMITS.stopCharsMax);
const penalty = decimal(...LIMITS.penalty).optional();

const wireRequest = z.object({
  model,
  messages: listOf(
    nullable(wireMessage).transform(toMessage),
    LIMITS.messagesMax,
    1,
  ).describe("The conversation so far, the oldest message first."),
  tools: listOf(tool, LIMITS.toolsMax).optional()
    .describe("Functions that the model may call."),
  tool_choice: toolChoice.optional()
    .describe("Whether a tool must be called, or which one. Needs `tools`."),
  parallel_tool_calls: z.boolean().optional()
    .describe("Whether an answer may call several tools."),
  max_completion_tokens: integer(1).optional()
    .describe("The same as `max_tokens`; of both, the smaller one counts."),
  max_tokens: integer(1).optional()
    .describe("Tokens of each choice. Models may have a lower maximum."),
  n: integer(1, LIMITS.nMax).default(1)
    .describe("Choices to generate. Models may have a lower maximum."),
  temperature: decimal(...LIMITS.temperature)
    .optional()
    .describe("Higher is more random. Change this or `top_p`, not both."),
  top_p: decimal(...LIMITS.topP).optional()
    .describe("The share of the probability from which tokens are taken."),
  presence_penalty: penalty
    .describe("Above 0, tokens that have already appeared get less likely."),
  frequency_penalty: penalty
    .describe("Above 0, the more often a token appeared, the less likely."),
  repetition_penalty: z.number().positive().optional()
    .describe("Above 1, less repetition; instead of `frequency_penalty`."),
  logprobs: z.boolean().optional()
    .describe("Whether to return the log probabilities of the tokens."),
  top_logprobs: integer(0, LIMITS.topLogprobsMax).optional()
    .describe("Likeliest tokens to list at each position. Needs `logprobs`."),
  seed: integer(-INTEGER_MAX).optional()
    .describe("With the same seed, answers repeat as far as possible."),
  stop: stringOr(
    stopText,
    listOf(stopText, LIMITS.stopMax),
    "an array of strings",
  ).optional().describe("The answer ends before any of these texts."),
  response_format: responseFormat.optional()
    .describe("What the answer must be: any text, JSON, or JSON of a schema."),
  enable_thinking: z.boolean().optional()
    .describe("Whether the model thinks first, into `reasoning_content`."),
  thinking_budget: integer(1).optional()
    .describe("Tokens to think at most."),
  stream: z.boolean().default(false)
    .describe("Whether to answer with server-sent events."),
  stream_options: nullable(
    z.object({
      include_usage: z.boolean().optional()
        .describe("Whether the last chunk has the usage, without choices."),
    }),
  ).optional().describe("Needs `stream`."),
}).meta({ id: "ChatCompletionRequest" });

/** A request of the right shape, before the rules between its fields are checked. */
export type WireRequest = z.infer<typeof wireRequest>;

/**
 * A request on the bus: without nulls and fields without effect, and with one
 * `max_tokens`.
 */
export type ChatRequest =
  & Omit<WireRequest, "max_completion_tokens" | "stop" | "stream_options">
  & {
    stop?: string[];
    /** `stream_options.include_usage`: the client requested the usage chunk. */
    include_usage: boolean;
    /**
     * Top-level fields that the model's configuration passes on to its backends
     * unchanged.
     */
    extra?: { [name: string]: unknown };
  };

/** Leaves out fields without effect, which some model servers refuse. */
function toRequest(
  {
    max_tokens: older = Infinity,
    max_completion_tokens: newer = Infinity,
    stream_options,
    stop = [],
    tools = [],
    tool_choice,
    parallel_tool_calls,
    logprobs,
    top_logprobs,
    ...rest
  }: WireRequest,
): ChatRequest {
  const request: ChatRequest = {
    ...rest,
    include_usage: stream_options?.include_usage ?? false,
  };
  const tokensMax = Math.min(older, newer);
  if (tokensMax < Infinity) request.max_tokens = tokensMax;
  const stops = typeof stop === "string" ? [stop] : stop;
  if (stops.length > 0) request.stop = stops;
  if (logprobs === true) {
    request.logprobs = true;
    if (top_logprobs !== undefined) request.top_logprobs = top_logprobs;
  }
  if (tools.length > 0) {
    request.tools = tools;
    if (tool_choice !== undefined) request.tool_choice = tool_choice;
    if (parallel_tool_calls !== undefined) {
      request.parallel_tool_calls = parallel_tool_calls;
    }
  }
  return request;
}

/** Checks the parsed body of a request and converts it. Does not change it. */
export const chatRequestSchema = nullable(wireRequest.superRefine(checkRules))
  .transform(toRequest);

type Refuse = (message: string, ...path: PropertyKey[]) => void;

/**
 * The rules between the fields of a request, which a schema cannot express. Messages
 * are whole sentences; only the first is reported.
 */
function checkRules(request: WireRequest, { addIssue }: z.RefinementCtx): void {
  const refuse: Refuse = (message, ...path) =>
    addIssue({ code: "custom", path, message });
  const onlyWith = (param: string, other: string) =>
    refuse(
      `The '${param}' parameter is only allowed when '${other}' is enabled.`,
      param,
    );
  checkToolHistory(request.messages, refuse);
  checkToolChoice(request, refuse);
  if ((request.top_logprobs ?? 0) > 0 && request.logprobs !== true) {
    onlyWith("top_logprobs", "logprobs");
  }
  if (request.stream_options !== undefined && !request.stream) {
    onlyWith("stream_options", "stream");
  }
}

/**
 * Every call of an assistant turn is answered by a `tool` message before the next
 * turn, and every `tool` message answers one. Call ids may repeat in later turns.
 */
function checkToolHistory(
  messages: readonly ChatMessage[],
  refuse: Refuse,
): void {
  /** The calls of the last assistant turn, and those without an answer so far. */
  let calls: ReadonlySet<string> = new Set();
  let open = new Set<string>();
  let callsAt = 0;
  for (const [index, message] of messages.entries()) {
    if (message.role !== "tool") {
      if (open.size > 0) break;
      calls = new Set(message.tool_calls?.map(({ id }) => id));
      open = new Set(calls);
      callsAt = index;
    } else if (calls.has(message.tool_call_id ?? "")) {
      open.delete(message.tool_call_id ?? "");
    } else {
      return refuse(
        "Messages with role 'tool' must respond to a preceding message with " +
          "'tool_calls' that contains their 'tool_call_id'.",
        "messages",
        index,
      );
    }
  }
  const [first] = open;
  if (first === undefined) return;
  refuse(
    "An assistant message with 'tool_calls' must be followed by tool " +
      "messages responding to each 'tool_call_id', but " +
      `'${clip(first)}' has none.`,
    "messages",
    callsAt,
  );
}

function checkToolChoice(
  { tools = [], tool_choice: choice }: WireRequest,
  refuse: Refuse,
): void {
  const name = typeof choice === "object" ? choice.function.name : null;
  if (name === null && choice !== "required") return;
  if (tools.length === 0) {
    const message = "'tool_choice' is only allowed when 'tools' are specified.";
    return refuse(message, "tool_choice");
  }
  if (name === null || tools.some((tool) => tool.function.name === name)) {
    return;
  }
  refuse(
    `Invalid value for 'tool_choice': no function named '${name}' was ` +
      "specified in the 'tools' parameter.",
    "tool_choice",
    "function",
    "name",
  );
}
