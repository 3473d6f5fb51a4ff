/**
 * The chat completion resource as it travels inside the gateway: a request that
 * has been checked and normalised, and the response and chunk shapes that every
 * OpenAI-style SDK decodes. Wire names stay as they are on the wire.
 */

export type Role = "system" | "developer" | "user" | "assistant" | "tool";

/** One part of a message whose content is an array. Text-only arrays are joined into a string before they get here. */
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
  /** Null only in an assistant turn that carries tool calls or a refusal. */
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
 * A chat request after validation: nulls are gone, `stop` is an array, one of
 * `max_tokens` and `max_completion_tokens` is left (the smaller), fields nobody
 * named are dropped. This is what edges put on the bus.
 */
export interface ChatRequest {
  model: string;
  messages: ChatMessage[];
  stream: boolean;
  /** `stream_options.include_usage`: the client wants the usage chunk. */
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
  /** Top-level fields the model's configuration lets through to its backends as they are. */
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

/** Log probabilities as the backend gave them; the gateway does not look inside. */
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

/** What a chunk adds to a choice. Keys without news are absent, never null (except `content` beside a first role). */
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
  /** Only when the client asked for it: null in every chunk but the last. */
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
