import type { ModelConfig } from "@gateway/shared/models/catalog";
import { ApiError } from "@gateway/shared/openai/error";

/**
 * How many tokens each choice may have: what was asked for, within the model's
 * bounds. Throws `context_length_exceeded` when prompt and answer together would
 * not fit, or when the prompt leaves no room at all.
 */
export function tokenRoom(
  model: ModelConfig,
  promptTokens: number,
  wanted: number | undefined,
): number {
  const { contextTokensMax = Infinity, outputTokensMax = Infinity } = model;
  const room = contextTokensMax - promptTokens;
  if (room >= (wanted ?? 1)) {
    return Math.min(wanted ?? Infinity, outputTokensMax, room);
  }
  const resulted = wanted === undefined
    ? `your messages resulted in ${promptTokens} tokens`
    : `your messages resulted in ${promptTokens} tokens and ${wanted} more were asked for in the completion`;
  throw new ApiError(
    "context_length_exceeded",
    `This model's maximum context length is ${contextTokensMax} tokens. However, ${resulted}. Please reduce the length of the messages or completion.`,
    { param: "messages" },
  );
}
