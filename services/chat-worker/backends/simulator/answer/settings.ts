import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { SamplerSettings } from "../sampling/sampler.ts";

/** A little below 1: of so small a model, the improbable words are the wrong ones. */
const TEMPERATURE_USUAL = 0.7;

/** The sampler's settings of a request, with the values that change nothing for fields that are absent, but for temperature 0.7. */
export function settingsOf(request: ChatRequest): SamplerSettings {
  return {
    temperature: request.temperature ?? TEMPERATURE_USUAL,
    topP: request.top_p ?? 1,
    repetitionPenalty: request.repetition_penalty ?? 1,
    presencePenalty: request.presence_penalty ?? 0,
    frequencyPenalty: request.frequency_penalty ?? 0,
  };
}
