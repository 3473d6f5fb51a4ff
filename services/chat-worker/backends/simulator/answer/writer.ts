import type { Candidates } from "../language/candidates.ts";
import type { Language } from "../language/language.ts";
import type { Bias } from "../language/ngram_model.ts";
import { END_TOKEN, START_TOKEN } from "../language/vocabulary.ts";
import type { Random } from "../sampling/random.ts";
import {
  chooseSlot,
  hasPenalties,
  type SamplerSettings,
  type SeenTokens,
} from "../sampling/sampler.ts";
import { type LengthPlan, weighEnd } from "./ending.ts";

/** What a writer works with. */
export interface WriterOptions {
  language: Language;
  /** Shared by all writers: each uses it from the prediction to the choice and no longer. */
  candidates: Candidates;
  settings: SamplerSettings;
  /** Tokens of the prompt, for the repetition penalty; may be empty without one. */
  promptTokens: ReadonlySet<number>;
  random: Random;
}

/** Says one token after another, each sampled from what the language model makes of those before it. */
export class Writer {
  readonly #options: WriterOptions;
  readonly #isCounting: boolean;
  readonly #answerTokens = new Map<number, number>();
  readonly #seen: SeenTokens;
  #history: number[] = [START_TOKEN];

  constructor(options: WriterOptions) {
    this.#options = options;
    this.#isCounting = hasPenalties(options.settings);
    this.#seen = { prompt: options.promptTokens, answer: this.#answerTokens };
  }

  /** Begins a new text. Penalties go on over all texts of one answer. */
  restart(): void {
    this.#history = [START_TOKEN];
  }

  /** Says a token that is not up to the model. */
  say(token: number): void {
    this.#history.push(token);
    if (!this.#isCounting) return;
    this.#answerTokens.set(token, (this.#answerTokens.get(token) ?? 0) + 1);
  }

  /**
   * Chooses the next token of a text of which `tokens` are there, and says it.
   * The candidates stay as they were weighed until the next call of any writer.
   */
  next(bias: Bias, plan: LengthPlan, tokens: number): number {
    const { language, candidates, settings, random } = this.#options;
    const last = this.#history.at(-1) ?? START_TOKEN;
    language.model.predict(this.#history, bias, candidates);
    weighEnd(candidates, plan, tokens, language.endsSentence(last));
    const slot = chooseSlot(candidates, settings, this.#seen, random);
    const token = candidates.tokens[slot] ?? END_TOKEN;
    if (token !== END_TOKEN) this.say(token);
    return token;
  }
}

/** A few words on a subject: up to the end of a sentence, or to `tokensMax`. */
export function writeProse(
  options: WriterOptions,
  bias: Bias,
  tokensMax: number,
): string {
  const writer = new Writer(options);
  const plan = { type: "exactly", tokens: tokensMax } as const;
  const tokens: number[] = [];
  while (tokens.length < tokensMax) {
    const token = writer.next(bias, plan, tokens.length);
    tokens.push(token);
    const isLong = tokens.length > tokensMax / 3;
    if (isLong && options.language.endsSentence(token)) break;
  }
  return options.language.tokenizer.decode(tokens).trim();
}
