/**
 * Reads the body of `POST /v1/responses`, OpenAI's newer form of a chat:
 * https://platform.openai.com/docs/api-reference/responses, November 2026. What the
 * simulator has no use for is not looked at. Pure.
 */
import type { ChatMessage } from "@gateway/shared/openai/chat_message";
import type { Tool } from "@gateway/shared/openai/chat";
import { fieldError } from "@gateway/shared/openai/error";
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

const ITEMS_MAX = 10_000;
const TOOLS_MAX = 512;

/** A part of a message, or of what a tool has returned. */
interface Part {
  type: string;
  text?: string | undefined;
  [member: string]: unknown;
}

const part = openUnion<Part>({
  input_text: z.looseObject({
    type: z.literal("input_text"),
    text: z.string(),
  }),
  output_text: z.looseObject({
    type: z.literal("output_text"),
    text: z.string(),
  }),
});
const content = stringOr(z.string(), listOf(part, ITEMS_MAX), "an array");

/** One of: a message, a call of a function, its result, or what only OpenAI knows. */
interface Item {
  type: string;
  role?: Role | undefined;
  content?: string | Part[] | undefined;
  call_id?: string | undefined;
  name?: string | undefined;
  arguments?: string | undefined;
  output?: string | Part[] | undefined;
  [member: string]: unknown;
}

const role = z.enum(["user", "assistant", "system", "developer"]);
type Role = z.output<typeof role>;
const knownItem = openUnion<Item>({
  message: z.looseObject({ type: z.literal("message"), role, content }),
  function_call: z.looseObject({
    type: z.literal("function_call"),
    call_id: nameText,
    name: nameText,
    arguments: z.string(),
  }),
  function_call_output: z.looseObject({
    type: z.literal("function_call_output"),
    call_id: nameText,
    output: content,
  }),
  reasoning: z.looseObject({ type: z.literal("reasoning") }).transform(
    ({ type }): Item => ({ type }),
  ),
});
/** A message may leave out its type. */
const item = z.preprocess(
  (value) =>
    typeof value === "object" && value !== null && "role" in value
      ? { type: "message", ...value }
      : value,
  knownItem,
);

/** Tools of other types run at OpenAI, or hold functions that agents can do without. */
const tool = z.looseObject({
  type: nameText,
  name: nameText.optional(),
  description: z.string().nullish(),
  parameters: anyObject.nullish(),
  strict: z.boolean().nullish(),
});
const toolChoice = stringOr(
  z.enum(["none", "auto", "required"]),
  z.looseObject({ type: nameText, name: nameText.optional() }),
  "an object",
);
const reasoning = z.looseObject({
  effort: z.string().nullish(),
  summary: z.string().nullish(),
});
const format = z.looseObject({
  type: z.enum(["text", "json_object", "json_schema"]),
  name: nameText.optional(),
  schema: anyObject.optional(),
  strict: z.boolean().nullish(),
});
const requestSchema = nullable(z.looseObject({
  model,
  input: stringOr(z.string(), listOf(item, ITEMS_MAX), "an array"),
  instructions: z.string().optional(),
  max_output_tokens: integer(1).optional(),
  metadata: anyObject.optional(),
  parallel_tool_calls: z.boolean().default(true),
  previous_response_id: z.string().optional(),
  prompt_cache_key: z.string().optional(),
  reasoning: nullable(reasoning).optional(),
  stream: z.boolean().default(false),
  temperature: decimal(0, 2).optional(),
  text: nullable(z.looseObject({ format: nullable(format).optional() }))
    .optional(),
  tool_choice: toolChoice.default("auto"),
  tools: listOf(tool, TOOLS_MAX).optional(),
  top_p: decimal(0, 1).optional(),
}));

type Wire = z.output<typeof requestSchema>;

/** A request as the simulator runs it, and what its answer repeats. */
export interface ResponsesRequest {
  readonly chat: ChatRequest;
  readonly echo: object;
}

