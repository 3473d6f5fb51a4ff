import type { Candidates } from "../language/candidates.ts";
import { END_TOKEN } from "../language/vocabulary.ts";

/** How long a text should be: about so many tokens, or exactly. */
export type LengthPlan =
  | { type: "about"; tokens: number }
  | { type: "exactly"; tokens: number };

/** What an answer has when nothing is said about its length. */
const USUAL_TOKENS = 70;
const LONG_FACTOR = 4;
const SHORT_FACTOR = 0.3;
const LONG_WORDS =
  /\b(long|longer|detailed|in detail|essay|story|article|thorough|elaborate|ausführlich|lang|long[ue]*|largo|larga)\b|详细|長い|詳しく/i;
const SHORT_WORDS =
  /\b(short|briefly|brief|one (sentence|line|word)|concise|kurz|bref|breve|corto)\b|简短|短く/i;

/** Before this share of its length a text never ends by itself. */
const EARLIEST_SHARE = 0.3;
/** From this share on, each end of a sentence may be the end, more probably the later. */
const LIKELY_SHARE = 0.45;
const LIKELY_SLOPE = 0.7;
const END_CHANCE_MAX = 0.97;
/** Beyond this share a text may also end in the middle of a sentence, so that all end. */
const ANYWHERE_SHARE = 4;
const ANYWHERE_CHANCE = 0.5;

/**
 * Beyond this share a text is cut. Penalties below 0 make every word that was said
 * more probable each time, and without this an answer could go on for ever.
 */
const CUT_SHARE = 8;

/** Whether a text of so many tokens is over, whatever the model would say next. */
export function isOver(plan: LengthPlan, tokens: number): boolean {
  const share = plan.type === "exactly" ? 1 : CUT_SHARE;
  return tokens >= plan.tokens * share;
}

/** The length that a user's message asks for. */
export function planLength(userText: string): LengthPlan {
  if (SHORT_WORDS.test(userText)) {
    return { type: "about", tokens: USUAL_TOKENS * SHORT_FACTOR };
  }
  if (LONG_WORDS.test(userText)) {
    return { type: "about", tokens: USUAL_TOKENS * LONG_FACTOR };
  }
  return { type: "about", tokens: USUAL_TOKENS };
}

/**
 * Gives END the probability that fits the length so far, and normalises the
 * candidates. With 70 tokens planned: none below 21, that of the language model
 * itself up to 31, and from then on more at every end of a sentence, 39 % at 70.
 */
export function weighEnd(
  candidates: Candidates,
  plan: LengthPlan,
  tokens: number,
  endsSentence: boolean,
): void {
  const share = tokens / plan.tokens;
  if (plan.type === "exactly" || share < EARLIEST_SHARE) {
    candidates.scale(END_TOKEN, 0);
    candidates.normalise(1);
    return;
  }
  const chance = endChance(share, endsSentence);
  candidates.normalise(1 - chance);
  if (chance > 0) candidates.add(END_TOKEN, chance);
}

function endChance(share: number, endsSentence: boolean): number {
  if (endsSentence) {
    const chance = (share - LIKELY_SHARE) * LIKELY_SLOPE;
    return Math.min(Math.max(chance, 0), END_CHANCE_MAX);
  }
  return share > ANYWHERE_SHARE ? ANYWHERE_CHANCE : 0;
}
