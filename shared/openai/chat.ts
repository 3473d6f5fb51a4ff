/**
 * The types of chat completions inside the gateway: a request that has been checked
 * and normalised, and the response and chunk shapes that every OpenAI-style SDK
 * decodes. Names are those of the wire format.
 */

export type Role = "system" | "developer" | "user" | "assistant" | "tool";

/** One part of a message whose content is an array. The edge joins text-only arrays into a string. */
export type ContentPart =
  | { type: "text"; text: string }
  | {
    type: "image_url";
    image_url: { url: string; detail?: "auto" | "low" | "high" };
  };

export interface ToolCall {
  id: string;
  type: "function";
  function: {
    name: string; /** JSON text, never an object. */
    arguments: string;
  };
}

export interface ChatMessage {
  role: Role;
  /** Null only in an assistant message with tool calls or a refusal. */
  content: string | ContentPart[] | null;
  name?: string;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  refusal?: string;
  reasoning_content?: string;
}

/** A JSON Schema object as the caller sent it. */
export type JsonSchema = { [key: string]: unknown };

export interface Tool {
  type: "function";
  function: {
    name: string;
    description?: string;
    parameters?: JsonSchema;
    strict?: boolean;
  };
}

export type ToolChoice =
  | "none"
  | "auto"
  | "required"
  | { type: "function"; function: { name: string } };

export type ResponseFormat =
  | { type: "text" }
  | { type: "json_object" }
  | {
    type: "json_schema";
    json_schema: {
      name: string;
      description?: string;
      schema?: JsonSchema;
      strict?: boolean;
    };
  };

/**
 * A chat request after validation, as edges publish it on the bus: without nulls and
 * unknown fields, with `stop` as an array, and with the smaller of `max_tokens` and
 * `max_completion_tokens` as `max_tokens`.
 */
export interface ChatRequest {
  model: string;
  messages: ChatMessage[];
  stream: boolean;
  /** `stream_options.include_usage`: the client requested the usage chunk. */
  include_usage: boolean;
  n: number;
  temperature?: number;
  top_p?: number;
  max_tokens?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  repetition_penalty?: number;
  seed?: number;
  stop?: string[];
  tools?: Tool[];
  tool_choice?: ToolChoice;
  parallel_tool_calls?: boolean;
  response_format?: ResponseFormat;
  enable_thinking?: boolean;
  thinking_budget?: number;
  logprobs?: boolean;
  top_logprobs?: number;
  /** Top-level fields that the model's configuration passes on to its backends unchanged. */
  extra?: { [key: string]: unknown };
}

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
