/**
 * Reads the body of `POST /v1/messages`, Anthropic's form of a chat:
 * https://docs.claude.com/en/api/messages, November 2026. What the simulator has no use
 * for is not looked at. Pure.
 */
import type { ChatMessage } from "@gateway/shared/openai/chat_message";
import type { Tool } from "@gateway/shared/openai/chat";
import {
  anyObject,
  decimal,
  integer,
  listOf,
  model,
  nameText,
  nullable,
  openUnion,
  stringOr,
} from "@gateway/shared/openai/fields";
import { parseJsonBody } from "@gateway/shared/openai/json_body";
import { checked } from "@gateway/shared/openai/request_fault";
import { z } from "zod";
import { type ChatRequest, withDefaults } from "../chat/request.ts";

const BLOCKS_MAX = 10_000;
const TOOLS_MAX = 512;
const STOPS_MAX = 16;

/** A part of a message. */
interface Block {
  type: string;
  text?: string | undefined;
  thinking?: string | undefined;
  id?: string | undefined;
  name?: string | undefined;
  input?: unknown;
  tool_use_id?: string | undefined;
  content?: unknown;
  [member: string]: unknown;
}

const textBlock = z.looseObject({ type: z.literal("text"), text: z.string() });
const simpleBlock = openUnion<Block>({ text: textBlock });
const texts = stringOr(
  z.string(),
  listOf(simpleBlock, BLOCKS_MAX),
  "an array",
);
const block = openUnion<Block>({
  text: textBlock,
  thinking: z.looseObject({
    type: z.literal("thinking"),
    thinking: z.string(),
  }),
  tool_use: z.looseObject({
    type: z.literal("tool_use"),
    id: nameText,
    name: nameText,
    input: anyObject,
  }),
  tool_result: z.looseObject({
    type: z.literal("tool_result"),
    tool_use_id: nameText,
    content: texts.optional(),
  }),
});
const message = z.looseObject({
  role: z.enum(["user", "assistant", "system"]),
  content: stringOr(z.string(), listOf(block, BLOCKS_MAX), "an array"),
});
/** Tools with a type of their own run at Anthropic: the simulator never calls them. */
const tool = z.looseObject({
  type: z.string().optional(),
  name: nameText,
  description: z.string().optional(),
  input_schema: anyObject.optional(),
});
const toolChoice = z.looseObject({
  type: z.enum(["auto", "any", "tool", "none"]),
  name: nameText.optional(),
  disable_parallel_tool_use: z.boolean().optional(),
});
const thinking = z.looseObject({
  type: z.enum(["enabled", "adaptive", "disabled"]),
  budget_tokens: integer(1).optional(),
});

/** What decides about the length of a prompt. */
const promptFields = z.looseObject({
  model,
  messages: listOf(message, BLOCKS_MAX, 1),
  system: texts.optional(),
  tools: listOf(tool, TOOLS_MAX).optional(),
  tool_choice: nullable(toolChoice).optional(),
  thinking: nullable(thinking).optional(),
});
const countedSchema = nullable(promptFields);
const requestSchema = nullable(promptFields.extend({
  max_tokens: integer(1),
  stop_sequences: listOf(z.string().min(1), STOPS_MAX).optional(),
  stream: z.boolean().default(false),
  temperature: decimal(0, 1).optional(),
  top_p: decimal(0, 1).optional(),
  output_config: nullable(z.looseObject({
    format: nullable(z.looseObject({ schema: anyObject })).optional(),
  })).optional(),
}));

/** A request as the simulator runs it. */
export interface MessagesRequest {
  readonly chat: ChatRequest;
  /** Whether any part of the prompt is marked to be cached. */
  readonly isCaching: boolean;
}

/** Reads a body. Throws an `ApiError` that names the first mistake. */
export function parseMessages(text: string): MessagesRequest {
  const wire = checked(requestSchema, parseJsonBody(text));
  const { max_tokens, stop_sequences: stop = [], stream, ...rest } = wire;
  const { temperature, top_p, output_config } = rest;
  const schema = output_config?.format?.schema;
  const chat = withDefaults({
    ...conversationOf(wire),
    ...thinkingOf(wire.thinking),
    max_tokens,
    stop,
    stream,
    temperature,
    top_p,
    response_format: schema === undefined ? undefined : {
      type: "json_schema",
      json_schema: { name: "output", schema },
    },
  });
  return { chat, isCaching: text.includes('"cache_control"') };
}

