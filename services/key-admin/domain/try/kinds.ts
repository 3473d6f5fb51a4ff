/** The forms of the page "Try it": the fields of each kind of models. */
import type { ModelKind } from "@gateway/shared/models/kinds";
import { speechFormat } from "@gateway/shared/openai/media";
import { guardJson } from "@gateway/shared/openai/json_body";
import { errorMessage } from "@gateway/shared/process/env";
import { isJsonObject } from "@gateway/shared/process/error_text";
import type { TryRequest } from "./chat_forms.ts";
import { TRY_LIMITS } from "./key.ts";

/** The texts of a filled-in form of the page "Try it", by field. */
export type TryValues = Readonly<Record<string, string>>;

/** Reads a text that is not blank. Throws what is wrong with it. */
type Read = (text: string) => unknown;

/** A field of the form of "Try it", and how its text becomes part of a request. */
export interface TryField {
  /** Its name in the form and in the request. */
  name: string;
  label: string;
  /** Attributes of its input. */
  input?: object;
  /** How its text is read; by default it is used as it is. */
  read?: Read;
}

/** Fields in a row. */
interface Group {
  /** A group with a title is folded until it is used. */
  title?: string;
  fields: readonly TryField[];
}

/** A kind of models, as the page "Try it" knows it. */
export interface Kind {
  path: string;
  /** The values of a new form. */
  example: TryValues;
  /** The fields below the model. */
  fields: readonly Group[];
  /** Messages about fields that must not be blank. */
  needed?: TryValues;
  /** Turns the fields into the request, where they are not the request already. */
  toRequest?: (read: TryRequest, errors: Map<string, string>) => TryRequest;
  /** Whether the form has a file, `file`. */
  isUpload?: boolean;
  /** Fields that make the answer a stream. */
  streamed?: TryRequest;
  /** Facts about an answer, and their labels. */
  facts?: TryValues;
}

/** The API checks the bounds of numbers, as for any caller. */
const NUMBER = { type: "number", step: "any", placeholder: "Default" };
const number = (name: string, label: string): TryField => ({
  name,
  label,
  input: NUMBER,
  read: numberOf,
});

/** A field for JSON, which shows an example while it is empty. */
const json = (
  field: { name: string; label: string; read: Read; example: string },
): TryField => ({
  name: field.name,
  label: field.label,
  input: { rows: 5, spellcheck: false, placeholder: field.example },
  read: field.read,
});

/** Examples that empty fields show. */
const TOOLS = `[{"type": "function", "function": {"name": "get_weather",
"parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]`;
const SCHEMA = `{"type": "object", "properties": {"city": {"type": "string"}},
"required": ["city"], "additionalProperties": false}`;
const HISTORY = `[{"role": "user", "content": "Hello"},
{"role": "assistant", "content": "Hi!"}]`;
const MORE = `{"stop": ["END"], "tool_choice": "required"}`;
const THINKING = [["", "Default"], ["on", "On"], ["off", "Off"]];
const CHAT_ENDPOINTS = [
  ["", "Chat completions"],
  ["responses", "Responses"],
  ["messages", "Messages (Anthropic)"],
];
const FORMATS = speechFormat.options.map((name) => [name, name]);
const RECORDING = {
  type: "file",
  accept: "audio/*,video/*",
  help: `At most ${TRY_LIMITS.heldBytes / 2 ** 20} MiB.`,
};
const VIDEO_HELP = "Stop only ends the wait: the video is still made.";

