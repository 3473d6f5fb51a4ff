import type { ChatRequest } from "@gateway/shared/openai/chat";
import { promptTokensMost } from "@gateway/shared/tokens/prompt_tokens";

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

/** Reserved for an answer without `max_tokens`, and for thinking without a budget. */
const OUTPUT_TOKENS_DEFAULT = 1_024;

/** Estimates a validated request. Example: one message "hello", `max_tokens` 10, `n` 2: 6 + 20 = 26. */
export function estimateTokens(
  request: ChatRequest,
  outputTokensMax = Infinity,
): TokenEstimate {
  const promptTokens = promptTokensMost(request);
  const outputTokens = Math.min(
    request.max_tokens ?? OUTPUT_TOKENS_DEFAULT + thinkingTokens(request),
    outputTokensMax,
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