/** Reads a body. Throws an `ApiError` that names the first mistake. */
export function parseResponses(text: string): ResponsesRequest {
  const wire = checked(requestSchema, parseJsonBody(text));
  const { previous_response_id: previous } = wire;
  if (previous !== undefined) {
    const param = "previous_response_id";
    const message = "Previous response not found: the simulator stores none.";
    throw fieldError("invalid_value", param, message);
  }
  return { chat: chatOf(wire), echo: echoOf(wire) };
}

function chatOf(wire: Wire): ChatRequest {
  const { effort, summary } = wire.reasoning ?? {};
  const input = typeof wire.input === "string"
    ? [{ role: "user" as const, content: wire.input }]
    : messagesOf(wire.input);
  const instructions = wire.instructions === undefined
    ? []
    : [{ role: "system" as const, content: wire.instructions }];
  return withDefaults({
    model: wire.model,
    messages: [...instructions, ...input],
    max_tokens: wire.max_output_tokens,
    stream: wire.stream,
    include_usage: false,
    n: 1,
    temperature: wire.temperature,
    top_p: wire.top_p,
    enable_thinking: (effort ?? summary ?? "none") !== "none",
    tools: (wire.tools ?? []).flatMap(toolOf),
    tool_choice: choiceOf(wire.tool_choice),
    parallel_tool_calls: wire.parallel_tool_calls,
    response_format: formatOf(wire.text?.format),
  });
}

function toolOf(
  { type, name, description, parameters, strict }: z.output<typeof tool>,
): Tool[] {
  if (type !== "function" || name === undefined) return [];
  const described = {
    name,
    description: description ?? undefined,
    parameters: parameters ?? undefined,
    strict: strict ?? undefined,
  };
  return [{ type, function: described }];
}

function choiceOf(choice: Wire["tool_choice"]) {
  if (typeof choice === "string") return choice;
  return choice.name === undefined
    ? "auto"
    : { type: "function", function: { name: choice.name } };
}

function formatOf(textFormat: z.output<typeof format> | undefined) {
  const { type = "text", name = "", schema, strict } = textFormat ?? {};
  return type === "json_schema"
    ? {
      type,
      json_schema: { name, schema, strict: strict ?? undefined },
    }
    : { type };
}

/** Calls that follow each other are one turn of the assistant. */
function messagesOf(items: readonly Item[]): ChatMessage[] {
  const messages: ChatMessage[] = [];
  for (const { type, role, content = "", output = "", ...item } of items) {
    const { call_id = "", name = "", arguments: json = "" } = item;
    if (type === "message" && role !== undefined) {
      messages.push({ role, content: textOf(content) });
    } else if (type === "function_call") {
      const call = {
        id: call_id,
        type: "function",
        function: { name, arguments: json },
      };
      const last = messages.at(-1);
      if (last?.tool_calls !== undefined) last.tool_calls.push(call);
      else {
        messages.push({
          role: "assistant",
          content: null,
          tool_calls: [call],
        });
      }
    } else if (type === "function_call_output") {
      const content = textOf(output);
      messages.push({ role: "tool", tool_call_id: call_id, content });
    }
  }
  return messages;
}

function textOf(content: string | readonly Part[]): string {
  if (typeof content === "string") return content;
  return content.map(({ text = "" }) => text).join("\n");
}

/** The members of a request that OpenAI's answer repeats, with their defaults. */
function echoOf(wire: Wire): object {
  const { effort = null, summary = null } = wire.reasoning ?? {};
  return {
    instructions: wire.instructions ?? null,
    max_output_tokens: wire.max_output_tokens ?? null,
    metadata: wire.metadata ?? {},
    model: wire.model,
    parallel_tool_calls: wire.parallel_tool_calls,
    previous_response_id: null,
    ...wire.prompt_cache_key !== undefined &&
      { prompt_cache_key: wire.prompt_cache_key },
    reasoning: { effort, summary },
    store: false,
    temperature: wire.temperature ?? 1,
    text: { format: wire.text?.format ?? { type: "text" } },
    tool_choice: wire.tool_choice,
    tools: wire.tools ?? [],
    top_p: wire.top_p ?? 1,
    truncation: "disabled",
  };
}
