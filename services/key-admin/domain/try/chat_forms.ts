/** A chat of the page "Try it" in the forms of its other endpoints. */
import { isJsonObject } from "@gateway/shared/process/error_text";

/**
 * A request to the API as JSON. In that of an upload, `file` is the name of the file.
 */
export type TryRequest = Readonly<Record<string, unknown>>;

/** Writes a chat request in another form, and notes what that form lacks. */
type Rewrite = (request: TryRequest, errors: Map<string, string>) => TryRequest;

/** Anthropic's form needs a bound. */
const OUTPUT_TOKENS = 4_096;
const THINKING_TOKENS = 1_024;

/** The other endpoints of a chat, by their names, which are their paths. */
export const CHAT_FORMS = {
  responses: toResponses,
  messages: toMessages,
} satisfies Record<string, Rewrite>;

/** The name of such an endpoint. */
export type ChatForm = keyof typeof CHAT_FORMS;

/** Whether a chat can be sent to this endpoint. */
export const isChatForm = (name: string): name is ChatForm =>
  Object.hasOwn(CHAT_FORMS, name);

/** OpenAI's newer form. */
function toResponses(
  { messages, max_tokens, tools, ...request }: TryRequest,
  errors: Map<string, string>,
): TryRequest {
  const { enable_thinking, response_format, seed, ...others } = request;
  refuseSeed(seed, errors);
  const format = schemaOf(response_format);
  return {
    input: messages,
    ...others,
    ...max_tokens !== undefined && { max_output_tokens: max_tokens },
    ...Array.isArray(tools) && {
      tools: functionsOf(tools, (tool) => ({ type: "function", ...tool })),
    },
    ...enable_thinking !== undefined && {
      reasoning: { effort: enable_thinking === true ? "medium" : "none" },
    },
    ...format && { text: { format: { type: "json_schema", ...format } } },
  };
}

/** Anthropic's form. */
function toMessages(
  { messages, max_tokens = OUTPUT_TOKENS, tools, ...request }: TryRequest,
  errors: Map<string, string>,
): TryRequest {
  const { enable_thinking, response_format, seed, ...others } = request;
  refuseSeed(seed, errors);
  const all: unknown[] = Array.isArray(messages) ? messages : [];
  const isSystem = (message: unknown) =>
    isJsonObject(message) && message.role === "system";
  const [system] = all.filter(isSystem);
  const schema = schemaOf(response_format)?.schema;
  return {
    max_tokens,
    ...isJsonObject(system) && { system: system.content },
    messages: all.filter((message) => !isSystem(message)),
    ...others,
    ...Array.isArray(tools) && {
      tools: functionsOf(tools, ({ parameters, strict: _, ...tool }) => ({
        ...tool,
        input_schema: parameters ?? { type: "object" },
      })),
    },
    ...enable_thinking !== undefined && {
      thinking: enable_thinking === true
        ? { type: "enabled", budget_tokens: THINKING_TOKENS }
        : { type: "disabled" },
    },
    ...schema !== undefined && {
      output_config: { format: { type: "json_schema", schema } },
    },
  };
}

function refuseSeed(seed: unknown, errors: Map<string, string>): void {
  if (seed !== undefined) errors.set("seed", "Only chat completions have this");
}

/** The functions among tools, rewritten; other tools stay as they are. */
function functionsOf(
  tools: readonly unknown[],
  rewrite: (tool: { [name: string]: unknown }) => object,
): unknown[] {
  return tools.map((tool) =>
    isJsonObject(tool) && isJsonObject(tool.function)
      ? rewrite(tool.function)
      : tool
  );
}

function schemaOf(format: unknown): { [name: string]: unknown } | undefined {
  const schema = isJsonObject(format) ? format.json_schema : undefined;
  return isJsonObject(schema) ? schema : undefined;
}
