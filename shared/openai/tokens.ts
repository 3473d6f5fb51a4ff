/**
 * Estimates tokens without a tokenizer, since none fits all models: one for every
 * four bytes of UTF-8. That is 0.8 to 1.2 times what OpenAI's find in prose and code,
 * 0.6 to 1 times in Chinese, Japanese and Korean, 0.4 in tables of numbers. Used to
 * reserve tokens, and for model servers that do not report usage.
 */
import { utf8Length } from "../text/utf8.ts";
import type { ChatMessage } from "./chat_message.ts";
import type { ChatRequest } from "./chat.ts";

/** Bytes of UTF-8 that count as one token. */
export const BYTES_PER_TOKEN = 4;
/** A piece of text whose estimate is not above this counts as one token: 16 bytes. */
const ONE_TOKEN_MAX = 4;
/** Tokens for the role of a message and its separators. */
const TOKENS_PER_MESSAGE = 4;
/**
 * Tokens for an image of the usual size, or another medium, whose URL does not show
 * them.
 */
const TOKENS_PER_MEDIUM = 1_000;

/** The tokens that a text is likely to have, not rounded: "hello" has 1.25. */
export function textTokens(text: string): number {
  return utf8Length(text) / BYTES_PER_TOKEN;
}

/** The tokens of an answer by its text, which arrives in pieces. */
export class TextTokens {
  /** How many pieces there were. */
  pieces = 0;
  /** At least this many tokens are in the text. */
  leastTokens = 0;
  #estimate = 0;

  /** Counts a piece that is likely to have this many tokens. */
  add(tokens: number): void {
    this.pieces += 1;
    this.#estimate += tokens;
    // Servers send a token at a time, and few tokens are long.
    this.leastTokens += tokens <= ONE_TOKEN_MAX ? 1 : Math.floor(tokens);
  }

  /** The tokens that the text is likely to have: at least one for each piece. */
  get estimate(): number {
    return Math.max(Math.ceil(this.#estimate), this.pieces);
  }
}

/**
 * The tokens of messages, tools and the answer's schema, rounded up: 6 for one message
 * "hello".
 */
export function promptTokens(
  { messages, tools, response_format: format }: ChatRequest,
): number {
  const isSchema = format?.type === "json_schema";
  return Math.ceil(
    sum(messages.map(messageTokens)) + jsonTokens(tools) +
      jsonTokens(isSchema ? format.json_schema : undefined),
  );
}

function messageTokens(
  { content, tool_calls, ...message }: ChatMessage,
): number {
  const { name = "", reasoning_content = "", refusal = "" } = message;
  const texts = [name, reasoning_content, refusal].map(textTokens);
  const parts = typeof content === "string"
    ? [textTokens(content)]
    : (content ?? []).map((part) =>
      part.text === undefined ? TOKENS_PER_MEDIUM : textTokens(part.text)
    );
  return TOKENS_PER_MESSAGE + sum(texts) + sum(parts) + jsonTokens(tool_calls);
}

function jsonTokens(value: unknown): number {
  return value === undefined ? 0 : textTokens(JSON.stringify(value));
}

function sum(counts: number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}