/** Reads the body of `POST /v1/messages/count_tokens`. */
export function parseCounted(text: string): ChatRequest {
  const wire = checked(countedSchema, parseJsonBody(text));
  return withDefaults({ ...conversationOf(wire), stream: false });
}

type Wire = z.output<typeof promptFields>;

function thinkingOf(thinking: Wire["thinking"]) {
  const { type = "disabled", budget_tokens } = thinking ?? {};
  return {
    enable_thinking: type !== "disabled",
    thinking_budget: budget_tokens,
  };
}

function conversationOf({ model, messages, system, ...wire }: Wire) {
  const { tool_choice: choice, tools = [] } = wire;
  const instructions = system === undefined ? [] : [instruction(system)];
  return {
    model,
    messages: [...instructions, ...messages.flatMap(messagesOf)],
    include_usage: false,
    n: 1,
    tools: tools.flatMap(toolOf),
    tool_choice: choiceOf(choice),
    parallel_tool_calls: choice?.disable_parallel_tool_use !== true,
  };
}

function instruction(content: string | Block[]): ChatMessage {
  return { role: "system", content: textOf(content) };
}

function toolOf(
  { type = "custom", name, description, input_schema }: z.output<typeof tool>,
): Tool[] {
  if (type !== "custom" || input_schema === undefined) return [];
  const described = { name, description, parameters: input_schema };
  return [{ type: "function", function: described }];
}

function choiceOf(choice: Wire["tool_choice"]) {
  switch (choice?.type) {
    case "tool":
      return { type: "function", function: { name: choice.name ?? "" } };
    case "any":
      return "required" as const;
    case "none":
      return "none" as const;
    default:
      return "auto" as const;
  }
}

/**
 * One message of Anthropic's may be several: agents put reminders before the user's
 * text, as blocks of their own, and results of tools beside texts. The last text is the
 * question, unless there are results.
 */
function messagesOf(
  { role, content }: z.output<typeof message>,
): ChatMessage[] {
  if (role === "system") return [instruction(content)];
  if (typeof content === "string") return [{ role, content }];
  if (role === "assistant") return [assistantOf(content)];
  const media = content.filter(({ type }) => !TEXT_TYPES.has(type));
  const texts = content.flatMap(({ type, text }) =>
    type === "text" ? [text ?? ""] : []
  );
  const results = content.filter(({ type }) => type === "tool_result");
  return [
    ...media.map(({ type }) => ({ role, content: [{ type }] })),
    ...texts.map((text) => ({ role, content: text })),
    ...results.map(({ tool_use_id, content }): ChatMessage => ({
      role: "tool",
      tool_call_id: tool_use_id ?? "",
      content: resultText(content),
    })),
  ];
}

const TEXT_TYPES: ReadonlySet<string> = new Set(["text", "tool_result"]);

function assistantOf(content: readonly Block[]): ChatMessage {
  const calls = content.filter(({ type }) => type === "tool_use")
    .map(({ id, name = "", input }) => ({
      id,
      type: "function",
      function: { name, arguments: JSON.stringify(input) },
    }));
  const thoughts = content.map(({ thinking = "" }) => thinking).join("");
  return {
    role: "assistant",
    content: textOf(content),
    ...thoughts !== "" && { reasoning_content: thoughts },
    ...calls.length > 0 && { tool_calls: calls },
  };
}

function textOf(content: string | readonly Block[]): string {
  if (typeof content === "string") return content;
  return content.map(({ text = "" }) => text).join("\n");
}

function resultText(content: unknown): string {
  if (typeof content === "string") return content;
  const parts = z.array(z.looseObject({ text: z.string().optional() }))
    .safeParse(content);
  return parts.success
    ? parts.data.map(({ text = "" }) => text).join("\n")
    : "";
}
