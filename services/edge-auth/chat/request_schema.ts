import * as z from "zod";
import { REQUEST_LIMITS as LIMITS } from "@gateway/shared/limits";
import type { ChatMessage, ContentPart } from "@gateway/shared/openai/chat";
import { isJsonObject } from "@gateway/shared/process/error_text";

/**
 * The body of `POST /v1/chat/completions` as it may arrive: every known field,
 * optional if it is optional at OpenAI, null meaning absent. Unknown members are
 * dropped silently, as SDKs expect. The order of the members is the order in which
 * OpenAI reports faults. An error text names what is expected if zod's issue does
 * not; `request_fault.ts` builds a sentence from it.
 */

/** Names end up in logs, headers and other people's terminals. */
const NO_CONTROLS = /^\P{Cc}*$/u;
const IDENTIFIER = /^[a-zA-Z0-9_-]+$/;
const INTEGER_MAX = Number.MAX_SAFE_INTEGER;
/** Marks the bounds of an integer, which zod does not distinguish from those of other numbers. */
export const INTEGER = "an integer";
/**
 * Joins the text parts of a message. Model servers that take only strings join them
 * with a line end, too, so the result is the same.
 */
const PART_SEPARATOR = "\n";

const plainText = z.string().regex(NO_CONTROLS, {
  error: "text without control characters",
});
const nameText = plainText.min(1);
/** A function or schema name by OpenAI's rule. */
const identifier = (charsMax: number) =>
  z.string().min(1).max(charsMax).regex(IDENTIFIER, {
    error: `a string that matches '${IDENTIFIER.source}'`,
  });
/** JSON's `1.0` is an integer too: JavaScript cannot tell the two apart. */
const integer = (min: number, max: number) =>
  z.int().min(min, { error: INTEGER }).max(max, { error: INTEGER });
const decimal = (min: number, max: number) => z.number().min(min).max(max);
/** A JSON Schema, whose content is not checked. */
const anyObject = z.record(z.string(), z.unknown());

/** Treats null members of an object as absent: SDKs of typed languages send them. */
function nullable<T extends z.ZodType>(schema: T) {
  return z.preprocess(withoutNulls, schema);
}

function withoutNulls(value: unknown): unknown {
  if (!isJsonObject(value) || !Object.values(value).includes(null)) {
    return value;
  }
  const given = Object.entries(value).filter(([, member]) => member !== null);
  return Object.fromEntries(given);
}

/**
 * An array whose check stops at the first fault. zod's own arrays collect every
 * fault: refusing a million wrong elements would cost seconds and a gigabyte.
 */
export function listOf<T extends z.ZodType>(
  element: T,
  { min = 0, max }: { min?: number; max: number },
): z.ZodType<z.output<T>[]> {
  return z.array(z.unknown())
    .min(min)
    .max(max)
    .transform((items, context) => {
      const checked: z.output<T>[] = [];
      for (const [index, item] of items.entries()) {
        const result = element.safeParse(item);
        if (!result.success) {
          const [issue] = result.error.issues;
          if (issue !== undefined) {
            const path = [index, ...issue.path];
            context.issues.push({ ...issue, path, input: undefined });
          }
          return z.NEVER;
        }
        checked.push(result.data);
      }
      return checked;
    });
}

const textPart = z.object({ type: z.literal("text"), text: z.string() });
/** A refusal in a message history counts as text. */
const refusalPart = z.object({
  type: z.literal("refusal"),
  refusal: z.string(),
})
  .transform(({ refusal }) => ({ type: "text" as const, text: refusal }));
const imagePart = z.object({
  type: z.literal("image_url"),
  image_url: nullable(z.object({
    // `file:` URLs would let a caller read the model server's files.
    url: z.string().min(1).regex(/^(https?:\/\/|data:image\/)/i, {
      error: "a URL that begins with 'https://', 'http://' or 'data:image/'",
    }),
    detail: z.enum(["auto", "low", "high"]).exactOptional(),
  })),
});

const CONTENT = { error: "a string or an array of objects" };
const parts = <T extends z.ZodType>(part: T) =>
  listOf(part, { max: LIMITS.contentPartsMax });
const textContent = z.union([
  z.string(),
  parts(z.discriminatedUnion("type", [textPart])),
], CONTENT);
const assistantContent = z.union([
  z.string(),
  parts(z.discriminatedUnion("type", [textPart, refusalPart])),
], CONTENT);
const userContent = z.union([
  z.string(),
  parts(z.discriminatedUnion("type", [textPart, imagePart])),
], CONTENT);

const toolCall = z.object({
  id: nameText,
  type: z.literal("function"),
  function: z.object({ name: nameText, arguments: z.string() }),
});

