import type {
  ChatRequest,
  FinishReason,
  Logprobs,
  ToolCallDelta,
  Usage,
} from "@gateway/shared/openai/chat";

/** One thing a model did. */
export type BackendEvent =
  | {
    type: "delta";
    /** Which of the `n` choices. */
    index: number;
    content?: string;
    reasoning?: string;
    refusal?: string;
    /** Fragments as the wire has them: `id`, `type` and `name` only in a call's first one. */
    toolCalls?: ToolCallDelta[];
    logprobs?: Logprobs;
  }
  | { type: "finish"; index: number; reason: FinishReason }
  /** Of the server's build and weights, before the first of the above, if it has one. */
  | { type: "fingerprint"; fingerprint: string }
  /** What the model counted, at the end. Reasoning is inside `completion_tokens`. */
  | { type: "usage"; usage: Usage };

/** What a backend needs to know beside the request. */
export interface BackendCall {
  /** Passed on to the model server as it is, 32 hex digits: llama-cpp-python takes only UUIDs. */
  requestId: string;
  /** Aborted when the answer is no longer wanted: the backend must stop work within 100 ms. */
  signal: AbortSignal;
  /** W3C trace context, passed on to the model server. */
  traceparent?: string;
}

/**
 * Something that runs chat completions.
 *
 * `complete` yields what happened in order, everything that was there at once in
 * one array, so that the caller can send it in one frame. Every choice ends with
 * one `finish`, and `usage` comes last; an answer without them has failed, and
 * then `complete` throws an `ApiError`. It also throws when the signal aborts.
 * Not reading on is back-pressure: nothing is buffered without bound.
 */
export interface Backend {
  complete(
    request: ChatRequest,
    call: BackendCall,
  ): AsyncIterable<readonly BackendEvent[]>;
}
