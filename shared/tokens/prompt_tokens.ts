import type { ChatMessage, ChatRequest } from "../openai/chat.ts";
import { textTokensLikely, textTokensMost } from "./text_tokens.ts";

/** How the parts of a prompt are estimated. */
interface Estimate {
  textTokens: (text: string) => number;
  /** A constant, because the URL of an image does not show its tokens. */
  tokensPerImage: number;
}

/** Assumes that every image has high detail. */
const MOST: Estimate = { textTokens: textTokensMost, tokensPerImage: 1_500 };
/** Assumes images of the usual size. */
const LIKELY: Estimate = {
  textTokens: textTokensLikely,
  tokensPerImage: 1_000,
};
/** For the role of each message and its separators. */
const TOKENS_PER_MESSAGE = 4;

/**
 * The most tokens that the prompt of a validated request may have: messages with
 * their calls and images, tools, the schema of the answer. Example: one message
 * "hello" has 6.
 */
export function promptTokensMost(request: ChatRequest): number {
  return promptTokens(request, MOST);
}

/** The likely number of tokens, for model servers that report no usage. */
export function promptTokensLikely(request: ChatRequest): number {
  return promptTokens(request, LIKELY);
}

function promptTokens(
  { messages, tools, response_format: format }: ChatRequest,
  estimate: Estimate,
): number {
  const { textTokens } = estimate;
  let tokens = tools === undefined ? 0 : textTokens(JSON.stringify(tools));
  if (format?.type === "json_schema") {
    tokens += textTokens(JSON.stringify(format.json_schema));
  }
  for (const message of messages) tokens += messageTokens(message, estimate);
  return tokens;
}

function messageTokens(
  { content, tool_calls: calls, ...message }: ChatMessage,
  { textTokens, tokensPerImage }: Estimate,
): number {
  let tokens = TOKENS_PER_MESSAGE;
  const { name = "", reasoning_content = "", refusal = "" } = message;
  for (const text of [name, reasoning_content, refusal]) {
    tokens += textTokens(text);
  }
  const parts = typeof content === "string"
    ? [{ type: "text" as const, text: content }]
    : content ?? [];
  for (const part of parts) {
    tokens += part.type === "text" ? textTokens(part.text) : tokensPerImage;
  }
  if (calls !== undefined) tokens += textTokens(JSON.stringify(calls));
  return tokens;
}
