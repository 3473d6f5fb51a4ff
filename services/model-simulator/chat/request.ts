/** Reads chat completion requests. Pure. */
import type { ChatMessage } from "@gateway/shared/openai/chat_message";
import {
  type ChatRequest as WireRequest,
  chatRequestSchema,
} from "@gateway/shared/openai/chat";
import { parseJsonBody } from "@gateway/shared/openai/json_body";
import { checked } from "@gateway/shared/openai/request_fault";
import { z } from "zod";

/** What other servers call `enable_thinking`: the gateway passes these fields on. */
const otherNames = z.object({
  chat_template_kwargs: z.object({ enable_thinking: z.boolean().nullish() })
    .nullish(),
  reasoning_effort: z.string().nullish(),
});

/** A request with all defaults of the simulator. */
export interface ChatRequest extends WireRequest {
  temperature: number;
  top_p: number;
  top_logprobs: number;
  presence_penalty: number;
  frequency_penalty: number;
  repetition_penalty: number;
  tools: NonNullable<WireRequest["tools"]>;
  max_tokens: number;
}

/** Reads the body of a request. Throws an `ApiError` that names the first mistake. */
export function parseRequest(text: string): ChatRequest {
  const json = parseJsonBody(text);
  const request = withDefaults(checked(chatRequestSchema, json));
  const { chat_template_kwargs, reasoning_effort } = checked(otherNames, json);
  request.enable_thinking ??= chat_template_kwargs?.enable_thinking ??
    (reasoning_effort ?? "none") !== "none";
  return request;
}

/** A request of any endpoint, with the simulator's defaults for what it leaves open. */
export function withDefaults(request: WireRequest): ChatRequest {
  const {
    temperature = 1,
    top_p = 1,
    presence_penalty = 0,
    frequency_penalty = 0,
    repetition_penalty = 1,
    top_logprobs = 0,
    tools = [],
    // Few models write more.
    max_tokens = 32_768,
    ...rest
  } = request;
  const penalties = { presence_penalty, frequency_penalty, repetition_penalty };
  const sampling = { temperature, top_p, top_logprobs, ...penalties };
  return { ...rest, ...sampling, tools, max_tokens };
}

/** The text of a message; its parts are lines. */
export function messageText({ content }: ChatMessage): string {
  if (content === null || typeof content === "string") return content ?? "";
  return content.map((part) => part.type === "text" ? part.text : "")
    .join("\n");
}

/** The text of the last message of the user. */
export function lastQuestion({ messages }: ChatRequest): string {
  const message = messages.findLast(({ role }) => role === "user");
  return message === undefined ? "" : messageText(message);
}

/**
 * What the user has said since anybody else spoke, in one or several messages; empty if
 * the last one is of somebody else.
 */
export function lastWords({ messages }: ChatRequest): string {
  const at = messages.findLastIndex(({ role }) => role !== "user");
  return messages.slice(at + 1).map(messageText).join("\n");
}

/** The last message that is no instruction: agents put those after the user's, too. */
export function lastTurn({ messages }: ChatRequest): ChatMessage | undefined {
  return messages.findLast(({ role }) =>
    role !== "system" && role !== "developer"
  );
}
