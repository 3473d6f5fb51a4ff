/**
 * What the description of the API says of forwarded requests and their answers: the
 * members that matter to most callers. All others pass, in both directions, and what
 * these may be is decided by the model server.
 */
import { z } from "zod";
import { REQUEST_LIMITS } from "../limits.ts";
import { model } from "./fields.ts";

const count = z.int().min(0);
const texts = z.union([z.string(), z.array(z.string())]);
const tokens = z.union([z.array(z.int()), z.array(z.array(z.int()))]);

/** The body of `POST /v1/embeddings`. */
export const embeddingRequest = z.looseObject({
  model,
  input: z.union([texts, tokens]).exactOptional()
    .describe("A text, a list of texts, or the same as tokens."),
  dimensions: z.int().exactOptional()
    .describe("Length of the vectors, for models that can shorten them."),
  encoding_format: z.string().exactOptional()
    .describe("`float`, or `base64`: 32-bit floats, the lowest byte first."),
}).meta({ id: "EmbeddingRequest" });

/** The answer of `POST /v1/embeddings`. */
export const embeddingList = z.looseObject({
  data: z.array(z.looseObject({
    index: count.exactOptional(),
    embedding: z.union([z.array(z.number()), z.string()]).exactOptional(),
  })).describe("As many as there are inputs."),
  usage: z.looseObject({ prompt_tokens: count.exactOptional() })
    .exactOptional(),
}).meta({ id: "EmbeddingList" });

const stream = z.boolean().exactOptional()
  .describe("Whether the answer is a stream of events.");
const outputTokens = count.exactOptional().describe(
  "The longest answer. More than the model allows is lowered to that.",
);

const objects = z.array(z.looseObject({})).exactOptional();
const tools = objects.describe("Tools that the model may call.");
const toolChoice = z.unknown()
  .describe("Whether a tool must be called, or which one.");
const temperature = z.number().exactOptional()
  .describe("Higher is more random.");
const topP = z.number().exactOptional()
  .describe("The share of the probability from which tokens are taken.");

/** The body of `POST /v1/messages`. */
export const messageRequest = z.looseObject({
  model,
  messages: objects,
  system: z.unknown().describe("A text, or a list of parts."),
  max_tokens: outputTokens,
  tools,
  tool_choice: toolChoice,
  thinking: z.unknown().describe("Whether the model thinks first."),
  temperature,
  top_p: topP,
  stop_sequences: z.array(z.string()).exactOptional()
    .describe("The answer ends before any of these texts."),
  metadata: z.unknown().describe("What the caller notes of the request."),
  stream,
}).meta({ id: "MessageRequest" });

/** The body of `POST /v1/responses`. */
export const responseRequest = z.looseObject({
  model,
  input: z.unknown().describe("A text, or a list of items."),
  instructions: z.unknown().describe("What precedes the input."),
  max_output_tokens: outputTokens,
  tools,
  tool_choice: toolChoice,
  parallel_tool_calls: z.unknown()
    .describe("Whether an answer may call several tools."),
  reasoning: z.unknown().describe("How long the model thinks."),
  text: z.unknown().describe("What the text of the answer must be."),
  temperature,
  top_p: topP,
  store: z.unknown().describe("Whether the server keeps the answer."),
  include: z.unknown().describe("What else the answer has."),
  stream,
}).meta({ id: "ResponseRequest" });

/** The body of `POST /v1/completions`. */
export const completionRequest = z.looseObject({
  model,
  prompt: z.unknown().describe("A text, or tokens."),
  suffix: z.string().exactOptional()
    .describe("What follows the answer, for models that fill gaps."),
  max_tokens: outputTokens,
  n: z.int().min(1).max(REQUEST_LIMITS.nMax).exactOptional(),
  stop: z.unknown().describe("The answer ends before any of these texts."),
  temperature,
  top_p: topP,
  seed: z.unknown().describe("With the same seed, answers repeat."),
  stream_options: z.unknown().describe("Whether a stream states its usage."),
  stream,
}).meta({ id: "CompletionRequest" });

/** An error of `/v1/messages`. */
export const anthropicError = z.looseObject({
  type: z.literal("error"),
  error: z.looseObject({ type: z.string(), message: z.string() }),
  request_id: z.string(),
}).meta({ id: "AnthropicError" });

/** The body of `POST /v1/rerank`. */
export const rerankRequest = z.looseObject({
  model,
  query: z.unknown().describe("What the documents should be about."),
  documents: z.unknown().describe("A list of texts or objects."),
  top_n: z.int().exactOptional()
    .describe("How many of the documents the answer has."),
}).meta({ id: "RerankRequest" });

/** The answer of `POST /v1/rerank`. */
export const rerankResult = z.looseObject({
  results: z.array(z.looseObject({
    index: count.exactOptional().describe("Position of the document, from 0."),
    relevance_score: z.number().exactOptional(),
  })).exactOptional().describe("The most relevant first."),
}).meta({ id: "RerankResult" });
