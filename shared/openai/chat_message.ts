/**
 * The messages of a chat completion request: what the gateway looks at in them, and the
 * form that travels inside it. Members and parts that it does not know stay.
 */
import { z } from "zod";
import { REQUEST_LIMITS as LIMITS } from "../limits.ts";
import { isJsonObject } from "../process/error_text.ts";
import {
  listOf,
  nameText,
  nullable,
  openUnion,
  plainText,
  readAs,
  stringOr,
} from "./fields.ts";

/** Model servers that take only strings join the parts with a line end, too. */
const PART_SEPARATOR = "\n";

const textPart = z.looseObject({ type: z.literal("text"), text: z.string() })
  .meta({ id: "TextPart" });
/** A refusal in a message history counts as text. */
const refusalPart = z.looseObject({
  type: z.literal("refusal"),
  refusal: z.string(),
}).meta({ id: "RefusalPart" }).transform(({ refusal, ...rest }) => ({
  ...rest,
  type: "text" as const,
  text: refusal,
}));

/**
 * Where a medium is: `data:` URLs, and addresses that the model server would fetch.
 * `file:` URLs would let a caller read the server's files.
 */
const mediaUrl = (kind: string) =>
  z.looseObject({
    url: z.string().min(1).regex(
      new RegExp(`^(?i:https?:\\/\\/|data:${kind}\\/)`),
      {
        error:
          `a URL that begins with 'https://', 'http://' or 'data:${kind}/'`,
      },
    ),
  });
const imagePart = z.looseObject({
  type: z.literal("image_url"),
  image_url: nullable(mediaUrl("image")),
}).meta({ id: "ImagePart", description: "For models that accept images." });
const audioPart = z.looseObject({
  type: z.literal("input_audio"),
  input_audio: nullable(z.looseObject({
    data: z.string().min(1).describe("Base64."),
  })),
}).meta({ id: "AudioPart", description: "For models that accept audio." });
const audioUrlPart = z.looseObject({
  type: z.literal("audio_url"),
  audio_url: nullable(mediaUrl("audio")),
}).meta({ id: "AudioUrlPart", description: "For models that accept audio." });
const videoPart = z.looseObject({
  type: z.literal("video_url"),
  video_url: nullable(mediaUrl("video")),
}).meta({ id: "VideoPart", description: "For models that accept videos." });
const filePart = z.looseObject({
  type: z.literal("file"),
  file: nullable(z.looseObject({
    file_data: z.string().optional()
      .describe("A `data:` URL or base64."),
  })),
}).meta({ id: "FilePart", description: "For models that accept files." });

/** One part of a message whose content is an array, of any type. */
export interface ContentPart {
  type: string;
  text?: string;
  [member: string]: unknown;
}

const PARTS = {
  text: textPart,
  refusal: refusalPart,
  image_url: imagePart,
  input_audio: audioPart,
  audio_url: audioUrlPart,
  video_url: videoPart,
  file: filePart,
};
const content = stringOr(
  z.string(),
  listOf(openUnion<ContentPart>(PARTS), LIMITS.contentPartsMax),
  "an array",
);

/** A call of a tool in a message, whose answer is a `tool` message with its `id`. */
export const toolCall = z.looseObject({
  // Some servers give their calls no id, and histories repeat them.
  id: plainText.optional(),
  type: z.literal("function"),
  function: z.looseObject({
    name: nameText,
    arguments: z.string().describe("JSON as text, never an object."),
  }),
}).meta({ id: "ToolCall" });

/** A call of a function whose type is not stated: Mistral's clients leave it out. */
function withType(call: unknown): unknown {
  const isFunction = isJsonObject(call) && isJsonObject(call.function);
  if (!isFunction || (call.type ?? null) !== null) return call;
  return { ...call, type: "function" };
}

/** A call of a tool, as the model made it. */
export interface ToolCall {
  id?: string | undefined;
  type: string;
  function?: { name: string; arguments: string; [member: string]: unknown };
  [member: string]: unknown;
}

const name = plainText.optional();
/** The schema of a message, before {@link toMessage}. */
export const wireMessage = z.discriminatedUnion("role", [
  z.looseObject({ role: z.enum(["system", "developer"]), content, name })
    .meta({ id: "SystemMessage" }),
  z.looseObject({ role: z.literal("user"), content, name })
    .meta({ id: "UserMessage" }),
  z.looseObject({
    role: z.literal("assistant"),
    content: content.optional(),
    name,
    refusal: z.string().optional(),
    reasoning_content: z.string().optional(),
    tool_calls: listOf(
      readAs(openUnion<ToolCall>({ function: toolCall }), withType),
      LIMITS.toolCallsPerMessageMax,
    ).optional(),
  }).meta({ id: "AssistantMessage" }),
  z.looseObject({
    role: z.literal("tool"),
    content: content.optional(),
    name,
    tool_call_id: plainText,
  }).meta({
    id: "ToolMessage",
    description: "The result of a call in the assistant message before it.",
  }),
  z.looseObject({
    role: z.literal("function"),
    content: content.optional(),
    name: plainText,
  }).meta({
    id: "FunctionMessage",
    description: "The result of a call in the form before tools.",
  }),
]);

/** One message of the conversation, in the one form that travels inside the gateway. */
export interface ChatMessage {
  role: z.infer<typeof wireMessage>["role"];
  /** Null only in an assistant message. */
  content: string | ContentPart[] | null;
  name?: string;
  /** Never empty. */
  tool_calls?: ToolCall[] | undefined;
  tool_call_id?: string;
  refusal?: string | undefined;
  reasoning_content?: string | undefined;
  [member: string]: unknown;
}

/** Joins plain text parts, and leaves out an empty name and an empty list of calls. */
export function toMessage(
  { content, name, ...rest }: z.infer<typeof wireMessage>,
): ChatMessage {
  const message: ChatMessage = { ...rest, content: null };
  if (name !== undefined && name !== "") message.name = name;
  if (message.tool_calls?.length === 0) delete message.tool_calls;
  if (typeof content === "object") message.content = joined(content);
  else message.content = content ?? (rest.role === "assistant" ? null : "");
  return message;
}

/** Parts that have only text become one string, which every server takes. */
function joined(parts: ContentPart[]): string | ContentPart[] {
  const texts: string[] = [];
  for (const part of parts) {
    const isPlain = part.type === "text" && part.text !== undefined &&
      Object.keys(part).length === 2;
    if (!isPlain) return parts;
    texts.push(part.text ?? "");
  }
  return texts.join(PART_SEPARATOR);
}
