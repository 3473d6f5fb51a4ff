/** Parses chat completion requests as common model servers do. Pure. */
import { formatPath } from "@gateway/shared/process/error_text";
import * as z from "zod";
import { HttpError } from "./errors.ts";

/** Null means absent in every field. */
function maybe<T extends z.ZodType>(schema: T) {
  return schema.nullish().transform((value) => value ?? undefined);
}

function orElse<T>(schema: z.ZodType<T>, fallback: T) {
  return schema.nullish().transform((value) => value ?? fallback);
}

const jsonObject = z.record(z.string(), z.unknown());

const part = z.looseObject({ type: z.string(), text: maybe(z.string()) });

const message = z.looseObject({
  role: z.enum(["system", "developer", "user", "assistant", "tool"]),
  content: maybe(z.union([z.string(), z.array(part)])),
});

const tool = z.looseObject({
  type: z.literal("function"),
  function: z.looseObject({
    name: z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/),
    parameters: maybe(jsonObject),
    strict: maybe(z.boolean()),
  }),
});

const responseFormat = z.discriminatedUnion("type", [
  z.looseObject({ type: z.literal("text") }),
  z.looseObject({ type: z.literal("json_object") }),
  z.looseObject({
    type: z.literal("json_schema"),
    json_schema: z.looseObject({
      name: z.string().min(1).max(64),
      schema: maybe(jsonObject),
      strict: maybe(z.boolean()),
    }),
  }),
]);

const toolChoice = z.union([
  z.enum(["auto", "none", "required"]),
  z.looseObject({
    type: z.literal("function"),
    function: z.looseObject({ name: z.string() }),
  }),
]);

const tokens = z.int().min(1);
const penalty = z.number().min(-2).max(2);
const stopText = z.string().min(1).max(1_000);

const chatRequest = z.looseObject({
  model: z.string(),
  messages: z.array(message).min(1).max(4_096),
  stream: maybe(z.boolean()),
  stream_options: maybe(z.looseObject({ include_usage: maybe(z.boolean()) })),
  temperature: orElse(z.number().min(0).max(2), 1),
  top_p: orElse(z.number().min(0).max(1), 1),
  top_k: orElse(z.int(), 0),
  min_p: orElse(z.number().min(0).max(1), 0),
  presence_penalty: orElse(penalty, 0),
  frequency_penalty: orElse(penalty, 0),
  repetition_penalty: orElse(z.number().gt(0), 1),
  max_tokens: maybe(tokens),
  max_completion_tokens: maybe(tokens),
  n: orElse(z.int().min(1).max(8), 1),
  seed: maybe(z.int()),
  stop: maybe(z.union([stopText, z.array(stopText).max(16)])),
  logprobs: maybe(z.boolean()),
  top_logprobs: orElse(z.int().min(0).max(20), 0),
  tools: orElse(z.array(tool).max(128), []),
  tool_choice: maybe(toolChoice),
  parallel_tool_calls: maybe(z.boolean()),
  response_format: maybe(responseFormat),
  enable_thinking: maybe(z.boolean()),
  thinking_budget: maybe(z.int().min(0)),
  chat_template_kwargs: maybe(
    z.looseObject({ enable_thinking: maybe(z.boolean()) }),
  ),
  reasoning_effort: maybe(z.string()),
});

export type ChatRequest = z.infer<typeof chatRequest>;
export type Tool = z.infer<typeof tool>;
export type ChatMessage = z.infer<typeof message>;

/** Reads the JSON of a request. Throws an {@link HttpError} that names the first mistake. */
export function parseRequest(text: string): ChatRequest {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new HttpError("We could not parse the JSON body of your request.");
  }
  const { data: request, error } = chatRequest.safeParse(json);
  if (error) {
    const [{ path = [], message = "" } = {}] = error.issues;
    throw invalidField(formatPath(path) || "body", message);
  }
  if (request.stream_options && request.stream !== true) {
    throw invalidField("stream_options", "only allowed with 'stream'");
  }
  if (request.top_logprobs > 0 && request.logprobs !== true) {
    throw invalidField("top_logprobs", "only allowed with 'logprobs'");
  }
  if (!isToolKnown(request)) {
    throw invalidField("tool_choice", "not a function of 'tools'");
  }
  return request;
}

function invalidField(param: string, reason: string): HttpError {
  return new HttpError(`Invalid value for '${param}': ${reason}.`, { param });
}

function isToolKnown({ tools, tool_choice: choice }: ChatRequest): boolean {
  return typeof choice === "object"
    ? tools.some((tool) => tool.function.name === choice.function.name)
    : choice !== "required" || tools.length > 0;
}

/** The text of a message, its parts joined. */
export function textOf({ content }: ChatMessage): string {
  if (content === undefined) return "";
  if (typeof content === "string") return content;
  return content.map(({ text }) => text ?? "").join("\n");
}

const CHARS_PER_TOKEN = 4;
const MESSAGE_TOKENS = 4;

/** A rough count of the prompt tokens: four characters are one token. */
export function countPrompt({ messages, tools }: ChatRequest): number {
  let count = (messages.length + tools.length) * MESSAGE_TOKENS;
  for (const message of messages) {
    count += Math.ceil(textOf(message).length / CHARS_PER_TOKEN);
  }
  return count;
}
