import type { ChatMessage, ChatRequest } from "../openai/chat.ts";
import { textTokensLikely, textTokensMost } from "./text_tokens.ts";

/** How the parts of a prompt are guessed. */
interface Guess {
  textTokens: (text: string) => number;
  /** An image; its data URL says nothing about its tokens. */
  tokensPerImage: number;
}

/** Every image in high detail. */
const MOST: Guess = { textTokens: textTokensMost, tokensPerImage: 1_500 };
/** Images of usual size. */
const LIKELY: Guess = { textTokens: textTokensLikely, tokensPerImage: 1_000 };
/** Role and separators around each message. */
const TOKENS_PER_MESSAGE = 4;

/**
 * The most tokens that the prompt of a validated request may have: messages with
 * their calls and images, tools, the schema of the answer. Example: one message
 * "hello" is 6.
 */
export function promptTokensMost(request: ChatRequest): number {
  return promptTokens(request, MOST);
}

/** The tokens that it likely has, where a model server does not say. */
export function promptTokensLikely(request: ChatRequest): number {
  return promptTokens(request, LIKELY);
}

function promptTokens(request: ChatRequest, guess: Guess): number {
  let tokens = 0;
  for (const message of request.messages) {
    tokens += messageTokens(message, guess);
  }
  if (request.tools !== undefined) tokens += jsonTokens(request.tools, guess);
  const format = request.response_format;
  if (format?.type === "json_schema") {
    tokens += jsonTokens(format.json_schema, guess);
  }
  return tokens;
}

function messageTokens(message: ChatMessage, guess: Guess): number {
  const { textTokens, tokensPerImage } = guess;
  let tokens = TOKENS_PER_MESSAGE + textTokens(message.name ?? "") +
    textTokens(message.reasoning_content ?? "") +
    textTokens(message.refusal ?? "");
  const { content, tool_calls: calls } = message;
  if (typeof content === "string") {
    tokens += textTokens(content);
  } else if (content !== null) {
    for (const part of content) {
      tokens += part.type === "text" ? textTokens(part.text) : tokensPerImage;
    }
  }
  if (calls !== undefined) tokens += jsonTokens(calls, guess);
  return tokens;
}

function jsonTokens(value: unknown, { textTokens }: Guess): number {
  return textTokens(JSON.stringify(value));
}
