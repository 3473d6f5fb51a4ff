import type { ChatMessage, ChatRequest } from "@gateway/shared/openai/chat";
import { textTokens } from "./text_tokens.ts";

/**
 * How many tokens a request may cost, estimated before it runs. The estimate errs
 * high; the difference is given back when the real usage is known.
 */
export interface TokenEstimate {
  promptTokens: number;
  /** Over all `n` choices. */
  completionTokens: number;
  /** What to reserve. */
  totalTokens: number;
}

/** What a model's configuration says about sizes. */
export interface EstimateBounds {
  /** `outputTokensMax` of the model. */
  outputTokensMax?: number;
}

/** Role and separators around each message. */
const TOKENS_PER_MESSAGE = 4;
/** An image in high detail; its data URL says nothing about its tokens. */
const TOKENS_PER_IMAGE = 1_500;
/** Reserved for an answer without `max_tokens`, and for thinking without a budget. */
const OUTPUT_TOKENS_DEFAULT = 1_024;

/** Estimates a validated request. Example: one message "hello", `max_tokens` 10, `n` 2: 6 + 20 = 26. */
export function estimateTokens(
  request: ChatRequest,
  bounds: EstimateBounds = {},
): TokenEstimate {
  const promptTokens = estimatePromptTokens(request);
  const outputTokens = Math.min(
    request.max_tokens ?? OUTPUT_TOKENS_DEFAULT + thinkingTokens(request),
    bounds.outputTokensMax ?? Infinity,
  );
  const completionTokens = outputTokens * request.n;
  return {
    promptTokens,
    completionTokens,
    totalTokens: promptTokens + completionTokens,
  };
}

/** Thinking counts as output, and comes on top where no bound covers both. */
function thinkingTokens(request: ChatRequest): number {
  if (request.enable_thinking !== true) return 0;
  return request.thinking_budget ?? OUTPUT_TOKENS_DEFAULT;
}

function estimatePromptTokens(request: ChatRequest): number {
  let tokens = 0;
  for (const message of request.messages) tokens += messageTokens(message);
  if (request.tools !== undefined) tokens += jsonTokens(request.tools);
  const format = request.response_format;
  if (format?.type === "json_schema") tokens += jsonTokens(format.json_schema);
  return tokens;
}

function messageTokens(message: ChatMessage): number {
  let tokens = TOKENS_PER_MESSAGE + textTokens(message.name ?? "") +
    textTokens(message.reasoning_content ?? "") +
    textTokens(message.refusal ?? "");
  const { content, tool_calls: calls } = message;
  if (typeof content === "string") {
    tokens += textTokens(content);
  } else if (content !== null) {
    for (const part of content) {
      tokens += part.type === "text" ? textTokens(part.text) : TOKENS_PER_IMAGE;
    }
  }
  if (calls !== undefined) tokens += jsonTokens(calls);
  return tokens;
}

function jsonTokens(value: unknown): number {
  return textTokens(JSON.stringify(value));
}
