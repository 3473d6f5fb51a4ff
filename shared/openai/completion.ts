/**
 * The shapes of answers as every OpenAI-style SDK decodes them: stricter than any one
 * of them.
 */
import { z } from "zod";
import { toolCall } from "./chat_message.ts";

const count = z.int().min(0);
const text = z.string().min(1);
/**
 * The members of both kinds of answers. A well-known suite looks for the id's prefix.
 */
const answer = {
  id: z.string().regex(/^chatcmpl-./),
  /** One SDK decodes it as unsigned 32-bit. */
  created: count.max(2 ** 32 - 1).describe("Unix time in seconds."),
  model: text,
  system_fingerprint: z.string().nullable(),
};
const finishReason = z.enum(["stop", "length", "tool_calls", "content_filter"])
  .describe("`length`: the tokens of the answer were used up.");
/** Log probabilities as the backend sent them; the gateway does not interpret them. */
const logprobs = z.record(z.string(), z.unknown());
const choice = { index: count, logprobs: logprobs.nullable() };

/** Token counts of one call; the total is the sum. */
const usage = z.strictObject({
  prompt_tokens: count,
  completion_tokens: count.describe("Of all choices, with their thinking."),
  total_tokens: count,
  prompt_tokens_details: z.strictObject({
    cached_tokens: count.describe("Read from the model server's cache."),
    cache_write_tokens: count.exactOptional()
      .describe("Written to it, where the server says so."),
  }).exactOptional(),
  completion_tokens_details: z.strictObject({ reasoning_tokens: count })
    .exactOptional(),
  cost: z.number().min(0).exactOptional()
    .describe("What the request costs, where the operator shows it."),
}).refine((sum) =>
  sum.total_tokens === sum.prompt_tokens + sum.completion_tokens
).meta({ id: "Usage" });

const responseMessage = z.strictObject({
  role: z.literal("assistant"),
  content: z.string().nullable(),
  refusal: z.string().nullable(),
  reasoning_content: z.string().exactOptional(),
  // Absent rather than empty: strict suites refuse `[]`.
  tool_calls: z.array(toolCall).min(1).exactOptional(),
}).refine(({ content, refusal, tool_calls }) =>
  (content ?? refusal ?? tool_calls ?? null) !== null
);

/** HTTP 200 body of a call without `stream`. Some SDKs throw if it has no choices. */
export const chatCompletionSchema = z.strictObject({
  ...answer,
  object: z.literal("chat.completion"),
  choices: z.array(z.strictObject({
    ...choice,
    message: responseMessage,
    finish_reason: finishReason,
  })).min(1).refine((list) => list.every(({ index }, at) => index === at)),
  usage,
}).meta({ id: "ChatCompletion" });

/** A part of a call. Some SDKs concatenate an id or a name that is repeated. */
const toolCallDelta = z.strictObject({
  index: count,
  id: text.exactOptional(),
  type: z.literal("function").exactOptional(),
  function: z.strictObject({
    name: text.exactOptional(),
    arguments: z.string().exactOptional(),
  }),
}).refine(({ id, type, function: { name } }) =>
  (id === undefined) === (type === undefined) &&
  (id === undefined) === (name === undefined)
).describe("`id`, `type` and `name` come with the first part of a call.");

/**
 * What a chunk adds to a choice. Unchanged members are absent, never null (except
 * `content` next to the first role).
 */
const chunkDelta = z.strictObject({
  role: z.literal("assistant").exactOptional(),
  content: z.string().nullable().exactOptional(),
  refusal: z.string().exactOptional(),
  // A later null or "" wipes the text that one helper collected.
  reasoning_content: text.exactOptional(),
  tool_calls: z.array(toolCallDelta).min(1).exactOptional(),
});

/** One `data:` event of a stream. SDKs drop choices beside usage, or add it up. */
export const chatCompletionChunkSchema = z.strictObject({
  ...answer,
  object: z.literal("chat.completion.chunk"),
  choices: z.array(z.strictObject({
    ...choice,
    delta: chunkDelta,
    finish_reason: finishReason.nullable(),
  })),
  usage: usage.nullable().exactOptional()
    .describe("Only if it was asked for: null in all chunks but the last."),
}).refine(({ choices, usage = null }) =>
  (choices.length === 0) === (usage !== null)
).meta({ id: "ChatCompletionChunk" });

/**
 * Body of every other answer, and an event of a stream. `param` is absent in
 * authentication failures.
 */
export const errorBodySchema = z.strictObject({
  error: z.strictObject({
    message: text,
    type: text,
    param: z.string().nullable().exactOptional()
      .describe("The field that is wrong, such as `messages[0].content`."),
    code: z.string().nullable(),
  }),
}).meta({ id: "Error" });

/** One model, as `GET /v1/models/{id}` answers it. */
export const modelSchema = z.strictObject({
  id: text,
  object: z.literal("model"),
  created: answer.created,
  owned_by: text,
}).meta({ id: "Model" });

/** Body of `GET /v1/models`: never a bare array, which pagers read as empty. */
export const modelListSchema = z.strictObject({
  object: z.literal("list"),
  data: z.array(modelSchema),
}).meta({ id: "ModelList" });

/** Why an answer ended. */
export type FinishReason = z.infer<typeof finishReason>;

/** The log probabilities of a choice, which the gateway does not interpret. */
export type Logprobs = z.infer<typeof logprobs>;

/** Token counts of one call. */
export type Usage = z.infer<typeof usage>;

/** The usage of a call with these counts. */
export function usageOfTokens(prompt: number, completion: number): Usage {
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
  };
}

/** The message of a choice in a whole answer. */
export type ResponseMessage = z.infer<typeof responseMessage>;

/** A whole answer. */
export type ChatCompletion = z.infer<typeof chatCompletionSchema>;

/** A part of a call of a tool, in a stream. */
export type ToolCallDelta = z.infer<typeof toolCallDelta>;

/** What a chunk adds to a choice. */
export type ChunkDelta = z.infer<typeof chunkDelta>;

/** One event of a stream. */
export type ChatCompletionChunk = z.infer<typeof chatCompletionChunkSchema>;

/** The JSON with which a request is refused, or that ends a failed stream. */
export type ErrorBody = z.infer<typeof errorBodySchema>;

/** One model in the list of models. */
export type ModelObject = z.infer<typeof modelSchema>;
