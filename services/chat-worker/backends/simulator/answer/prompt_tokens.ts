import type { ChatMessage, ChatRequest } from "@gateway/shared/openai/chat";
import type { Tokenizer } from "../language/tokenizer.ts";
import type { TurnKeeper } from "../turns.ts";

/** What a message costs beside its text: its role and its bounds. */
const MESSAGE_TOKENS = 3;
/** The beginning of the answer. */
const ANSWER_TOKENS = 3;
/** A picture, by `detail`. Its size is not looked at. */
const IMAGE_TOKENS_LOW = 85;
const IMAGE_TOKENS_HIGH = 765;
/** Text encoded at once, about 1 ms of work. */
const PORTION_UNITS = 16_384;

/** What {@link countPromptTokens} needs. */
export interface PromptCount {
  tokenizer: Tokenizer;
  turns: TurnKeeper;
  signal: AbortSignal;
  /** Called for each token of text, where the tokens themselves matter. */
  visit?: (token: number) => void;
}

/**
 * Counts the tokens of a request: all texts of all messages, the tools and the
 * response schema as JSON, pictures at a flat rate, and 3 tokens for each message
 * and for the answer's beginning. Lets the event loop go on while it counts a
 * long prompt. Throws the signal's reason when aborted.
 */
export async function countPromptTokens(
  request: ChatRequest,
  count: PromptCount,
): Promise<number> {
  let tokens = ANSWER_TOKENS;
  const visit = (token: number) => {
    tokens += 1;
    count.visit?.(token);
  };
  for (const message of request.messages) {
    tokens += MESSAGE_TOKENS + imageTokens(message);
    for (const text of textsOf(message)) await encode(text, visit, count);
  }
  for (const text of definitionsOf(request)) await encode(text, visit, count);
  return tokens;
}

async function encode(
  text: string,
  visit: (token: number) => void,
  count: PromptCount,
): Promise<void> {
  let from = 0;
  while (from < text.length) {
    if (count.turns.isDue) {
      await count.turns.turn();
      count.signal.throwIfAborted();
    }
    const startedAt = count.turns.now();
    const to = Math.min(from + PORTION_UNITS, text.length);
    from = count.tokenizer.encodePortion(text, from, to, visit);
    count.turns.worked(startedAt);
  }
}

function textsOf(message: ChatMessage): string[] {
  const { content, name, refusal, tool_calls } = message;
  const parts = typeof content === "string"
    ? [content]
    : (content ?? []).map((part) => part.type === "text" ? part.text : "");
  const calls = (tool_calls ?? []).flatMap((call) => [
    call.function.name,
    call.function.arguments,
  ]);
  return [...parts, ...calls, name ?? "", refusal ?? ""];
}

function imageTokens(message: ChatMessage): number {
  if (!Array.isArray(message.content)) return 0;
  return message.content.reduce((sum, part) => {
    if (part.type !== "image_url") return sum;
    const isLow = part.image_url.detail === "low";
    return sum + (isLow ? IMAGE_TOKENS_LOW : IMAGE_TOKENS_HIGH);
  }, 0);
}

function definitionsOf(request: ChatRequest): string[] {
  const { tools, response_format: format } = request;
  const definitions: string[] = [];
  if (tools !== undefined && tools.length > 0) {
    definitions.push(JSON.stringify(tools));
  }
  if (format?.type === "json_schema") {
    definitions.push(JSON.stringify(format.json_schema));
  }
  return definitions;
}