const name = plainText.exactOptional();
const wireMessage = z.discriminatedUnion("role", [
  z.object({
    role: z.enum(["system", "developer"]),
    content: textContent,
    name,
  }),
  z.object({ role: z.literal("user"), content: userContent, name }),
  z.object({
    role: z.literal("assistant"),
    content: assistantContent.exactOptional(),
    name,
    refusal: z.string().exactOptional(),
    reasoning_content: z.string().exactOptional(),
    tool_calls: listOf(toolCall, {
      min: 1,
      max: LIMITS.toolCallsPerMessageMax,
    }).exactOptional(),
  }).refine(
    // Only a tool call or a refusal may come without content.
    ({ content, tool_calls, refusal }) =>
      (content ?? tool_calls ?? refusal) !== undefined,
    { path: ["content"], ...CONTENT },
  ),
  z.object({
    role: z.literal("tool"),
    content: textContent,
    name,
    tool_call_id: nameText,
  }),
]);

/** Joins text parts and leaves out an empty name. */
function toMessage(
  { content, name, ...rest }: z.infer<typeof wireMessage>,
): ChatMessage {
  return {
    ...rest,
    ...(name === undefined || name === "" ? {} : { name }),
    content: typeof content === "object" ? joined(content) : content ?? null,
  };
}

/** One string if all parts are text. */
function joined(parts: ContentPart[]): string | ContentPart[] {
  const texts = parts.flatMap((part) => part.type === "text" ? part.text : []);
  return texts.length < parts.length ? parts : texts.join(PART_SEPARATOR);
}

const tool = z.object({
  type: z.literal("function"),
  function: nullable(z.object({
    name: identifier(LIMITS.toolNameCharsMax),
    description: z.string().exactOptional(),
    parameters: anyObject.exactOptional(),
    strict: z.boolean().exactOptional(),
  })),
});

const toolChoice = z.union([
  z.enum(["none", "auto", "required"]),
  z.object({
    type: z.literal("function"),
    function: z.object({ name: identifier(LIMITS.toolNameCharsMax) }),
  }),
], { error: "'none', 'auto', 'required' or an object" });

const responseFormat = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text") }),
  z.object({ type: z.literal("json_object") }),
  z.object({
    type: z.literal("json_schema"),
    json_schema: nullable(z.object({
      name: identifier(LIMITS.schemaNameCharsMax),
      description: z.string().exactOptional(),
      schema: anyObject.exactOptional(),
      strict: z.boolean().exactOptional(),
    })),
  }),
]);

const stopText = z.string().min(1).max(LIMITS.stopCharsMax);
const stop = z.union(
  [stopText, listOf(stopText, { max: LIMITS.stopMax })],
  { error: "a string or an array of strings" },
);
const penalty = decimal(LIMITS.penaltyMin, LIMITS.penaltyMax).exactOptional();
const messages = listOf(
  nullable(wireMessage).transform(toMessage),
  { min: 1, max: LIMITS.messagesMax },
);

const wireRequest = z.object({
  model: nameText.max(LIMITS.modelCharsMax),
  messages,
  tools: listOf(tool, { max: LIMITS.toolsMax }).exactOptional(),
  tool_choice: toolChoice.exactOptional(),
  parallel_tool_calls: z.boolean().exactOptional(),
  max_completion_tokens: integer(1, INTEGER_MAX).exactOptional(),
  max_tokens: integer(1, INTEGER_MAX).exactOptional(),
  n: integer(1, LIMITS.nMax).default(1),
  temperature: decimal(LIMITS.temperatureMin, LIMITS.temperatureMax)
    .exactOptional(),
  top_p: decimal(LIMITS.topPMin, LIMITS.topPMax).exactOptional(),
  presence_penalty: penalty,
  frequency_penalty: penalty,
  repetition_penalty: z.number().positive().exactOptional(),
  logprobs: z.boolean().exactOptional(),
  top_logprobs: integer(0, LIMITS.topLogprobsMax).exactOptional(),
  seed: integer(-INTEGER_MAX, INTEGER_MAX).exactOptional(),
  stop: stop.exactOptional(),
  response_format: responseFormat.exactOptional(),
  enable_thinking: z.boolean().exactOptional(),
  thinking_budget: integer(1, INTEGER_MAX).exactOptional(),
  stream: z.boolean().default(false),
  stream_options: nullable(
    z.object({ include_usage: z.boolean().exactOptional() }),
  ).exactOptional(),
});

/** Checks one body. The result has no nulls and no unknown members. */
export const wireRequestSchema = nullable(wireRequest);

/** A body of the right shape, before the rules between its parts are checked. */
export type WireRequest = z.infer<typeof wireRequest>;
