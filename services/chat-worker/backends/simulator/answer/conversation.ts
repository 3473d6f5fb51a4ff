import type { ChatMessage, ChatRequest } from "@gateway/shared/openai/chat";
import { stripControlPhrases } from "../control_phrases.ts";

/** What a tool answered. */
export interface ToolResult {
  /** The function's name, from the call that it answers. */
  name: string;
  content: string;
}

/** A request as the model understands it. */
export interface Conversation {
  /** The latest user messages, the last one first, without control phrases, each cut to a few thousand characters. */
  userTexts: readonly string[];
  /** The last message is the user's, so that something is asked. */
  endsWithUser: boolean;
  /** The results that end the conversation. */
  toolResults: readonly ToolResult[];
  /** Pictures in the last user message. */
  images: number;
}

const USER_TEXTS_MAX = 3;
const TEXT_CHARS_MAX = 4000;

/** Reads the end of a conversation. */
export function readConversation(request: ChatRequest): Conversation {
  const { messages } = request;
  const users = messages.filter((message) => message.role === "user");
  const lastUser = users.at(-1);
  return {
    userTexts: users.slice(-USER_TEXTS_MAX).reverse().map((message) =>
      stripControlPhrases(textOf(message).slice(0, TEXT_CHARS_MAX)).trim()
    ),
    endsWithUser: messages.at(-1)?.role === "user",
    toolResults: toolResults(messages),
    images: lastUser ? imageCount(lastUser) : 0,
  };
}

/** The text of a message, its parts joined. */
export function textOf(message: ChatMessage): string {
  if (typeof message.content === "string") return message.content;
  return (message.content ?? [])
    .map((part) => part.type === "text" ? part.text : "")
    .join("");
}

function imageCount(message: ChatMessage): number {
  if (!Array.isArray(message.content)) return 0;
  return message.content.filter((part) => part.type === "image_url").length;
}

function toolResults(messages: readonly ChatMessage[]): ToolResult[] {
  const results: ToolResult[] = [];
  let at = messages.length - 1;
  for (; messages[at]?.role === "tool"; at--) {
    const message = messages[at];
    if (!message) break;
    const name = nameOfCall(messages[at], messages) ?? "tool";
    results.unshift({ name, content: textOf(message) });
  }
  return results;
}

function nameOfCall(
  result: ChatMessage | undefined,
  messages: readonly ChatMessage[],
): string | undefined {
  for (const message of messages) {
    const call = message.tool_calls?.find(({ id }) =>
      id === result?.tool_call_id
    );
    if (call) return call.function.name;
  }
  return undefined;
}
