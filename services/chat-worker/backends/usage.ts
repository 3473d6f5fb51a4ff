/** The counts of tokens that model servers state, in their various forms. */
import type { Usage } from "@gateway/shared/openai/completion";
import { isJsonObject } from "@gateway/shared/upstream/json";

/**
 * A frame's count has 32 bits. A larger one would keep a key over its limits for years.
 */
const TOKENS_MAX = 2 ** 32 - 1;

/**
 * The usage that a server reports, or null unless both counts are present and valid.
 */
export function parseUsage(value: unknown): Usage | null {
  if (!isJsonObject(value)) return null;
  const prompt = countIn(value, "prompt_tokens");
  let completion = countIn(value, "completion_tokens");
  if (prompt === null || completion === null) return null;
  const reasoning =
    countIn(value.completion_tokens_details, "reasoning_tokens") ??
      countIn(value, "reasoning_tokens");
  // Some servers do not include reasoning in the completion tokens; the total shows
  // that.
  if (value.total_tokens === prompt + completion + (reasoning ?? 0)) {
    completion += reasoning ?? 0;
  }
  const usage: Usage = {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
  };
  const cached = countIn(value.prompt_tokens_details, "cached_tokens") ??
    countIn(value, "prompt_cache_hit_tokens");
  if (cached !== null && cached <= prompt) {
    usage.prompt_tokens_details = { cached_tokens: cached };
  }
  if (reasoning !== null && reasoning <= completion) {
    usage.completion_tokens_details = { reasoning_tokens: reasoning };
  }
  return usage;
}

function countIn(holder: unknown, name: string): number | null {
  const value = isJsonObject(holder) ? holder[name] : undefined;
  const isCount = Number.isInteger(value) && Number(value) >= 0;
  return isCount && Number(value) <= TOKENS_MAX ? Number(value) : null;
}
