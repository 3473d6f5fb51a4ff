import type { Logprobs } from "@gateway/shared/openai/chat";
import type { Candidates } from "../language/candidates.ts";
import { eachUtf8Byte } from "../language/utf8.ts";
import {
  BYTE_TOKENS_FROM,
  END_TOKEN,
  isPartialToken,
  type Vocabulary,
} from "../language/vocabulary.ts";

/** A token and its natural log probability, as OpenAI writes it. */
export interface LogprobEntry {
  token: string;
  logprob: number;
  bytes: number[];
}

/** The same with the most probable tokens at its place. */
export interface TokenLogprob extends LogprobEntry {
  top_logprobs: LogprobEntry[];
}

/** What a probability of 0 is written as: JSON has no infinity, and OpenAI does the same. */
const LOGPROB_MIN = -9999;

/** The `logprobs` member of a choice or chunk. */
export function toLogprobs(content: readonly TokenLogprob[]): Logprobs {
  return { content, refusal: null };
}

/**
 * The log probability of a token among the candidates, before penalties,
 * temperature and nucleus: what the model itself thinks. The answer's end is no
 * token on the wire and is left out of the list.
 */
export function sampledLogprob(
  token: number,
  candidates: Candidates,
  top: number,
  vocabulary: Vocabulary,
): TokenLogprob {
  const slot = candidates.slotOf(token);
  return {
    ...entryOf(token, candidates.probabilities[slot] ?? 0, vocabulary),
    top_logprobs: topSlots(candidates, top).map((best) =>
      entryOf(
        candidates.tokens[best] ?? 0,
        candidates.probabilities[best] ?? 0,
        vocabulary,
      )
    ),
  };
}

/** The log probability of a token that was the only one allowed. */
export function certainLogprob(
  token: number,
  top: number,
  vocabulary: Vocabulary,
): TokenLogprob {
  const entry = entryOf(token, 1, vocabulary);
  return { ...entry, top_logprobs: top > 0 ? [{ ...entry }] : [] };
}

function topSlots(candidates: Candidates, top: number): number[] {
  if (top === 0) return [];
  const slots: number[] = [];
  for (let slot = 0; slot < candidates.size; slot++) {
    if (candidates.tokens[slot] !== END_TOKEN) slots.push(slot);
  }
  const { probabilities } = candidates;
  return slots
    .sort((one, other) =>
      (probabilities[other] ?? 0) - (probabilities[one] ?? 0)
    )
    .slice(0, top);
}

function entryOf(
  token: number,
  probability: number,
  vocabulary: Vocabulary,
): LogprobEntry {
  const logprob = probability > 0 ? Math.log(probability) : LOGPROB_MIN;
  if (isPartialToken(token)) {
    const byte = token - BYTE_TOKENS_FROM;
    return { token: `bytes:\\x${byte.toString(16)}`, logprob, bytes: [byte] };
  }
  const text = vocabulary.texts[token] ?? "";
  const bytes: number[] = [];
  for (const character of text) {
    eachUtf8Byte(character.codePointAt(0) ?? 0, (byte) => bytes.push(byte));
  }
  return { token: text, logprob, bytes };
}
