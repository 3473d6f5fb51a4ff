/**
 * Chat requests: the schema of the body of `POST /v1/chat/completions`, and the form
 * that travels inside the gateway. Null means absent in every optional field. Unknown
 * members are dropped silently, as SDKs expect. The order of the members is the order
 * in which OpenAI reports faults.
 *
 * An error text says what is expected where zod's issue does not; `request_fault.ts`
 * builds a sentence from it. The message of a `custom` issue is a whole sentence.
 */
import * as z from "zod";
import { REQUEST_LIMITS as LIMITS } from "../limits.ts";
import { isJsonObject } from "../process/error_text.ts";
import { ruleFault } from "./chat_rules.ts";

/** Names end up in logs, headers and other people's terminals. */
const NO_CONTROLS = /^\P{Cc}*$/u;
const IDENTIFIER = /^[a-zA-Z0-9_-]+$/;
const INTEGER_MAX = Number.MAX_SAFE_INTEGER;
/** Marks the bounds of an integer, which zod does not distinguish from those of other numbers. */
export const INTEGER = "an integer";
/**
 * Joins the text parts of a message. Model servers that take only strings join them
 * with a line end, too, so the result is the same.
 */
const PART_SEPARATOR = "\n";

const plainText = z.string().regex(NO_CONTROLS, {
  error: "text without control characters",
});
const nameText = plainText.min(1);
/** A function or schema name by OpenAI's rule. */
const identifier = (charsMax: number) =>
  z.string().min(1).max(charsMax).regex(IDENTIFIER, {
    error: `a string that matches '${IDENTIFIER.source}'`,
  });
/** JSON's `1.0` is an integer too: JavaScript cannot tell the two apart. */
const integer = (min: number, max = INTEGER_MAX) =>
  z.int().min(min, { error: INTEGER }).max(max, { error: INTEGER });
const decimal = (min: number, max: number) => z.number().min(min).max(max);
/** A JSON Schema, whose content is not checked. */
const anyObject = z.record(z.string(), z.unknown());

/** Treats null members of an object as absent: SDKs of typed languages send them. */
function nullable<T extends z.ZodType>(schema: T) {
  return z.preprocess(withoutNulls, schema);
}

function withoutNulls(value: unknown): unknown {
  if (!isJsonObject(value) || !Object.values(value).includes(null)) {
    return value;
  }
  const given = Object.entries(value).filter(([, member]) => member !== null);
  return Object.fromEntries(given);
}

/** Checks a value, or the element at `index`, with another schema and passes on the first fault. */
function checked<T extends z.ZodType>(
  schema: T,
  value: unknown,
  context: z.RefinementCtx,
  index?: number,
): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  for (const issue of result.error.issues.slice(0, 1)) {
    const path = index === undefined ? issue.path : [index, ...issue.path];
    context.issues.push({ ...issue, path, input: undefined });
  }
  return z.NEVER;
}

/**
 * An array whose check stops at the first fault. zod's own arrays collect every
 * fault: refusing a million wrong elements would cost seconds and a gigabyte.
 */
function listOf<T extends z.ZodType>(element: T, max: number, min = 0) {
  return z.array(z.unknown()).min(min).max(max).transform((items, context) => {
    const list: z.output<T>[] = [];
    for (const [index, item] of items.entries()) {
      list.push(checked(element, item, context, index));
      if (context.issues.length > 0) break;
    }
    return list;
  });
}

/**
 * A string or something else, whose faults are reported. A zod union would report
 * the faults of both.
 */
function stringOr<S, T extends z.ZodType>(
  readText: (text: string, context: z.RefinementCtx) => S,
  other: T,
  otherName: string,
) {
  return z.unknown().transform((value, context): S | z.output<T> => {
    if (typeof value === "string") return readText(value, context);
    if (isObject(value)) return checked(other, value, context);
    const expected = `string or ${otherName}`;
    context.issues.push({ code: "invalid_type", expected, input: undefined });
    return z.NEVER;
  });
}

const isObject = (value: unknown) =>
  typeof value === "object" && value !== null;

const textPart = z.object({ type: z.literal("text"), text: z.string() });
/** A refusal in a message history counts as text. */
const refusalPart = z.object({
  type: z.literal("refusal"),
  refusal: z.string(),
}).transform(({ refusal }) => ({ type: "text" as const, text: refusal }));
const imagePart = z.object({
  type: z.literal("image_url"),
  image_url: nullable(z.object({
    // `file:` URLs would let a caller read the model server's files.
    url: z.string().min(1).regex(/^(https?:\/\/|data:image\/)/i, {
      error: "a URL that begins with 'https://', 'http://' or 'data:image/'",
    }),
    detail: z.enum(["auto", "low", "high"]).exactOptional(),
  })),
});

/** One part of a message whose content is an array. An array of texts becomes one string. */
export type ContentPart = z.infer<typeof textPart | typeof imagePart>;

const contentOf = <T extends z.ZodType<ContentPart>>(part: T) =>
  stringOr((text) => text, listOf(part, LIMITS.contentPartsMax), "an array");
const textContent = contentOf(z.discriminatedUnion("type", [textPart]));

const toolCall = z.object({
  id: nameText,
  type: z.literal("function"),
  /** `arguments` is JSON text, never an object. */
  function: z.object({ name: nameText, arguments: z.string() }),
});

export type ToolCall = z.infer<typeof toolCall>;

