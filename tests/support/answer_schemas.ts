import * as z from "zod";
import type { ToolCall } from "@gateway/shared/openai/chat";
import type {
  ChatChoice,
  ChatCompletion,
  ChatCompletionChunk,
  ChunkChoice,
  FinishReason,
  Logprobs,
  ModelObject,
  ResponseMessage,
  ToolCallDelta,
  Usage,
} from "@gateway/shared/openai/completion";
import type { ErrorBody } from "@gateway/shared/openai/error";

/**
 * The valid answers of the gateway, as zod schemas for tests and clients. They are
 * stricter than any one SDK: a member that breaks any SDK is refused. The comments at
 * each rule say what SDKs need it.
 */

/** One SDK decodes timestamps as unsigned 32-bit: no fractions, no milliseconds. */
const UNIX_SECONDS_MAX = 2 ** 32 - 1;

/** A well-known suite looks for this prefix. */
const completionId = z.string().regex(/^chatcmpl-./);
const unixSeconds = z.int().min(0).max(UNIX_SECONDS_MAX);
const count = z.int().min(0);

const finishReason: z.ZodType<FinishReason> = z.enum([
  "stop",
  "length",
  "tool_calls",
  "content_filter",
]);

const logprobs: z.ZodType<Logprobs> = z.record(z.string(), z.unknown());

/** Token counts of one call; the total is the sum. */
export const usageSchema: z.ZodType<Usage> = z.strictObject({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  prompt_tokens_details: z.strictObject({ cached_tokens: count })
    .exactOptional(),
  completion_tokens_details: z.strictObject({ reasoning_tokens: count })
    .exactOptional(),
}).refine(
  (usage) =>
    usage.total_tokens === usage.prompt_tokens + usage.completion_tokens,
  { error: "total_tokens must be prompt_tokens + completion_tokens" },
);

const toolCall: z.ZodType<ToolCall> = z.strictObject({
  id: z.string().min(1),
  type: z.literal("function"),
  function: z.strictObject({
    name: z.string().min(1),
    // Most SDKs break on an object here.
    arguments: z.string(),
  }),
});

const responseMessage: z.ZodType<ResponseMessage> = z.strictObject({
  role: z.literal("assistant"),
  content: z.string().nullable(),
  refusal: z.string().nullable(),
  reasoning_content: z.string().exactOptional(),
  // Absent rather than empty: strict suites refuse `[]`.
  tool_calls: z.array(toolCall).min(1).exactOptional(),
}).refine(
  (message) =>
    message.content !== null || message.refusal !== null ||
    message.tool_calls !== undefined,
  { error: "content may be null only beside tool_calls or a refusal" },
);

const choice: z.ZodType<ChatChoice> = z.strictObject({
  index: count,
  message: responseMessage,
  logprobs: logprobs.nullable(),
  finish_reason: finishReason,
});

/** HTTP 200 body of a call without `stream`. */
export const chatCompletionSchema: z.ZodType<ChatCompletion> = z.strictObject({
  id: completionId,
  object: z.literal("chat.completion"),
  created: unixSeconds,
  model: z.string().min(1),
  // Some SDKs throw on an empty array.
  choices: z.array(choice).min(1).refine(
    (choices) => choices.every(({ index }, at) => index === at),
    { error: "choices must be numbered 0, 1, 2, … in order" },
  ),
  usage: usageSchema,
  system_fingerprint: z.string().nullable(),
});

const toolCallDelta: z.ZodType<ToolCallDelta> = z.strictObject({
  index: count,
  id: z.string().min(1).exactOptional(),
  type: z.literal("function").exactOptional(),
  function: z.strictObject({
    name: z.string().min(1).exactOptional(),
    arguments: z.string().exactOptional(),
  }),
}).refine(
  (fragment) =>
    (fragment.id !== undefined) === (fragment.type !== undefined) &&
    (fragment.id !== undefined) === (fragment.function.name !== undefined),
  // A helper throws without `type`; others concatenate a repeated id or name.
  { error: "id, type and function.name come together, in the first fragment" },
);

const chunkChoice: z.ZodType<ChunkChoice> = z.strictObject({
  index: count,
  // Never null and never absent, also in the chunk that only finishes.
  delta: z.strictObject({
    role: z.literal("assistant").exactOptional(),
    content: z.string().nullable().exactOptional(),
    refusal: z.string().exactOptional(),
    // A later null or "" wipes the text that one helper collected.
    reasoning_content: z.string().min(1).exactOptional(),
    tool_calls: z.array(toolCallDelta).min(1).exactOptional(),
  }),
  logprobs: logprobs.nullable(),
  finish_reason: finishReason.nullable(),
});

/** One `data:` event of a stream, `[DONE]` and error frames excepted. */
export const chatCompletionChunkSchema: z.ZodType<ChatCompletionChunk> = z
  .strictObject({
    id: completionId,
    object: z.literal("chat.completion.chunk"),
    created: unixSeconds,
    model: z.string().min(1),
    system_fingerprint: z.string().nullable(),
    choices: z.array(chunkChoice),
    usage: usageSchema.nullable().exactOptional(),
  })
  .refine(
    // SDKs add up usage beside choices, or drop those choices.
    (chunk) =>
      (chunk.choices.length === 0) ===
        (chunk.usage !== undefined && chunk.usage !== null),
    { error: "usage comes alone, in a chunk without choices" },
  );

/** Body of every answer that is not a success, and of an error frame in a stream. */
export const errorBodySchema: z.ZodType<ErrorBody> = z.strictObject({
  error: z.strictObject({
    message: z.string().min(1),
    type: z.string().min(1),
    // Absent only in an authentication failure, whose shape the specification fixes.
    param: z.string().nullable().exactOptional(),
    // One SDK decodes it as a string; a number breaks it.
    code: z.string().nullable(),
  }),
});

/** One model, as `GET /v1/models/{id}` answers it. */
export const modelSchema: z.ZodType<ModelObject> = z.strictObject({
  id: z.string().min(1),
  object: z.literal("model"),
  created: unixSeconds,
  owned_by: z.string().min(1),
});

/** Body of `GET /v1/models`: never a bare array, which pagers read as empty. */
export const modelListSchema = z.strictObject({
  object: z.literal("list"),
  data: z.array(modelSchema),
});
