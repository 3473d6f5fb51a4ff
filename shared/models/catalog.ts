/**
 * The format of `models.json`: what edges offer, and workers run. An unknown member is
 * a mistake. Descriptions become part of the schema that editors show.
 */
import * as z from "zod";
import { MEDIA_LIMITS, REQUEST_LIMITS, UPLOAD_LIMITS } from "../limits.ts";
import { ConfigError } from "../process/env.ts";
import { expectationOf } from "../openai/request_fault.ts";
import {
  clip,
  didYouMean,
  formatPath,
  nameOfType,
} from "../process/error_text.ts";
import { DIALECT_DEFAULT, dialectMembers, dialectOf } from "./dialects.ts";
import { MODEL_KINDS, type ModelKind } from "./kinds.ts";

/** The model of the service specification. */
export const DEFAULT_MODEL_ID = "neutral-3.7-plus";

const DEADLINE_MAX_MS = 24 * 60 * 60 * 1000;
const WEIGHT_MAX = 10_000;
const UNIX_SECONDS_MAX = 2 ** 32 - 1;
/** 1 January 2026. Clients show this time and sort by it. */
const CREATED_DEFAULT = 1_767_225_600;

/** Headers of the connection, and those that the worker itself sends. */
const RESERVED_HEADERS = new RegExp(
  "^(accept|authorization|connection|expect|host|keep-alive|te|trailer|upgrade|" +
    "accept-encoding|content-(encoding|length|type)|transfer-encoding|" +
    "traceparent|x-request-id)$",
  "i",
);

/** What to do instead of writing a secret into the file. */
const KEY_REMEDY =
  "put the key in an environment variable of the worker and name that variable in api_key_env";

/** Members that look as if they held a secret, which has no place in the file. */
const SECRET_MEMBER = /api.?key|secret|password|^(token|auth.*)$/i;

/** An object with these members. An unknown one is a mistake that names the nearest. */
function members<T extends z.core.$ZodLooseShape>(shape: T) {
  return z.strictObject(shape, {
    error: ({ code, ...issue }) => {
      if (code !== "unrecognized_keys" || !Array.isArray(issue.keys)) return;
      return issue.keys.map((name) =>
        `unknown member '${clip(name)}'` +
        (SECRET_MEMBER.test(name)
          ? `: ${KEY_REMEDY}`
          : didYouMean(name, Object.keys(shape)))
      ).join("\n");
    },
  });
}

const positive = z.int().min(1);
const textOf = (form: RegExp, expected: string) =>
  z.string().regex(form, { error: `expected ${expected}` });
/** A mistake that concerns several members. */
const mistake = (message: string, path: (string | number)[]) => (
  { code: "custom" as const, message, path }
);

/** The form of a base URL, as in "expected …". */
export const BASE_URL_FORM = "a URL that begins with http:// or https://, " +
  "without user, password, query or fragment";

