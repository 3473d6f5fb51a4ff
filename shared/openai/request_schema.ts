import * as z from "zod";
import { REQUEST_LIMITS } from "../limits.ts";
import {
  anyObject,
  decimal,
  flag,
  identifier,
  integer,
  listOf,
  nameText,
  optional,
  plainText,
  positiveDecimal,
  text,
} from "./fields.ts";

/**
 * The body of `POST /v1/chat/completions` as it may arrive: every field we know,
 * each of them optional where OpenAI has it optional, null meaning absent.
 * Members that are not named here are dropped without a word, as SDKs expect.
 * The order of the members is the order in which OpenAI reports faults.
 */

const LIMITS = REQUEST_LIMITS;
const INTEGER_MAX = Number.MAX_SAFE_INTEGER;
const STRING_OR_PARTS = "expected one of a string or array of objects";

const textPart = z.object({ type: z.literal("text"), text: text() });
const refusalPart = z.object({ type: z.literal("refusal"), refusal: text() });

/**
 * The schemes a model server may be sent to. `file:` and the like would let a
 * caller read what only the model server should see.
 */
const imageUrl = text().min(1).regex(/^(https?:\/\/|data:image\/)/i, {
  error: "expected a URL that begins with 'https://', 'http://' or " +
    "'data:image/'",
});

const imagePart = z.object({
  type: z.literal("image_url"),
  image_url: z.object({
    url: imageUrl,
    detail: optional(z.enum(["auto", "low", "high"])),
  }, { error: "expected an object" }),
});

function contentOf<T extends z.ZodType>(part: T) {
  const bounds = { of: "objects", max: LIMITS.contentPartsMax };
  // Absent and null pass here: OpenAI reports missing content after all else.
  return optional(
    z.union([text(), listOf(part, bounds)], { error: STRING_OR_PARTS }),
  );
}

function partsOf<
  T extends readonly [typeof textPart, ...z.core.$ZodTypeDiscriminable[]],
>(parts: T) {
  return z.discriminatedUnion("type", parts, { error: "expected an object" });
}

const toolCall = z.object({
  id: nameText(),
  type: z.literal("function"),
  function: z.object(
    { name: nameText(), arguments: text() },
    { error: "expected an object" },
  ),
}, { error: "expected an object" });

const systemMessage = z.object({
  role: z.enum(["system", "developer"]),
  content: contentOf(partsOf([textPart])),
  name: optional(plainText()),
});

const userMessage = z.object({
  role: z.literal("user"),
  content: contentOf(partsOf([textPart, imagePart])),
  name: optional(plainText()),
});

const assistantMessage = z.object({
  role: z.literal("assistant"),
  content: contentOf(partsOf([textPart, refusalPart])),
  name: optional(plainText()),
  refusal: optional(text()),
  reasoning_content: optional(text()),
  tool_calls: optional(listOf(toolCall, {
    of: "objects",
    min: 1,
    max: LIMITS.toolCallsPerMessageMax,
  })),
});

const toolMessage = z.object({
  role: z.literal("tool"),
  content: contentOf(partsOf([textPart])),
  name: optional(plainText()),
  tool_call_id: nameText(),
});

const message = z.discriminatedUnion(
  "role",
  [systemMessage, userMessage, assistantMessage, toolMessage],
  { error: "expected an object" },
);

const tool = z.object({
  type: z.literal("function"),
  function: z.object({
    name: identifier(LIMITS.toolNameCharsMax),
    description: optional(text()),
    parameters: optional(anyObject()),
    strict: optional(flag()),
  }, { error: "expected an object" }),
}, { error: "expected an object" });

const toolChoice = z.union([
  z.enum(["none", "auto", "required"]),
  z.object({
    type: z.literal("function"),
    function: z.object(
      { name: identifier(LIMITS.toolNameCharsMax) },
      { error: "expected an object" },
    ),
  }),
], { error: "expected one of 'none', 'auto', or 'required' or object" });

const responseFormat = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text") }),
  z.object({ type: z.literal("json_object") }),
  z.object({
    type: z.literal("json_schema"),
    json_schema: z.object({
      name: identifier(LIMITS.schemaNameCharsMax),
      description: optional(text()),
      schema: optional(anyObject()),
      strict: optional(flag()),
    }, { error: "expected an object" }),
  }),
], { error: "expected an object" });

const stopText = text().min(1).max(LIMITS.stopCharsMax);
const stop = z.union(
  [stopText, listOf(stopText, { of: "strings", max: LIMITS.stopMax })],
  { error: "expected one of a string or array of strings" },
);

const penalty = decimal(LIMITS.penaltyMin, LIMITS.penaltyMax);

const model = nameText().max(LIMITS.modelCharsMax);

/** Checks only the name of the model. */
export const wireModelSchema = z.object({ model });

/** Checks one body; see {@link WireRequest} for what comes out. */
export const wireRequestSchema = z.object({
  model,
  messages: listOf(message, {
    of: "objects",
    min: 1,
    max: LIMITS.messagesMax,
  }),
  tools: optional(listOf(tool, { of: "objects", max: LIMITS.toolsMax })),
  tool_choice: optional(toolChoice),
  parallel_tool_calls: optional(flag()),
  max_completion_tokens: optional(integer(1, INTEGER_MAX)),
  max_tokens: optional(integer(1, INTEGER_MAX)),
  n: optional(integer(1, LIMITS.nMax)),
  temperature: optional(decimal(LIMITS.temperatureMin, LIMITS.temperatureMax)),
  top_p: optional(decimal(LIMITS.topPMin, LIMITS.topPMax)),
  presence_penalty: optional(penalty),
  frequency_penalty: optional(penalty),
  repetition_penalty: optional(positiveDecimal()),
  logprobs: optional(flag()),
  top_logprobs: optional(integer(0, LIMITS.topLogprobsMax)),
  seed: optional(integer(-INTEGER_MAX, INTEGER_MAX)),
  stop: optional(stop),
  response_format: optional(responseFormat),
  enable_thinking: optional(flag()),
  thinking_budget: optional(integer(1, INTEGER_MAX)),
  stream: optional(flag()),
  stream_options: optional(
    z.object({ include_usage: optional(flag()) }, {
      error: "expected an object",
    }),
  ),
});

/** A body that has the right shape, before its parts are compared with one another. */
export type WireRequest = z.infer<typeof wireRequestSchema>;

/** One message of a {@link WireRequest}. */
export type WireMessage = WireRequest["messages"][number];

/** Names of the fields the gateway understands; a model's `pass_fields` may not repeat them. */
export const KNOWN_FIELDS: ReadonlySet<string> = new Set(
  Object.keys(wireRequestSchema.shape),
);
