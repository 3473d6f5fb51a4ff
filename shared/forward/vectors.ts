/**
 * What a request for embeddings asks for: how many vectors, and of how many tokens. The
 * forms of `input` are OpenAI's: a text, a list of texts, tokens, or lists of tokens.
 * `prompt` of completions has the same forms.
 */
import { textTokens } from "../openai/tokens.ts";

/** How much a request for embeddings or ranks asks for. */
export interface Inputs {
  /** How many vectors answer them; null if only the server can say. */
  readonly count: number | null;
  /** The tokens of the inputs: exact if these are tokens, else estimated. */
  readonly tokens: number;
}

/** Counts `input` of a body. Anything else than OpenAI's forms is one text of JSON. */
export function inputsIn(input: unknown): Inputs {
  if (!Array.isArray(input) || input.length === 0) {
    const count = typeof input === "string" ? 1 : null;
    return { count, tokens: Math.ceil(tokensOf(input)) };
  }
  // One list of tokens is one input.
  if (input.every((each) => typeof each === "number")) {
    return { count: 1, tokens: input.length };
  }
  const tokens = input.reduce((sum: number, each) => sum + tokensOf(each), 0);
  return { count: input.length, tokens: Math.ceil(tokens) };
}

function tokensOf(input: unknown): number {
  if (Array.isArray(input) && input.every((each) => typeof each === "number")) {
    return input.length;
  }
  const text = typeof input === "string" ? input : JSON.stringify(input) ?? "";
  return textTokens(text);
}
