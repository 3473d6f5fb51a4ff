/**
 * How model servers with OpenAI's chat completions differ in what they want to be
 * sent. A backend names its dialect, and may override single fields of it.
 */
import * as z from "zod";

/** In the words of `models.json`. `none`: the server has no such field, so it is not sent. */
const fields = z.object({
  max_tokens_field: z.enum(["max_tokens", "max_completion_tokens"])
    .describe("Under which name max_tokens is sent."),
  repetition_penalty_field: z.enum([
    "repetition_penalty",
    "repeat_penalty",
    "none",
  ]).describe("Under which name repetition_penalty is sent."),
  thinking_field: z.enum([
    "enable_thinking",
    "chat_template_kwargs",
    "reasoning_effort",
    "none",
  ]).describe(
    "Where enable_thinking is sent: as it is, in chat_template_kwargs, or as reasoning_effort, medium or none.",
  ),
  thinking_budget_field: z.enum([
    "thinking_budget",
    "chat_template_kwargs",
    "none",
  ]).describe(
    "Where thinking_budget is sent: as it is, or in chat_template_kwargs.",
  ),
  developer_role: z.boolean()
    .describe(
      "The server knows the role developer; else it is sent as system.",
    ),
  choices_per_request: z.enum(["many", "one"]).describe(
    "one: n is not sent; the server is asked n times at once, and each time is paid for.",
  ),
  stream_usage: z.boolean().describe(
    "The server takes stream_options.include_usage; else usage is estimated from the text.",
  ),
});

/** What one server wants. */
export type Dialect = z.infer<typeof fields>;

/** Names in this gateway's own API: those of the service specification. */
const DASHSCOPE: Dialect = {
  max_tokens_field: "max_tokens",
  repetition_penalty_field: "repetition_penalty",
  thinking_field: "enable_thinking",
  thinking_budget_field: "thinking_budget",
  developer_role: false,
  choices_per_request: "many",
  stream_usage: true,
};
/** Thinking is an argument of the chat template. */
const VLLM: Dialect = {
  ...DASHSCOPE,
  thinking_field: "chat_template_kwargs",
  thinking_budget_field: "chat_template_kwargs",
};

/** The dialects of servers in use. Source: their documentation, November 2026. */
export const DIALECTS = {
  dashscope: DASHSCOPE,
  vllm: VLLM,
  sglang: VLLM,
  "llama.cpp": {
    ...VLLM,
    repetition_penalty_field: "repeat_penalty",
    thinking_budget_field: "none",
    choices_per_request: "one",
  },
  ollama: {
    ...DASHSCOPE,
    repetition_penalty_field: "none",
    thinking_field: "reasoning_effort",
    thinking_budget_field: "none",
    choices_per_request: "one",
  },
  // It refuses fields that it does not know; its reasoning models refuse max_tokens.
  openai: {
    ...DASHSCOPE,
    max_tokens_field: "max_completion_tokens",
    repetition_penalty_field: "none",
    thinking_field: "none",
    thinking_budget_field: "none",
    developer_role: true,
  },
} as const satisfies { [name: string]: Dialect };

export type DialectName = keyof typeof DIALECTS;

export const DIALECT_NAMES = [
  "dashscope",
  "vllm",
  "sglang",
  "llama.cpp",
  "ollama",
  "openai",
] as const satisfies readonly DialectName[];

/** What is spoken to a server of which nothing is said. */
export const DIALECT_DEFAULT: DialectName = "dashscope";

/** The members of a backend that choose its dialect. */
export const dialectMembers = {
  dialect: z.enum(DIALECT_NAMES).default(DIALECT_DEFAULT).describe(
    "What the server wants to be sent; the fields below override it one by one.",
  ),
  ...fields.partial().shape,
};

/** The dialect that these members of a backend mean. */
export function dialectOf(members: { dialect: DialectName }): Dialect {
  return fields.parse({ ...DIALECTS[members.dialect], ...members });
}
