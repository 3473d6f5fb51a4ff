/**
 * What the description of the API says of forwarded requests and their answers: the
 * members that matter to most callers. All others pass, in both directions, and what
 * these may be is decided by the model server.
 */
import * as z from "zod";
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
