/** `POST /v1/rerank`: documents that share words with the query come first. */
import { integer, model } from "@gateway/shared/openai/fields";
import { textTokens } from "@gateway/shared/openai/tokens";
import { z } from "zod";
import { type Planned, wholeAnswer } from "../serving/answer.ts";
import { readControls } from "../serving/controls.ts";
import { readMedia, type Received } from "../serving/fields.ts";
import { wordsOf } from "./embeddings.ts";

const DOCUMENTS_MAX = 1_024;

const document = z.union([z.string(), z.object({ text: z.string() })]);
const rerankRequest = z.object({
  model,
  query: z.string().min(1),
  documents: z.array(document).min(1).max(DOCUMENTS_MAX),
  top_n: integer(1).exactOptional(),
  return_documents: z.boolean().default(false),
});

/** Plans the order of documents. Throws an `ApiError` for an invalid request. */
export function rerank(received: Received): Planned {
  const { query, documents, top_n, return_documents, ...request } = readMedia(
    "rerank",
    rerankRequest,
    received,
  );
  const controls = readControls(query, "query");
  const texts = documents.map((each) =>
    typeof each === "string" ? each : each.text
  );
  const end = () => {
    const results = texts.map((text, index) => ({
      index,
      relevance_score: scoreOf(query, text),
      ...return_documents && { document: { text } },
    })).toSorted((a, b) => b.relevance_score - a.relevance_score);
    const total_tokens = Math.ceil(
      texts.reduce((sum, text) => sum + textTokens(query + text), 0),
    );
    const usage = controls.isUsageMissing ? undefined : { total_tokens };
    return JSON.stringify({
      model: request.model,
      results: results.slice(0, top_n),
      usage,
    });
  };
  return wholeAnswer(controls, { pieces: texts, end });
}

/** The share of the query's words that a text has. */
function scoreOf(query: string, text: string): number {
  const queryWords = new Set(wordsOf(query));
  const shared = queryWords.intersection(new Set(wordsOf(text)));
  return shared.size / queryWords.size;
}