/** The base URL of a model server, without a slash at its end. */
export const baseUrlSchema = z.string()
  .refine((text) => {
    const url = URL.parse(text);
    return url !== null && /^https?:$/.test(url.protocol) &&
      url.hostname !== "" && !/[?#]/.test(text) &&
      url.username + url.password === "";
  }, { error: `expected ${BASE_URL_FORM}` })
  .transform((text) => text.replace(/\/+$/, ""))
  .describe("Up to and including /v1, as in http://vllm:8000/v1.");

const headers = z.record(
  textOf(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, "the name of a header")
    .refine((text) => !RESERVED_HEADERS.test(text), {
      error:
        `the gateway sets this header itself: remove it, or, for a key, ${KEY_REMEDY}`,
    }),
  textOf(/^[\x20-\x7e\t]*$/, "printable ASCII without line ends"),
).default({}).describe(
  "Sent with every call. Not for secrets: they belong in the environment.",
);

const deadline = (defaultMs: number, description: string) =>
  positive.max(DEADLINE_MAX_MS).default(defaultMs).describe(description);

const deadlines = members({
  // TCP and TLS within one region take under 100 ms; a retry of a lost packet takes 1
  // to 3 s.
  connect_ms: deadline(5_000, "The connection, including TLS."),
  // Enough for a long prompt on a busy server, and for one that loads its model first.
  first_token_ms: deadline(
    300_000,
    "From the connection, or the last comment, to the first token of a stream.",
  ),
  // Enough for a model that thinks without output, or for a preempted batch.
  between_tokens_ms: deadline(
    120_000,
    "Between two signs of life within an answer: tokens, events, comments.",
  ),
  // The default timeout of OpenAI's SDKs.
  total_ms: deadline(600_000, "The whole answer."),
}).prefault({}).describe("How long the server may take, in milliseconds.");

/** The deadlines of a backend that names none, in milliseconds. */
export const BACKEND_DEADLINE_DEFAULTS = deadlines.parse({});

/** Any server with OpenAI's API. Several are tried in order of preference. */
const backend = members({
  type: z.literal("openai"),
  name: textOf(
    /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/,
    "1 to 64 letters, digits, '.', '_' or '-'",
  ).optional().describe(
    "Name in logs and metrics, unique within the model. Default: its type and position, such as openai-1.",
  ),
  base_url: baseUrlSchema,
  api_key_env: textOf(
    /^[A-Za-z_][A-Za-z0-9_]*$/,
    `the name of an environment variable, not the key: ${KEY_REMEDY}`,
  ).optional().describe(
    "Environment variable of the worker that holds the API key. If absent, no key is sent.",
  ),
  model: z.string().min(1).regex(/^\P{Cc}*$/u, {
    error: "control characters are not allowed",
  }).describe("The model's name at that server."),
  weight: positive.max(WEIGHT_MAX).default(1)
    .describe("Share of requests among backends of the same preference."),
  preference: z.int().min(0).max(WEIGHT_MAX).default(0)
    .describe("Lower values are tried first, higher ones only if those fail."),
  headers,
  deadlines,
  ...dialectMembers,
  cache_salt: z.enum(["account"]).optional().describe(
    "account: every account gets a cache_salt of its own, a digest keyed with CACHE_SALT_KEY, so that none can tell by its speed what another has asked. For vLLM.",
  ),
  image_format_field: z.enum(["response_format", "none"]).optional()
    .meta({ default: "response_format" }).describe(
      "The field that requests images in base64; none for a server that refuses it, such as OpenAI's with its GPT models.",
    ),
  stream_format_field: z.enum(["stream_format", "none"]).optional()
    .meta({ default: "none" }).describe(
      "stream_format: pcm and wav at normal speed are requested with stream_format audio, without which vLLM-Omni sends no audio until all of it is made.",
    ),
  drop_tool_types: z.array(z.string().min(1).max(100)).max(32).optional()
    .meta({ default: [] }).describe(
      "Types of tools that are taken out of forwarded requests, because the server refuses them, such as web_search.",
    ),
}).describe("Any server with OpenAI's API.");

const passField = textOf(
  /^(?!__proto__$)[A-Za-z_][A-Za-z0-9_.-]{0,63}$/,
  "the name of a request field",
);

/** What parts of messages may be, besides text. */
const MEDIA = ["image", "audio", "video", "file"] as const;

/** A kind of message part that a model may accept. */
export type Medium = typeof MEDIA[number];

const acceptedMedia = (
  { vision = false, accepts = [] }: {
    vision?: boolean | undefined;
    accepts?: Medium[] | undefined;
  },
): ReadonlySet<Medium> =>
  new Set<Medium>(vision ? [...accepts, "image"] : accepts);

/**
 * Whether a server fetches addresses from a network that is not the operator's: from
 * there it reaches nothing of theirs.
 */
const isHosted = (
  { base_url: url, dialect }: {
    base_url: string;
    dialect?: string | undefined;
  },
): boolean =>
  url.startsWith("https:") &&
  /^(openai|dashscope|anthropic)$/.test(dialect ?? "");

const TOKEN_KINDS: readonly ModelKind[] = ["chat", "embedding", "rerank"];
/** The kinds whose requests may name addresses, and whose fields may be refused. */
const FORWARDED_KINDS: readonly ModelKind[] = [
  "chat",
  "image",
  "speech",
  "transcription",
  "video",
];

/** The kinds of models that a member is for, unless it is for all. */
const KINDS_OF_MEMBER = new Map<string, readonly ModelKind[]>([
  ["context_tokens", TOKEN_KINDS],
  ["dialect", FORWARDED_KINDS],
  ["fetches_urls", FORWARDED_KINDS],
  ["refuse_fields", FORWARDED_KINDS],
  ["only_known_fields", FORWARDED_KINDS],
  ...[
    "output_tokens",
    "choices",
    "vision",
    "accepts",
    "pass_fields",
    "stateful",
    "cache_salt",
    ...Object.keys(dialectMembers).filter((name) => name !== "dialect"),
  ].map((name): [string, ModelKind[]] => [name, ["chat"]]),
  ["drop_tool_types", ["chat"]],
  ["image_format_field", ["image"]],
  ["stream_format_field", ["speech"]],
  ["input_characters", ["speech"]],
  ["prompt_characters", ["image", "video"]],
  ["images", ["image"]],
  ["file_bytes", ["image", "transcription", "video"]],
]);

/** `"chat"`, `"image" or "video"`. */
const KINDS = new Intl.ListFormat("en", { type: "disjunction" });

const model = members({
  // No blanks, no wildcards, nothing that needs quoting.
  id: z.string().max(REQUEST_LIMITS.modelCharsMax)
    .regex(/^[A-Za-z0-9][A-Za-z0-9._:\/@+-]*$/, {
      error: "expected letters, digits, '.', '_', ':', '/', '@', '+' or '-'",
    }).describe("The value of `model` in requests."),
  kind: z.enum(MODEL_KINDS).default("chat").describe("What it makes."),
  owned_by: z.string().min(1).max(100).default("gateway")
    .describe("Shown by GET /v1/models."),
  created: z.int().min(0).max(UNIX_SECONDS_MAX).default(CREATED_DEFAULT)
    .describe("Unix seconds, shown by GET /v1/models."),
  context_tokens: positive.optional()
    .describe("Prompt and answer together. If absent, the backend decides."),
  output_tokens: positive.optional()
    .describe("Upper bound of max_tokens. If absent, the backend decides."),
  choices: positive.max(REQUEST_LIMITS.nMax).optional()
    .describe("Upper bound of n. If absent, the backend decides."),
  input_characters: positive.max(MEDIA_LIMITS.textCharsMax).optional()
    .meta({ default: MEDIA_LIMITS.speechCharsMax })
    .describe("Upper bound of the characters of input."),
  prompt_characters: positive.max(MEDIA_LIMITS.textCharsMax).optional()
    .meta({ default: MEDIA_LIMITS.promptCharsMax })
    .describe("Upper bound of the characters of prompt."),
  images: positive.max(MEDIA_LIMITS.imagesOfModelMax).optional()
    .meta({ default: MEDIA_LIMITS.imagesMax })
    .describe("Upper bound of the images that one request makes."),
  file_bytes: positive.max(UPLOAD_LIMITS.fileOfModelBytesMax).optional()
    .describe(
      "Upper bound of one file, in bytes. Default: 26,214,400 (25 MiB) for a recording, 50,000,000 for an image to edit, 20,971,520 (20 MiB) for the first image of a video.",
    ),
  vision: z.boolean().optional().meta({ default: false })
    .describe("The same as image in accepts."),
  accepts: z.array(z.enum(MEDIA)).optional().meta({ default: [] }).describe(
    "What parts of messages may be, besides text. If absent, none in chat completions; in forwarded requests the server decides.",
  ),
  fetches_urls: z.boolean().optional().describe(
    "Whether requests may name http and https addresses, which the server would fetch. Default: only if all backends are hosted, which means https and the dialect openai, dashscope or anthropic.",
  ),
  pass_fields: z.array(passField).max(64).optional().meta({ default: [] })
    .describe(
      "Has no effect any more: all request fields are passed on unchanged.",
    ),
  refuse_fields: z.array(passField).max(64).optional().meta({ default: [] })
    .describe(
      "Request fields that are refused, besides those that never pass.",
    ),
  only_known_fields: z.boolean().optional().meta({ default: false }).describe(
    "Whether request fields that the description of the API does not list are refused.",
  ),
  stateful: z.boolean().optional().meta({ default: false }).describe(
    "Whether POST /v1/responses may name what its only server has stored: previous_response_id, conversation, background. Responses of one caller can then be continued by all others of the model.",
  ),
  backends: z.array(backend).min(1).max(64).describe("Servers of the model."),
}).superRefine(({ kind, ...model }, context) => {
  const refuse = (members: object, ...path: (string | number)[]) => {
    for (const name of Object.keys(members)) {
      const kinds = KINDS_OF_MEMBER.get(name) ?? [kind];
      if (kinds.includes(kind)) continue;
      const named = KINDS.format(kinds.map((each) => `"${each}"`));
      const message = `only for models of the kind ${named}`;
      context.addIssue(mistake(message, [...path, name]));
    }
  };
  refuse(model);
  model.backends.forEach((each, index) => refuse(each, "backends", index));
}).transform((model) => ({
  ...model,
  accepts: acceptedMedia(model),
  /** Whether the operator has said what it accepts. */
  states_media: model.accepts !== undefined || model.vision !== undefined,
  refuse_fields: model.refuse_fields ?? [],
  only_known_fields: model.only_known_fields ?? false,
  stateful: model.stateful ?? false,
  backends: model.backends.map((backend, index) => ({
    ...backend,
    name: backend.name ?? `${backend.type}-${index + 1}`,
    dialect: dialectOf(backend),
    /** The name of the dialect, for messages to operators. */
    dialect_name: backend.dialect ?? DIALECT_DEFAULT,
    drop_tool_types: backend.drop_tool_types ?? [],
  })),
  fetches_urls: model.fetches_urls ?? model.backends.every(isHosted),
})).superRefine((model, context) => {
  const { context_tokens = Infinity, output_tokens = 0 } = model;
  if (model.stateful && model.backends.length > 1) {
    const message = "only for models with one backend, which stores responses";
    context.addIssue(mistake(message, ["stateful"]));
  }
  if (output_tokens > context_tokens) {
    context.addIssue(mistake("larger than context_tokens", ["output_tokens"]));
  }
  const names = model.backends.map(({ name }) => name);
  for (const [index, name] of repeated(names)) {
    const message = `another backend of this model is called '${name}' too`;
    context.addIssue(mistake(message, ["backends", index, "name"]));
  }
});

const file = members({
  $schema: z.string().optional().describe("For editors."),
  models: z.array(model).min(1).max(1_000),
}).superRefine(({ models }, context) => {
  for (const [index, id] of repeated(models.map(({ id }) => id))) {
    const message = `another model is called '${id}' too`;
    context.addIssue(mistake(message, ["models", index, "id"]));
  }
});

/** One model of the file, with all defaults. */
export type ModelConfig = z.output<typeof model>;

/** One server of a model, with all defaults. */
export type BackendConfig = ModelConfig["backends"][number];

/** All models by id, in the order of the file. */
export type Catalog = ReadonlyMap<string, ModelConfig>;
/** The content of `models.json`. */
export type CatalogFile = z.input<typeof file>;

/** Position and value of each name that occurred before. */
const repeated = (names: readonly string[]) =>
  [...names.entries()].filter(([index, name]) => names.indexOf(name) < index);

/**
 * Converts the parsed `models.json` into a catalog with defaults. Throws a
 * {@link ConfigError} with all mistakes and their paths at once. An example is
 * `deploy/models.example.json`; `deploy/models.schema.json` describes every member.
 */
export function parseCatalog(json: unknown): Catalog {
  const read = file.safeParse(json, { reportInput: true });
  if (!read.success) {
    const mistakes = read.error.issues.flatMap((issue) => {
      const where = formatPath(issue.path) || "the file";
      const lines = describeIssue(issue).split("\n");
      return lines.map((what) => `${where}: ${what}`);
    });
    throw new ConfigError("the models file", mistakes);
  }
  return new Map(read.data.models.map((model) => [model.id, model]));
}

/** One line for each mistake of the issue, without the value, which may be a secret. */
function describeIssue(issue: z.core.$ZodIssue): string {
  const { code, input, message } = issue;
  if (code === "invalid_key") {
    return issue.issues.map(({ message }) => message).join("\n");
  }
  if (input === undefined && code !== "custom") return "missing";
  if (!/^(invalid_type|invalid_value|too_\w+)$/.test(code)) return message;
  const { expected } = expectationOf(issue, input);
  if (code === "invalid_type") {
    return `expected ${expected}, got ${nameOfType(input)}`;
  }
  const known = code === "invalid_value" ? issue.values.map(String) : [];
  return `expected ${expected}${didYouMean(String(input), known)}`;
}

/** The JSON Schema of `models.json`, which editors read. */
export function catalogJsonSchema(): { [key: string]: unknown } {
  return z.toJSONSchema(file, { io: "input" });
}
