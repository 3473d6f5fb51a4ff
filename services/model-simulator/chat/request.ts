/** Reads chat completion requests. Pure. */
import type { ChatMessage } from "@gateway/shared/openai/chat";
import { chatRequestSchema } from "@gateway/shared/openai/chat";
import { parseJsonBody } from "@gateway/shared/openai/json_body";
import { checked } from "@gateway/shared/openai/request_fault";

const DEFAULTS = {
  temperature: 1,
  top_p: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
  repetition_penalty: 1,
  top_logprobs: 0,
  tools: [],
};

export type ChatRequest = ReturnType<typeof parseRequest>;

/** Throws an `ApiError` that names the first mistake. */
export const parseRequest = (text: string) => (
  { ...DEFAULTS, ...checked(chatRequestSchema, parseJsonBody(text)) }
);

export function textOf({ content }: ChatMessage): string {
  if (content === null || typeof content === "string") return content ?? "";
  return content.map((part) => part.type === "text" ? part.text : "")
    .join("\n");
}

/** The last message of the user. */
export function lastAsked({ messages }: ChatRequest): string {
  const message = messages.findLast(({ role }) => role === "user");
  return message === undefined ? "" : textOf(message);
}
