/**
 * The shapes of answers, as every OpenAI-style SDK decodes them: chat completions,
 * chunks of a stream, models. Names are those of the wire format.
 */
import type { ToolCall } from "./chat.ts";

export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter";

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details?: { cached_tokens: number };
  completion_tokens_details?: { reasoning_tokens: number };
}

export interface ResponseMessage {
  role: "assistant";
  content: string | null;
  refusal: string | null;
  reasoning_content?: string;
  tool_calls?: ToolCall[];
}

/** Log probabilities as the backend sent them; the gateway does not interpret them. */
export type Logprobs = { [key: string]: unknown };

export interface ChatChoice {
  index: number;
  message: ResponseMessage;
  logprobs: Logprobs | null;
  finish_reason: FinishReason;
}

/** HTTP 200 body of a call without `stream`. */
export interface ChatCompletion {
  id: string;
  object: "chat.completion";
  /** Unix seconds, an integer: one SDK decodes it as u32. */
  created: number;
  model: string;
  choices: ChatChoice[];
  usage: Usage;
  system_fingerprint: string | null;
}

export interface ToolCallDelta {
  index: number;
  /** Only in a call's first fragment: some SDKs concatenate repeats. */
  id?: string;
  type?: "function";
  function: { name?: string; arguments?: string };
}

/** What a chunk adds to a choice. Unchanged members are absent, never null (except `content` next to the first role). */
export interface ChunkDelta {
  role?: "assistant";
  content?: string | null;
  refusal?: string;
  reasoning_content?: string;
  tool_calls?: ToolCallDelta[];
}

export interface ChunkChoice {
  index: number;
  delta: ChunkDelta;
  logprobs: Logprobs | null;
  finish_reason: FinishReason | null;
}

/** One `data:` event of a stream. */
export interface ChatCompletionChunk {
  id: string;
  object: "chat.completion.chunk";
  created: number;
  model: string;
  system_fingerprint: string | null;
  choices: ChunkChoice[];
  /** Present only if the client requested it: null in every chunk but the last. */
  usage?: Usage | null;
}

/** One entry of `GET /v1/models`. */
export interface ModelObject {
  id: string;
  object: "model";
  /** Unix seconds. */
  created: number;
  owned_by: string;
}
