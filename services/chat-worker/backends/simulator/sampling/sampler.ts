import type { Candidates } from "../language/candidates.ts";
import type { Random } from "./random.ts";

/** How a token is chosen, with the names and ranges of the request fields. */
export interface SamplerSettings {
  /** 0: always the most probable one. */
  temperature: number;
  topP: number;
  /** Over prompt and answer. 1: none; above 1 discourages repeats. */
  repetitionPenalty: number;
  presencePenalty: number;
  frequencyPenalty: number;
}

/** The tokens that penalties are about. */
export interface SeenTokens {
  /** Of the prompt, for the repetition penalty alone. */
  prompt: ReadonlySet<number>;
  /** Of the answer so far, with how often each was said. */
  answer: ReadonlyMap<number, number>;
}

const LOGIT_MIN = -1e9;
/**
 * The logit of a certain token. Softmax does not care, but the repetition penalty
 * divides logits, so it matters where their zero is: in large models the probable
 * tokens have logits of this size.
 */
const LOGIT_OF_CERTAINTY = 10;

/** Whether any penalty is in force, so that somebody must keep {@link SeenTokens}. */
export function hasPenalties(settings: SamplerSettings): boolean {
  return settings.repetitionPenalty !== 1 || settings.presencePenalty !== 0 ||
    settings.frequencyPenalty !== 0;
}

/**
 * Chooses one of the candidates and returns its slot, in the order of the
 * textbooks: logits, repetition penalty, presence and frequency penalty,
 * temperature, softmax, the smallest set of tokens whose sum reaches `topP`, and
 * a draw by weight. The candidates' probabilities stay as they are.
 */
export function chooseSlot(
  candidates: Candidates,
  settings: SamplerSettings,
  seen: SeenTokens,
  random: Random,
): number {
  weigh(candidates, settings, seen);
  if (settings.temperature === 0) return heaviestSlot(candidates);
  const kept = settings.topP < 1
    ? keepNucleus(candidates, settings.topP)
    : totalWeight(candidates);
  return draw(candidates, kept * random());
}

/** Weights before the nucleus: for temperature 0 logits, otherwise unnormalised probabilities. */
function weigh(
  candidates: Candidates,
  settings: SamplerSettings,
  seen: SeenTokens,
): void {
  const { size, probabilities, weights } = candidates;
  if (!hasPenalties(settings) && settings.temperature === 1) {
    for (let slot = 0; slot < size; slot++) {
      weights[slot] = probabilities[slot] ?? 0;
    }
    return;
  }
  let best = -Infinity;
  for (let slot = 0; slot < size; slot++) {
    const logit = penalised(
      LOGIT_OF_CERTAINTY + Math.log(probabilities[slot] ?? 0),
      candidates.tokens[slot] ?? 0,
      settings,
      seen,
    );
    weights[slot] = logit;
    if (logit > best) best = logit;
  }
  if (settings.temperature === 0) return;
  for (let slot = 0; slot < size; slot++) {
    // Less the best, so that the largest weight is 1 and none overflows.
    weights[slot] = Math.exp(
      ((weights[slot] ?? 0) - best) / settings.temperature,
    );
  }
}

function penalised(
  logit: number,
  token: number,
  settings: SamplerSettings,
  seen: SeenTokens,
): number {
  const times = seen.answer.get(token) ?? 0;
  let result = logit;
  if (times > 0 || seen.prompt.has(token)) {
    const penalty = settings.repetitionPenalty;
    result = result > 0 ? result / penalty : result * penalty;
  }
  if (times > 0) {
    result -= settings.presencePenalty + settings.frequencyPenalty * times;
  }
  // What is impossible stays so; what is only discouraged stays possible, however large the penalty.
  return logit === -Infinity ? logit : Math.max(result, LOGIT_MIN);
}

function heaviestSlot(candidates: Candidates): number {
  let best = 0;
  for (let slot = 1; slot < candidates.size; slot++) {
    if ((candidates.weights[slot] ?? 0) > (candidates.weights[best] ?? 0)) {
      best = slot;
    }
  }
  return best;
}

function totalWeight(candidates: Candidates): number {
  let total = 0;
  for (let slot = 0; slot < candidates.size; slot++) {
    total += candidates.weights[slot] ?? 0;
  }
  return total;
}

/** Sets the weights outside the nucleus to 0 and returns the sum of the others. The heaviest always stays. */
function keepNucleus(candidates: Candidates, topP: number): number {
  const { size, weights } = candidates;
  const goal = totalWeight(candidates) * topP;
  const sorted = weights.slice(0, size).sort();
  let sum = 0;
  let kept = 0;
  while (kept < size && (kept === 0 || sum < goal)) {
    kept += 1;
    sum += sorted[size - kept] ?? 0;
  }
  dropBelow(candidates, sorted[size - kept] ?? 0, kept);
  return sum;
}

/** Keeps `kept` candidates: those above the threshold, and of those equal to it the first. */
function dropBelow(
  candidates: Candidates,
  threshold: number,
  kept: number,
): void {
  const { size, weights } = candidates;
  let atThreshold = kept;
  for (let slot = 0; slot < size; slot++) {
    if ((weights[slot] ?? 0) > threshold) atThreshold -= 1;
  }
  for (let slot = 0; slot < size; slot++) {
    const weight = weights[slot] ?? 0;
    if (weight > threshold) continue;
    if (weight === threshold && atThreshold > 0) atThreshold -= 1;
    else weights[slot] = 0;
  }
}

/** The slot in whose share of the total `mark` lies. */
function draw(candidates: Candidates, mark: number): number {
  let rest = mark;
  let last = 0;
  for (let slot = 0; slot < candidates.size; slot++) {
    const weight = candidates.weights[slot] ?? 0;
    if (weight === 0) continue;
    if (rest < weight) return slot;
    rest -= weight;
    // What rounding leaves over belongs to the last one.
    last = slot;
  }
  return last;
}