const name = plainText.exactOptional();
const wireMessage = z.discriminatedUnion("role", [
  z.object({
    role: z.enum(["system", "developer"]),
    content: textContent,
    name,
  }),
  z.object({
    role: z.literal("user"),
    content: contentOf(z.discriminatedUnion("type", [textPart, imagePart])),
    name,
  }),
  z.object({
    role: z.literal("assistant"),
    content: contentOf(z.discriminatedUnion("type", [textPart, refusalPart]))
      .exactOptional(),
    name,
    refusal: z.string().exactOptional(),
    reasoning_content: z.string().exactOptional(),
    tool_calls: listOf(toolCall, LIMITS.toolCallsPerMessageMax, 1)
      .exactOptional(),
  }).refine(
    ({ content, tool_calls, refusal }) =>
      (content ?? tool_calls ?? refusal) !== undefined,
    {
      path: ["content"],
      error: "An assistant message without 'content' must have 'tool_calls' " +
        "or a 'refusal'.",
    },
  ),
  z.object({
    role: z.literal("tool"),
    content: textContent,
    name,
    tool_call_id: nameText,
  }),
]);

/** A message of any role. */
export interface ChatMessage {
  role: z.infer<typeof wireMessage>["role"];
  /** Null only in an assistant message with tool calls or a refusal. */
  content: string | ContentPart[] | null;
  name?: string;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  refusal?: string;
  reasoning_content?: string;
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

/** One string if all parts are text. */
function joined(parts: ContentPart[]): string | ContentPart[] {
  const texts = parts.flatMap((part) => part.type === "text" ? part.text : []);
  return texts.length < parts.length ? parts : texts.join(PART_SEPARATOR);
}

const tool = z.object({
  type: z.literal("function"),
  function: nullable(z.object({
    name: identifier(LIMITS.toolNameCharsMax),
    description: z.string().exactOptional(),
    parameters: anyObject.exactOptional(),
    strict: z.boolean().exactOptional(),
  })),
});

export type Tool = z.infer<typeof tool>;

const toolMode = z.enum(["none", "auto", "required"]);
const toolChoice = stringOr(
  (text, context) => checked(toolMode, text, context),
  z.object({
    type: z.literal("function"),
    function: z.object({ name: identifier(LIMITS.toolNameCharsMax) }),
  }),
  "an object",
);

const responseFormat = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text") }),
  z.object({ type: z.literal("json_object") }),
  z.object({
    type: z.literal("json_schema"),
    json_schema: nullable(z.object({
      name: identifier(LIMITS.schemaNameCharsMax),
      description: z.string().exactOptional(),
      schema: anyObject.exactOptional(),
      strict: z.boolean().exactOptional(),
    })),
  }),
]);

const stopText = z.string().min(1).max(LIMITS.stopCharsMax);
const penalty = decimal(LIMITS.penaltyMin, LIMITS.penaltyMax).exactOptional();

const wireRequest = z.object({
  model: nameText.max(LIMITS.modelCharsMax),
  messages: listOf(
    nullable(wireMessage).transform(toMessage),
    LIMITS.messagesMax,
    1,
  ),
  tools: listOf(tool, LIMITS.toolsMax).exactOptional(),
  tool_choice: toolChoice.exactOptional(),
  parallel_tool_calls: z.boolean().exactOptional(),
  max_completion_tokens: integer(1).exactOptional(),
  max_tokens: integer(1).exactOptional(),
  n: integer(1, LIMITS.nMax).default(1),
  temperature: decimal(LIMITS.temperatureMin, LIMITS.temperatureMax)
    .exactOptional(),
  top_p: decimal(LIMITS.topPMin, LIMITS.topPMax).exactOptional(),
  presence_penalty: penalty,
  frequency_penalty: penalty,
  repetition_penalty: z.number().positive().exactOptional(),
  logprobs: z.boolean().exactOptional(),
  top_logprobs: integer(0, LIMITS.topLogprobsMax).exactOptional(),
  seed: integer(-INTEGER_MAX).exactOptional(),
  stop: stringOr(
    (text, context) => [checked(stopText, text, context)],
    listOf(stopText, LIMITS.stopMax),
    "an array of strings",
  ).exactOptional(),
  response_format: responseFormat.exactOptional(),
  enable_thinking: z.boolean().exactOptional(),
  thinking_budget: integer(1).exactOptional(),
  stream: z.boolean().default(false),
  stream_options: nullable(
    z.object({ include_usage: z.boolean().exactOptional() }),
  ).exactOptional(),
});

/** A request of the right shape, before the rules between its fields are checked. */
export type WireRequest = z.infer<typeof wireRequest>;

/**
 * A request as edges publish it on the bus: without nulls, unknown fields and fields
 * that have no effect, with `stop` as an array, and with the smaller of `max_tokens`
 * and `max_completion_tokens` as `max_tokens`.
 */
export type ChatRequest =
  & Omit<WireRequest, "max_completion_tokens" | "stream_options">
  & {
    /** `stream_options.include_usage`: the client requested the usage chunk. */
    include_usage: boolean;
    /** Top-level fields that the model's configuration passes on to its backends unchanged. */
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
  if (stop.length > 0) request.stop = stop;
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
export const chatRequestSchema = nullable(
  wireRequest.superRefine((request, { addIssue }) => {
    const fault = ruleFault(request);
    if (fault !== null) addIssue({ code: "custom", ...fault });
  }),
).transform(toRequest);
