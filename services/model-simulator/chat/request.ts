/** Reads chat completion requests as common model servers do. Pure. */
import type { ChatMessage } from "@gateway/shared/openai/chat";
import { chatRequestSchema } from "@gateway/shared/openai/chat";
import * as z from "zod";
import { parseJsonBody } from "@gateway/shared/openai/json_body";
import { checked } from "@gateway/shared/openai/request_fault";

/** Fields of common model servers that OpenAI does not have. */
const ownFields = z.object({
  chat_template_kwargs: z.object({ enable_thinking: z.boolean().nullish() })
    .nullish(),
  reasoning_effort: z.string().nullish(),
});

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

/** Reads the JSON of a request. Throws an `ApiError` that names the first mistake. */
export function parseRequest(text: string) {
  const json = parseJsonBody(text);
  const common = checked(chatRequestSchema, json);
  const { chat_template_kwargs, reasoning_effort } = checked(ownFields, json);
  const { enable_thinking = chat_template_kwargs?.enable_thinking } = common;
  return {
    ...DEFAULTS,
    ...common,
    isThinking: enable_thinking ?? (reasoning_effort ?? "none") !== "none",
  };
}

export function textOf({ content }: ChatMessage): string {
  if (content === null || typeof content === "string") return content ?? "";
  return content.map((part) => part.type === "text" ? part.text : "")
    .join("\n");
}
