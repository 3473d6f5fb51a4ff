import type { KeyRecord } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import { SCOPE_OF_KIND } from "@gateway/shared/models/kinds";
import { isJsonObject } from "@gateway/shared/process/error_text";

/** The texts of a filled-in form of the page "Try it", by field. */
export type TryValues = Readonly<Record<string, string>>;

/** A request to the API as JSON. Of an upload, `file` is the name of the file. */
export type TryRequest = Readonly<Record<string, unknown>>;

/** What the page "Try it" knows of a kind of models. */
interface Kind {
  /** The endpoint. */
  path: string;
  /** What a new form says. */
  example: TryValues;
  /** Reads the fields of a form into those of the request. */
  read: (form: Form) => TryRequest;
  /** The form has a file, `file`. */
  isUpload?: boolean;
  /** What makes the answer a stream. */
  streamed?: TryRequest;
  /** Facts about an answer, and their labels. */
  facts?: Readonly<Record<string, string>>;
}

const TOKENS = { input: "Input tokens", output: "Output tokens" };
const KINDS = {
  chat: {
    path: "/chat/completions",
    example: { message: "Say hello in three languages." },
    read: readChat,
    streamed: { stream: true, stream_options: { include_usage: true } },
    facts: {
      finish: "Finish reason",
      ...TOKENS,
      first: "First token after",
    },
  },
  image: {
    path: "/images/generations",
    example: { prompt: "A lighthouse at dusk, in watercolours" },
    read: ({ need, texts, numbers }) => ({
      ...need("prompt", "Say what to draw"),
      ...texts("size"),
      ...numbers("n"),
    }),
    facts: TOKENS,
  },
  speech: {
    path: "/audio/speech",
    example: { input: "Good morning. How are you?", voice: "alloy" },
    read: ({ need, texts, numbers }) => ({
      ...need("input", "Write what to say"),
      ...need("voice", "Name a voice of the model"),
      ...texts("response_format"),
      ...numbers("speed"),
    }),
  },
  transcription: {
    path: "/audio/transcriptions",
    isUpload: true,
    example: {},
    read: ({ need, texts }) => ({
      file: "recording.mp3",
      ...need("file", "Choose a recording"),
      ...texts("language"),
    }),
  },
  video: {
    path: "/videos",
    example: { prompt: "A lighthouse at dusk, its beam sweeping the sea" },
    read: ({ need, texts }) => ({
      ...need("prompt", "Say what to show"),
      ...texts("seconds", "size"),
    }),
  },
} satisfies { [kind in keyof typeof SCOPE_OF_KIND]?: Kind };
export type TryKind = keyof typeof KINDS;
export const TRY_KINDS: Readonly<Record<TryKind, Kind>> = KINDS;

export const isTryKind = (kind: string): kind is TryKind =>
  Object.hasOwn(TRY_KINDS, kind);

/** The first model that a key may use, with a request for it; null if there is none. */
export function exampleFor(
  catalog: Catalog,
  { scopes, models }: Pick<KeyRecord, "scopes" | "models">,
): { kind: TryKind; request: TryRequest } | null {
  for (const { id, kind } of catalog.values()) {
    const isNamed = models.length === 0 || models.includes(id);
    if (!isNamed || !isTryKind(kind)) continue;
    if (!scopes.includes(SCOPE_OF_KIND[kind])) continue;
    const values = { model: id, ...TRY_KINDS[kind].example };
    return { kind, request: tryRequest(kind, values).request };
  }
  return null;
}

/**
 * The request of a filled-in form, and its mistakes by field. Only what
 * cannot be sent is a mistake here: the API itself checks the rest, as for any caller.
 */
export function tryRequest(
  kind: TryKind,
  values: TryValues,
): { request: TryRequest; errors: ReadonlyMap<string, string> } {
  const form = formOf(values);
  const request = { model: form.text("model"), ...TRY_KINDS[kind].read(form) };
  return { request, errors: form.errors };
}

/** Reads the fields of a form and collects their mistakes. */
function formOf(values: TryValues) {
  const errors = new Map<string, string>();
  const text = (name: string) => values[name] ?? "";
  const texts = (...names: string[]): Record<string, string> =>
    Object.fromEntries(
      names.filter((name) => text(name).trim() !== "")
        .map((name) => [name, text(name)]),
    );
  const json = (name: string): unknown => {
    try {
      return text(name).trim() === "" ? undefined : JSON.parse(text(name));
    } catch (error) {
      const reason = String(error).replace(/^\w+: | is not valid JSON$/g, "");
      errors.set(name, `This is not valid JSON. ${reason}`);
      return undefined;
    }
  };
  return {
    ...{ errors, text },
    /** Those of these fields that are not blank. */
    texts,
    /** A field that has to be filled in. */
    need: (name: string, message: string) => {
      if (text(name).trim() === "") errors.set(name, message);
      return texts(name);
    },
    numbers: (...names: string[]) => {
      const numbers = Object.entries(texts(...names))
        .map(([name, text]) => [name, Number(text)] as const);
      for (const [name, number] of numbers) {
        if (!Number.isFinite(number)) errors.set(name, "This is not a number");
      }
      return Object.fromEntries(numbers);
    },
    list: (name: string): unknown[] => {
      const value = json(name);
      if (Array.isArray(value)) return value;
      if (value !== undefined) errors.set(name, "This must be a JSON array");
      return [];
    },
    object: (name: string) => {
      const value = json(name);
      if (isJsonObject(value)) return value;
      if (value !== undefined) errors.set(name, "This must be a JSON object");
      return {};
    },
  };
}
type Form = ReturnType<typeof formOf>;

/** Chat fields that the page sets itself, or of which it shows only one. */
const OWN = ["model", "messages", "stream", "stream_options", "n"];

function readChat({ errors, text, numbers, list, object }: Form): TryRequest {
  const says = (role: "system" | "user", content: string) =>
    content.trim() === "" ? [] : [{ role, content }];
  const history = list("history");
  const tools = list("tools");
  const schema = object("schema");
  const more = object("more");
  const own = OWN.find((name) => Object.hasOwn(more, name));
  if (own !== undefined) {
    errors.set("more", `The page sets '${own}' itself. Leave it out here`);
  }
  if (text("message").trim() === "" && text("history").trim() === "") {
    errors.set("message", "Write a message");
  }
  const thinking = text("thinking");
  return {
    messages: [
      ...says("system", text("system")),
      ...history,
      ...says("user", text("message")),
    ],
    ...numbers("temperature", "top_p", "max_tokens", "seed"),
    ...thinking !== "" && { enable_thinking: thinking === "on" },
    ...tools.length > 0 && { tools },
    ...Object.keys(schema).length > 0 && {
      response_format: {
        type: "json_schema",
        json_schema: { name: "answer", schema, strict: true },
      },
    },
    ...more,
  };
}