const TOKENS = { input: "Input tokens", output: "Output tokens" };
const KINDS = {
  chat: {
    path: "/chat/completions",
    example: { message: "Say hello in three languages." },
    fields: [
      {
        fields: [{
          name: "system",
          label: "System prompt",
          input: { rows: 2 },
        }],
      },
      { fields: [{ name: "message", label: "Message", input: { rows: 4 } }] },
      {
        fields: [{
          name: "endpoint",
          label: "Sent as",
          input: { options: CHAT_ENDPOINTS },
        }],
      },
      {
        title: "Parameters",
        fields: [
          number("temperature", "Temperature"),
          number("top_p", "Top p"),
          number("max_tokens", "Max tokens"),
          number("seed", "Seed"),
          {
            name: "thinking",
            label: "Thinking",
            input: { options: THINKING },
          },
        ],
      },
      {
        title: "Tools",
        fields: [json({
          name: "tools",
          label: "Tools (JSON)",
          read: listOf,
          example: TOOLS,
        })],
      },
      {
        title: "Structured answer",
        fields: [json({
          name: "schema",
          label: "JSON schema of the answer",
          read: objectOf,
          example: SCHEMA,
        })],
      },
      {
        title: "Earlier messages",
        fields: [json({
          name: "history",
          label: "Earlier messages (JSON)",
          read: listOf,
          example: HISTORY,
        })],
      },
      {
        title: "Other fields",
        fields: [json({
          name: "more",
          label: "Other fields of the request (JSON)",
          read: moreOf,
          example: MORE,
        })],
      },
    ],
    toRequest: chatRequest,
    streamed: { stream: true, stream_options: { include_usage: true } },
    facts: {
      finish: "Finish reason",
      ...TOKENS,
      first: "First token after",
    },
  },
  embedding: {
    path: "/embeddings",
    example: { input: "A lighthouse by the sea", other: "A harbour at dusk" },
    fields: [
      { fields: [{ name: "input", label: "Text", input: { rows: 3 } }] },
      {
        fields: [{
          name: "other",
          label: "Text to compare with",
          input: { rows: 3 },
        }],
      },
      { fields: [number("dimensions", "Dimensions")] },
    ],
    needed: { input: "Write a text" },
    toRequest: embeddingRequest,
    facts: {
      numbers: "Dimensions",
      cosine: "Cosine of both texts",
      input: TOKENS.input,
    },
  },
  image: {
    path: "/images/generations",
    example: { prompt: "A lighthouse at dusk, in watercolours" },
    fields: [
      { fields: [{ name: "prompt", label: "Prompt", input: { rows: 4 } }] },
      {
        fields: [
          {
            name: "size",
            label: "Size",
            input: { placeholder: "1024x1024" },
          },
          number("n", "Images"),
        ],
      },
    ],
    needed: { prompt: "Say what to draw" },
    facts: TOKENS,
  },
  speech: {
    path: "/audio/speech",
    example: { input: "Good morning. How are you?", voice: "alloy" },
    fields: [
      { fields: [{ name: "input", label: "Text", input: { rows: 4 } }] },
      {
        fields: [
          { name: "voice", label: "Voice" },
          {
            name: "response_format",
            label: "Format",
            input: { options: FORMATS },
          },
          number("speed", "Speed"),
        ],
      },
    ],
    needed: { input: "Write what to say", voice: "Name a voice of the model" },
  },
  transcription: {
    path: "/audio/transcriptions",
    isUpload: true,
    example: {},
    fields: [
      { fields: [{ name: "file", label: "Recording", input: RECORDING }] },
      {
        fields: [{
          name: "language",
          label: "Language",
          input: { placeholder: "Such as en" },
        }],
      },
    ],
    needed: { file: "Choose a recording" },
    toRequest: (read) => ({ file: "recording.mp3", ...read }),
  },
  video: {
    path: "/videos",
    example: { prompt: "A lighthouse at dusk, its beam sweeping the sea" },
    fields: [
      {
        fields: [{
          name: "prompt",
          label: "Prompt",
          input: { rows: 4, help: VIDEO_HELP },
        }],
      },
      {
        fields: [
          { name: "seconds", label: "Seconds", input: { placeholder: "4" } },
          { name: "size", label: "Size", input: { placeholder: "1280x720" } },
        ],
      },
    ],
    needed: { prompt: "Say what to show" },
  },
} satisfies { [kind in ModelKind]?: Kind };

/** The name of a kind of models that can be tried. */
export type TryKind = keyof typeof KINDS;
/** The kinds of models that can be tried, by their names. */
export const TRY_KINDS: Readonly<Record<TryKind, Kind>> = KINDS;

function numberOf(text: string): number {
  const number = Number(text);
  if (!Number.isFinite(number)) throw new Error("This is not a number");
  return number;
}

function jsonOf(text: string): unknown {
  // Code samples indent each level: thousands of levels would take gigabytes.
  guardJson(text);
  try {
    return JSON.parse(text);
  } catch (cause) {
    const reason = errorMessage(cause).replace(/ is not valid JSON$/, "");
    throw new Error(`This is not valid JSON. ${reason}`, { cause });
  }
}

function listOf(text: string): unknown[] {
  const value = jsonOf(text);
  if (!Array.isArray(value)) throw new Error("This must be a JSON array");
  return value;
}

function objectOf(text: string): object {
  const value = jsonOf(text);
  if (!isJsonObject(value)) throw new Error("This must be a JSON object");
  return value;
}

/**
 * Further fields of the request, but none that the page sets itself, or of which it
 * shows only one.
 */
function moreOf(text: string): object {
  const more = objectOf(text);
  const own = ["model", "messages", "stream", "stream_options", "n"]
    .find((name) => Object.hasOwn(more, name));
  if (own === undefined) return more;
  throw new Error(`The page sets '${own}' itself. Leave it out here`);
}

/** Returns the request of a chat, with the messages of the form. */
export function chatRequest(
  {
    system,
    history,
    message,
    thinking,
    schema,
    more,
    endpoint: _,
    ...others
  }: TryRequest,
  errors: Map<string, string>,
): TryRequest {
  const says = (role: "system" | "user", content: unknown) =>
    content === undefined ? [] : [{ role, content }];
  if (message === undefined && history === undefined) {
    errors.set("message", "Write a message");
  }
  return {
    messages: [
      ...says("system", system),
      ...Array.isArray(history) ? history : [],
      ...says("user", message),
    ],
    ...others,
    ...thinking !== undefined && { enable_thinking: thinking === "on" },
    ...schema !== undefined && {
      response_format: {
        type: "json_schema",
        json_schema: { name: "answer", schema, strict: true },
      },
    },
    ...isJsonObject(more) && more,
  };
}

/** One text, or two to compare. */
function embeddingRequest(
  { input, other, ...rest }: TryRequest,
): TryRequest {
  return { input: other === undefined ? input : [input, other], ...rest };
}
