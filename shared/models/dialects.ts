/**
 * Differences between the requests that model servers accept. A backend names its
 * dialect and may override parts of it.
 */
import { z } from "zod";
import { keysOf } from "../process/env.ts";

/** What a server can be asked for: the endpoints of this API, by their names. */
export const SERVER_ABILITIES = [
  "chat",
  "messages",
  "count_tokens",
  "responses",
  "input_tokens",
  "compact",
  "completions",
  "embeddings",
  "rerank",
] as const;

/** A member of {@link SERVER_ABILITIES}. */
export type ServerAbility = typeof SERVER_ABILITIES[number];

/**
 * The members in `models.json`. `none`: the server has no such field, so it is not
 * sent.
 */
const fields = z.object({
  max_tokens_field: z.enum(["max_tokens", "max_completion_tokens"])
    .describe("The name under which max_tokens is sent."),
  repetition_penalty_field: z.enum([
    "repetition_penalty",
    "repeat_penalty",
    "none",
  ]).describe("The name under which repetition_penalty is sent."),
  thinking_field: z.enum([
    "enable_thinking",
    "chat_template_kwargs",
    "reasoning_effort",
    "none",
  ]).describe(
    "How enable_thinking is sent: unchanged, in chat_template_kwargs, or as reasoning_effort (medium or none).",
  ),
  thinking_budget_field: z.enum([
    "thinking_budget",
    "chat_template_kwargs",
    "none",
  ]).describe(
    "How thinking_budget is sent: unchanged, or in chat_template_kwargs.",
  ),
  developer_role: z.boolean()
    .describe(
      "Whether the server supports the role developer; if not, it is sent as system.",
    ),
  reasoning_field: z.enum(["reasoning_content", "reasoning", "as_sent"])
    .describe(
      "The name under which the reasoning of earlier answers is sent, whatever the client calls it.",
    ),
  tool_media: z.enum(["tool", "user"]).describe(
    "Where images and other media in results of tools are sent: in their message, or in a message of the user after the last result.",
  ),
  choices_per_request: z.enum(["many", "one"]).describe(
    "one: n is not sent; the server gets n requests in parallel, each with its own prompt tokens.",
  ),
  stream_usage: z.boolean().describe(
    "Whether the server supports stream_options.include_usage; if not, usage is estimated from the text.",
  ),
  key_header: z.enum(["authorization", "x-api-key"]).describe(
    "The header with the API key; authorization: as a bearer token.",
  ),
  speaks: z.array(z.enum(SERVER_ABILITIES)).min(1).describe(
    "The endpoints that the server has: requests for others go to other backends, or are refused.",
  ),
});

/** How requests for one server are written. */
export type Dialect = z.infer<typeof fields>;

/**
 * The names of the service specification, which are those of this gateway's own API.
 */
const DASHSCOPE: Dialect = {
  max_tokens_field: "max_tokens",
  repetition_penalty_field: "repetition_penalty",
  thinking_field: "enable_thinking",
  thinking_budget_field: "thinking_budget",
  developer_role: false,
  reasoning_field: "reasoning_content",
  tool_media: "tool",
  choices_per_request: "many",
  stream_usage: true,
  key_header: "authorization",
  speaks: ["chat", "completions", "embeddings", "rerank"],
};
/** What servers have that speak the dialects of agents, too. */
const OF_AGENTS: ServerAbility[] = [
  "chat",
  "messages",
  "responses",
  "completions",
  "embeddings",
];
/** Thinking is an argument of the chat template. */
const VLLM: Dialect = {
  ...DASHSCOPE,
  thinking_field: "chat_template_kwargs",
  thinking_budget_field: "chat_template_kwargs",
  speaks: [...OF_AGENTS, "count_tokens", "rerank"],
};

/**
 * The dialects of servers in use, in the order of docs/models.md. Source: their
 * documentation, November 2026.
 */
export const DIALECTS = {
  dashscope: DASHSCOPE,
  // Called reasoning_content before 0.11.2.
  vllm: { ...VLLM, reasoning_field: "reasoning" },
  sglang: VLLM,
  "llama.cpp": {
    ...VLLM,
    repetition_penalty_field: "repeat_penalty",
    thinking_budget_field: "none",
    choices_per_request: "one",
    speaks: [...OF_AGENTS, "count_tokens", "input_tokens", "rerank"],
  },
  ollama: {
    ...DASHSCOPE,
    repetition_penalty_field: "none",
    thinking_field: "reasoning_effort",
    thinking_budget_field: "none",
    reasoning_field: "reasoning",
    choices_per_request: "one",
    speaks: OF_AGENTS,
  },
  // Answers 200 to paths that it does not have, so count_tokens is left out.
  lmstudio: {
    ...DASHSCOPE,
    repetition_penalty_field: "repeat_penalty",
    thinking_field: "none",
    thinking_budget_field: "none",
    choices_per_request: "one",
    speaks: OF_AGENTS,
  },
  // OpenAI refuses unknown fields; its reasoning models refuse max_tokens. Its results
  // of tools have only texts.
  openai: {
    ...DASHSCOPE,
    max_tokens_field: "max_completion_tokens",
    repetition_penalty_field: "none",
    thinking_field: "none",
    thinking_budget_field: "none",
    developer_role: true,
    reasoning_field: "as_sent",
    tool_media: "user",
    speaks: [
      "chat",
      "responses",
      "input_tokens",
      "compact",
      "completions",
      "embeddings",
    ],
  },
  // Its chat completions are a translation of its own, and not for production.
  anthropic: {
    ...DASHSCOPE,
    thinking_field: "none",
    thinking_budget_field: "none",
    repetition_penalty_field: "none",
    key_header: "x-api-key",
    speaks: ["messages", "count_tokens"],
  },
} satisfies { [name: string]: Dialect };

/** The name of a dialect in `models.json`. */
export type DialectName = keyof typeof DIALECTS;

/** The names of all dialects, in the order of docs/models.md. */
export const DIALECT_NAMES = keysOf(DIALECTS);

/** The dialect of a backend that names none. */
export const DIALECT_DEFAULT: DialectName = "dashscope";

/** The members of a backend in `models.json` that choose or change its dialect. */
export const dialectMembers = {
  dialect: z.enum(DIALECT_NAMES).optional()
    .meta({ default: DIALECT_DEFAULT }).describe(
      "The request format of the server; the members below override it one by one.",
    ),
  ...fields.partial().shape,
};

/** The dialect of a backend: the one that it names, with what it changes of it. */
export const dialectOf = (
  members: { dialect?: DialectName | undefined },
): Dialect =>
  fields.parse({ ...DIALECTS[members.dialect ?? DIALECT_DEFAULT], ...members });
