/** How long a prompt is, and what of it was cached. Pure. */
import { fieldError } from "@gateway/shared/openai/error";
import { promptTokens } from "@gateway/shared/openai/tokens";
import type { CachedTokens, PromptCache } from "../serving/prompt_cache.ts";
import type { ChatRequest } from "./request.ts";

const CONTEXT_TOKENS = 200_000;

/** The tokens of a prompt, and which of them the prompt cache had. */
export interface MeasuredPrompt {
  readonly tokens: number;
  readonly cached: CachedTokens;
}

/** Throws an `ApiError` for a prompt that is too long. */
export function measured(
  request: ChatRequest,
  cache: PromptCache,
): MeasuredPrompt {
  const tokens = promptTokens(request);
  if (tokens > CONTEXT_TOKENS) {
    const message =
      `This model's maximum context length is ${CONTEXT_TOKENS} tokens. ` +
      `However, your messages have ${tokens} tokens.`;
    throw fieldError("context_length_exceeded", "messages", message);
  }
  const { tools, messages } = request;
  const cached = cache.take(JSON.stringify([tools, messages]), tokens);
  return { tokens, cached };
}
