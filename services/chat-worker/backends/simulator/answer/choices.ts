import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Controls } from "../control_phrases.ts";
import type { Candidates } from "../language/candidates.ts";
import type { Language } from "../language/language.ts";
import { hash32, type Random, randomFrom } from "../sampling/random.ts";
import { ChoiceRun } from "./choice_run.ts";
import { readConversation } from "./conversation.ts";
import { planAnswer, writeScript } from "./plan.ts";
import { settingsOf } from "./settings.ts";

/** What {@link prepareChoices} works with. */
export interface ChoicesOptions {
  request: ChatRequest;
  controls: Controls;
  language: Language;
  candidates: Candidates;
  /** Tokens of the prompt, by number and each once, for the repetition penalty. */
  promptTokens: number;
  distinctPromptTokens: ReadonlySet<number>;
  /** Of each choice. */
  tokensMax: number;
  /** Where answers without a seed get theirs. */
  random: Random;
}

const CALL_ID_DIGITS = 24;

/**
 * Makes the `n` choices of an answer, ready to say their first token. Each has
 * its own chance, derived from the seed and its place, so that the first choice is
 * the same whatever `n` is. Throws what {@link writeScript} throws.
 */
export function prepareChoices(options: ChoicesOptions): ChoiceRun[] {
  const { request, controls, language, candidates } = options;
  const conversation = readConversation(request);
  const plan = planAnswer(request, conversation, controls, language);
  const seed = seedOf(request, options.random);
  // The same seed in a later turn of a conversation must not give the same ids again.
  const turn = `${request.messages.length}/${options.promptTokens}`;
  return Array.from({ length: request.n }, (_, index) => {
    const writer = {
      language,
      candidates,
      settings: settingsOf(request),
      promptTokens: options.distinctPromptTokens,
      random: randomFrom(`${seed}/${index}`),
    };
    const idOf = (at: number) => callId(`${seed}/${index}/${turn}/${at}`);
    return new ChoiceRun({
      ...writer,
      ...(request.logprobs === true
        ? { topLogprobs: request.top_logprobs ?? 0 }
        : {}),
      index,
      script: writeScript(plan, writer, idOf),
      stops: request.stop ?? [],
      tokensMax: options.tokensMax,
      reasoningTokensMax: request.thinking_budget ?? Infinity,
    });
  });
}

/** What all chance of an answer begins with. Greedy sampling has none, so nothing else in it may have any. */
function seedOf(request: ChatRequest, random: Random): string {
  if (request.seed !== undefined) return String(request.seed);
  if (request.temperature === 0) return "greedy";
  return `${random()}/${random()}`;
}

/** An id such as `call_` and 24 hexadecimal digits. */
function callId(label: string): string {
  let digits = "";
  for (let part = 0; digits.length < CALL_ID_DIGITS; part++) {
    digits += hash32(`${label}/${part}`).toString(16).padStart(8, "0");
  }
  return `call_${digits}`;
}
