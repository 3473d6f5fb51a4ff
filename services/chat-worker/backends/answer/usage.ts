/** The token counts that a model server states, wherever it states them. */
import { countIn, responseUsage } from "@gateway/shared/forward/usage";
import { type Usage, usageOfTokens } from "@gateway/shared/openai/completion";
import { isJsonObject, type JsonObject } from "@gateway/shared/upstream/json";

/** The largest counts that are believed; larger ones are a fault of the server. */
export interface UsageBounds {
  promptTokensMax: number;
  completionTokensMax: number;
}

/** What a server states of its usage. */
export interface StatedUsage {
  /** The counts that are charged. */
  counts: Usage;
  /** What the client gets: the counts, and the server's own members. */
  members: JsonObject;
}

/**
 * The usage that a chunk or body states: at the top, in a choice as Moonshot does, or
 * in `timings` as llama.cpp does. Null if there is none that can be believed.
 */
export function usageIn(
  chunk: JsonObject,
  bounds: UsageBounds,
): StatedUsage | null {
  const top = readUsage(chunk.usage, bounds);
  if (top !== null) return top;
  const choices: unknown[] = Array.isArray(chunk.choices) ? chunk.choices : [];
  for (const choice of choices) {
    const usage = isJsonObject(choice) ? readUsage(choice.usage, bounds) : null;
    if (usage !== null) return usage;
  }
  return readUsage(usageOfTimings(chunk.timings), bounds);
}

function readUsage(value: unknown, bounds: UsageBounds): StatedUsage | null {
  const counts = responseUsage(value);
  if (counts === null || !isBelievable(counts, bounds)) return null;
  return { counts, members: membersOf(value, counts) };
}

/**
 * A usage with estimates of what it does not state: a prompt of 0 tokens, which no
 * request has, and an answer of 0 although there was one. The prompt is estimated only
 * if need be: that takes as long as the prompt is.
 */
export function filledUsage(
  stated: StatedUsage | null,
  estimate: { promptTokens: () => number; completionTokens: number },
): StatedUsage {
  const { prompt_tokens = 0, completion_tokens = 0 } = stated?.counts ?? {};
  const hasAnswer = completion_tokens > 0 || estimate.completionTokens === 0;
  if (stated !== null && prompt_tokens > 0 && hasAnswer) return stated;
  const { prompt_tokens_details: cached, completion_tokens_details: reasoned } =
    stated?.counts ?? {};
  const counts: Usage = {
    ...usageOfTokens(
      prompt_tokens || estimate.promptTokens(),
      completion_tokens || estimate.completionTokens,
    ),
    ...cached && { prompt_tokens_details: cached },
    ...hasAnswer && reasoned && { completion_tokens_details: reasoned },
  };
  return { counts, members: membersOf(stated?.members, counts) };
}

function isBelievable(
  { prompt_tokens: prompt, completion_tokens: completion }: Usage,
  { promptTokensMax, completionTokensMax }: UsageBounds,
): boolean {
  return prompt <= promptTokensMax && completion <= completionTokensMax;
}

/** llama.cpp: `prompt_n` without the `cache_n` that it had in its cache. */
function usageOfTimings(timings: unknown): JsonObject | undefined {
  const promptTokens = countIn(timings, "prompt_n");
  const completion = countIn(timings, "predicted_n");
  if (promptTokens === null || completion === null) return undefined;
  const cachedTokens = countIn(timings, "cache_n") ?? 0;
  return {
    prompt_tokens: promptTokens + cachedTokens,
    completion_tokens: completion,
    ...cachedTokens > 0 &&
      { prompt_tokens_details: { cached_tokens: cachedTokens } },
  };
}

/** The server's members, with the counts of the gateway. */
function membersOf(value: unknown, counts: Usage): JsonObject {
  const own = isJsonObject(value) ? value : {};
  const members: JsonObject = { ...own, ...counts };
  for (
    const name of [
      "prompt_tokens_details",
      "completion_tokens_details",
    ] as const
  ) {
    const details = own[name];
    if (isJsonObject(details)) members[name] = { ...details, ...counts[name] };
    else if (counts[name] === undefined) delete members[name];
  }
  return members;
}
