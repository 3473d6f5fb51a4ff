/** Reads chat completion requests as common model servers do. Pure. */
import {
  type ChatMessage,
  chatRequestSchema,
} from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import { parseJsonBody } from "@gateway/shared/openai/json_body";
import { requestFault } from "@gateway/shared/openai/request_fault";
import * as z from "zod";
import { HttpError } from "./errors.ts";

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

/** A request whose sampling parameters all have a value. */
export type ChatRequest = ReturnType<typeof parseRequest>;

/** Reads the JSON of a request. Throws an {@link HttpError} that names the first mistake. */
export function parseRequest(text: string) {
  let json: unknown;
  try {
    json = parseJsonBody(text);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    throw new HttpError(error.message);
  }
  const common = chatRequestSchema.safeParse(json);
  if (!common.success) throw invalidRequest(json, common.error);
  const own = ownFields.safeParse(json);
  if (!own.success) throw invalidRequest(json, own.error);
  const { chat_template_kwargs, reasoning_effort } = own.data;
  const { enable_thinking = chat_template_kwargs?.enable_thinking } =
    common.data;
  return {
    ...DEFAULTS,
    ...common.data,
    isThinking: enable_thinking ?? (reasoning_effort ?? "none") !== "none",
  };
}

function invalidRequest(json: unknown, error: z.ZodError): HttpError {
  const { message, param } = requestFault(json, error);
  return new HttpError(message, { param });
}

/** The text of a message, its parts joined. */
export function textOf({ content }: ChatMessage): string {
  if (content === null || typeof content === "string") return content ?? "";
  return content.map((part) => part.type === "text" ? part.text : "")
    .join("\n");
}
