import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";
import { promptTokensLikely } from "@gateway/shared/tokens/prompt_tokens";
import type { TextMeter } from "@gateway/shared/tokens/text_meter";
import { isCount, isJsonObject } from "./json.ts";

/**
 * Token counts of a model server, or an estimate where it gives none.
 */

/** What servers send, read strictly: null unless both counts are there and make sense. */
export function parseUsage(value: unknown): Usage | null {
  if (!isJsonObject(value)) return null;
  const prompt = value.prompt_tokens;
  let completion = value.completion_tokens;
  if (!isCount(prompt) || !isCount(completion)) return null;
  const reasoning =
    detail(value.completion_tokens_details, "reasoning_tokens") ??
      detail(value, "reasoning_tokens");
  // Some hosts count reasoning beside the completion and not in it; the total tells.
  const isBeside = reasoning !== null && reasoning > 0 &&
    value.total_tokens === prompt + completion + reasoning;
  if (isBeside) completion += reasoning;
  const usage: Usage = {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
  };
  const cached = detail(value.prompt_tokens_details, "cached_tokens") ??
    detail(value, "prompt_cache_hit_tokens");
  if (cached !== null && cached <= prompt) {
    usage.prompt_tokens_details = { cached_tokens: cached };
  }
  if (reasoning !== null && reasoning <= completion) {
    usage.completion_tokens_details = { reasoning_tokens: reasoning };
  }
  return usage;
}

function detail(details: unknown, name: string): number | null {
  const value = isJsonObject(details) ? details[name] : undefined;
  return isCount(value) ? value : null;
}

/**
 * The usage of an answer nobody counted: prompt and answer by their text, but the
 * answer never less than one token per piece, since most servers send one token at
 * a time.
 */
export function estimateUsage(request: ChatRequest, answer: TextMeter): Usage {
  const prompt = promptTokensLikely(request);
  const completion = Math.max(answer.likelyTokens, answer.pieces);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
  };
}
