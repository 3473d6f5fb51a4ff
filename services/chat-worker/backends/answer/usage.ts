/** The token counts that a model server states, wherever it states them. */
import { countIn, responseUsage } from "@gateway/shared/forward/usage";
import type { Usage } from "@gateway/shared/openai/completion";
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
