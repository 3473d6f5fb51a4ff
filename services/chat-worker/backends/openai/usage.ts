import type {
  ChatMessage,
  ChatRequest,
  Usage,
} from "@gateway/shared/openai/chat";
import { isCount, isJsonObject } from "./json.ts";

/**
 * Token counts of a model server, or an estimate where it gives none.
 */

/** What servers send, read strictly: null unless both counts are there and make sense. */
export function parseUsage(value: unknown): Usage | null {
  if (!isJsonObject(value)) return null;
  const prompt = value.prompt_tokens;
  let completion = value.completion_tokens;
  if (!isCount(prompt) || !isCount(completion)) return null;
  const reasoning = detail(value.completion_tokens_details, "reasoning_tokens");
  // Some hosts count reasoning beside the completion and not in it; the total tells.
  const isBeside = reasoning !== null && reasoning > 0 &&
    value.total_tokens === prompt + completion + reasoning;
  if (isBeside) completion += reasoning;
  const usage: Usage = {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
  };
  const cached = detail(value.prompt_tokens_details, "cached_tokens");
  if (cached !== null && cached <= prompt) {
    usage.prompt_tokens_details = { cached_tokens: cached };
  }
  if (reasoning !== null && reasoning <= completion) {
    usage.completion_tokens_details = { reasoning_tokens: reasoning };
  }
  return usage;
}

function detail(details: unknown, name: string): number | null {
  const value = isJsonObject(details) ? details[name] : undefined;
  return isCount(value) ? value : null;
}

/** UTF-16 units of text per token, near enough for the tokenizers in use: English 4.2, code 3.5. */
const CHARS_PER_TOKEN = 4;
/** Characters of Chinese, Japanese, Korean and beyond, of which each is about one token. */
const WIDE = /[\u2e80-\u{10ffff}]/gu;
/** Role and delimiters that a chat template puts around a message. */
const TOKENS_PER_MESSAGE = 4;
/** An image of usual size; its data URL says nothing about it. */
const TOKENS_PER_IMAGE = 1_000;

/** Adds up text that is to be estimated; see {@link createTextMeter}. */
export interface TextMeter {
  add(text: string): void;
  /** Estimated tokens so far. */
  readonly tokens: number;
  /** Pieces of text so far. */
  readonly pieces: number;
}

/** Measures text by its length: `"hello world"` is 3 tokens, in however many pieces. */
export function createTextMeter(): TextMeter {
  let chars = 0;
  let wide = 0;
  let pieces = 0;
  return {
    add(text) {
      if (text === "") return;
      pieces++;
      chars += text.length;
      wide += text.match(WIDE)?.length ?? 0;
    },
    get tokens() {
      return Math.ceil((chars - wide) / CHARS_PER_TOKEN) + wide;
    },
    get pieces() {
      return pieces;
    },
  };
}

/**
 * The usage of an answer nobody counted: the prompt by its length, the answer by
 * its length too, but never less than one token per piece, since most servers
 * send one token at a time.
 */
export function estimateUsage(request: ChatRequest, answer: TextMeter): Usage {
  const prompt = estimatePromptTokens(request);
  const completion = Math.max(answer.tokens, answer.pieces);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
  };
}

function estimatePromptTokens(request: ChatRequest): number {
  const text = createTextMeter();
  let images = 0;
  for (const message of request.messages) images += measure(message, text);
  if (request.tools !== undefined) text.add(JSON.stringify(request.tools));
  return text.tokens + images * TOKENS_PER_IMAGE +
    request.messages.length * TOKENS_PER_MESSAGE;
}

/** Adds the message's text and returns how many images it has. */
function measure(message: ChatMessage, text: TextMeter): number {
  for (const call of message.tool_calls ?? []) {
    text.add(call.function.name);
    text.add(call.function.arguments);
  }
  const { content } = message;
  if (content === null) return 0;
  if (typeof content === "string") {
    text.add(content);
    return 0;
  }
  let images = 0;
  for (const part of content) {
    if (part.type === "text") text.add(part.text);
    else images++;
  }
  return images;
}
