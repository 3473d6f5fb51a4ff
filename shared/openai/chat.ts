/**
 * The schema of the body of `POST /v1/chat/completions`, in the order in which OpenAI
 * reports faults, and the form that travels inside the gateway. It checks what the
 * service specification bounds and what the gateway itself looks at. Everything else,
 * in the body and in each object of it, passes to the model server as it came. Null
 * means absent where the schema knows the member. Fields are `optional()`: an absent
 * one costs more with `exactOptional()` than to be checked. An error text says what is
 * expected where zod's issue does not; that of a `custom` issue is a whole sentence.
 */
import { z } from "zod";
import { REQUEST_LIMITS as LIMITS } from "../limits.ts";
import { clip } from "../process/error_text.ts";
import { type ChatMessage, toMessage, wireMessage } from "./chat_message.ts";
import {
  anyObject,
  decimal,
  integer,
  INTEGER_MAX,
  listOf,
  model,
  nameText,
  nullable,
  openUnion,
  stringOr,
} from "./fields.ts";

const functionTool = z.looseObject({
  type: z.literal("function"),
  function: nullable(z.looseObject({
    name: nameText,
    description: z.string().optional(),
    parameters: anyObject.optional().describe("A JSON Schema."),
    strict: z.boolean().optional(),
  })),
}).meta({ id: "Tool" });

/** A tool that the model may call; of other types than `function`, only that. */
export interface Tool {
  type: string;
  function?: {
    name: string;
    description?: string | undefined;
    parameters?: { [name: string]: unknown } | undefined;
    strict?: boolean | undefined;
    [member: string]: unknown;
  };
  [member: string]: unknown;
}
const tool = openUnion<Tool>({ function: functionTool });

/** The tool that must be called. */
interface ToolChoice {
  type: string;
  function?: { name: string };
  [member: string]: unknown;
}
const toolChoice = stringOr(
  z.enum(["none", "auto", "required"]),
  openUnion<ToolChoice>({
    function: z.looseObject({
      type: z.literal("function"),
      function: z.looseObject({ name: nameText }),
    }).meta({ id: "ToolName" }),
  }),
  "an object",
);

/** What the answer must be. */
interface ResponseFormat {
  type: string;
  json_schema?: {
    name: string;
    schema?: { [name: string]: unknown } | undefined;
    strict?: boolean | undefined;
  };
  [member: string]: unknown;
}
const responseFormat = openUnion<ResponseFormat>({
  json_schema: z.looseObject({
    type: z.literal("json_schema"),
    json_schema: nullable(z.looseObject({
      name: nameText,
      description: z.string().optional(),
      schema: anyObject.optional().describe("A JSON Schema."),
      strict: z.boolean().optional(),
    })),
  }).meta({ id: "SchemaFormat" }),
});

const stopText = z.string().min(1).max(LIMITS.stopCharsMax);
const penalty = decimal(...LIMITS.penalty).optional();

const wireRequest = z.looseObject({
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
    z.looseObject({
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
export interface ChatRequest {
  model: string;
  messages: ChatMessage[];
  stream: boolean;
  /** `stream_options.include_usage`: the client requested the usage chunk. */
  include_usage: boolean;
  /** The other stream options, if there are any. */
  stream_options?: { [name: string]: unknown };
  n: number;
  max_tokens?: number | undefined;
  stop?: string[];
  temperature?: number | undefined;
  top_p?: number | undefined;
  presence_penalty?: number | undefined;
  frequency_penalty?: number | undefined;
  seed?: number | undefined;
  tools?: Tool[];
  tool_choice?: WireRequest["tool_choice"];
  parallel_tool_calls?: boolean;
  response_format?: ResponseFormat | undefined;
  logprobs?: boolean;
  top_logprobs?: number;
  repetition_penalty?: number | undefined;
  enable_thinking?: boolean | undefined;
  thinking_budget?: number | undefined;
  /** What only the model server knows. */
  [field: string]: unknown;
}

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
  const { include_usage = false, ...options } = stream_options ?? {};
  const request: ChatRequest = { ...rest, include_usage };
  if (Object.keys(options).length > 0) request.stream_options = options;
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

/** The fields of the body that the schema knows. */
export const CHAT_FIELDS: ReadonlySet<string> = new Set(
  Object.keys(wireRequest.shape),
);

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
  if (messages.every(hasNoTool)) return;
  /** The calls of the last assistant turn, and those without an answer so far. */
  let calls: ReadonlySet<string> = new Set();
  let open = new Set<string>();
  let callsAt = 0;
  for (const [index, message] of messages.entries()) {
    if (message.role !== "tool") {
      if (open.size > 0) break;
      calls = new Set(message.tool_calls?.map(({ id = "" }) => id));
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

const hasNoTool = ({ role, tool_calls }: ChatMessage): boolean =>
  role !== "tool" && tool_calls === undefined;

function checkToolChoice(
  { tools = [], tool_choice: choice }: WireRequest,
  refuse: Refuse,
): void {
  const name = typeof choice === "object" ? choice.function?.name : undefined;
  if (name === undefined && choice !== "required") return;
  if (tools.length === 0) {
    const message = "'tool_choice' is only allowed when 'tools' are specified.";
    return refuse(message, "tool_choice");
  }
  const isKnown = tools.some((tool) => tool.function?.name === name);
  if (name === undefined || isKnown) return;
  refuse(
    `Invalid value for 'tool_choice': no function named '${name}' was ` +
      "specified in the 'tools' parameter.",
    "tool_choice",
    "function",
    "name",
  );
}
