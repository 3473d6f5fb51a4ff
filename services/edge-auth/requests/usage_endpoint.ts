/** The endpoints by which usage is counted. */
import type { UsageEndpoint } from "@gateway/shared/keys/limiter_state";

const ENDPOINT_OF_ROUTE: { readonly [route: string]: UsageEndpoint } = {
  chat: "chat",
  messages: "messages",
  count_tokens: "messages",
  responses: "responses",
  response: "responses",
  input_tokens: "responses",
  compact: "responses",
  completions: "completions",
  embeddings: "embeddings",
  rerank: "rerank",
  image: "images",
  image_edit: "images",
  speech: "speech",
  transcription: "transcriptions",
  translation: "transcriptions",
  video: "videos",
  video_job: "videos",
  video_content: "videos",
  video_remix: "videos",
};

/** The endpoint of a route, by its name in metrics; null if it runs no model. */
export const usageEndpointOf = (route: string): UsageEndpoint | null =>
  ENDPOINT_OF_ROUTE[route] ?? null;
