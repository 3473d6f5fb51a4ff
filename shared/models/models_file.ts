/**
 * The format of `models.json`: what edges offer, and workers run. An unknown member is
 * a mistake. Descriptions become part of the schema that editors show.
 */
import { z } from "zod";
import { MEDIA_LIMITS, REQUEST_LIMITS, UPLOAD_LIMITS } from "../limits.ts";
import { aliasMistakes } from "./aliases.ts";
import {
  backend,
  hasEquals,
  isHosted,
  members,
  mistake,
  namedBackend,
  positive,
  textOf,
} from "./backend.ts";
import { dialectMembers } from "./dialects.ts";
import { MODEL_KINDS, type ModelKind } from "./kinds.ts";
import { priceMistakes, pricesSchema } from "./price_list.ts";
import { queueSchema, queueTerms } from "./queue.ts";
import { serverSchema } from "./servers.ts";

/** The model of the service specification. */
export const DEFAULT_MODEL_ID = "neutral-3.7-plus";

const UNIX_SECONDS_MAX = 2 ** 32 - 1;
/** 1 January 2026. Clients show this time and sort by it. */
export const CREATED_DEFAULT = 1_767_225_600;

/** What a model may be called, and how that is said in errors. */
const MODEL_ID = /^[A-Za-z0-9][A-Za-z0-9._:\/@+-]*$/;
const MODEL_ALIAS = /^(?:\*|[A-Za-z0-9][A-Za-z0-9._:\/@+-]*\*?)$/;
const ID_CHARACTERS = "letters, digits, '.', '_', ':', '/', '@', '+' or '-'";

const passField = textOf(
  /^(?!__proto__$)[A-Za-z_][A-Za-z0-9_.-]{0,63}$/,
  "the name of a request field",
);

/** What parts of messages may be, besides text. */
export const MEDIA = ["image", "audio", "video", "file"] as const;

/** A kind of message part that a model may accept. */
export type Medium = typeof MEDIA[number];

const acceptedMedia = (
  { vision = false, accepts = [] }: {
    vision?: boolean | undefined;
    accepts?: Medium[] | undefined;
  },
): ReadonlySet<Medium> =>
  new Set<Medium>(vision ? [...accepts, "image"] : accepts);

const TOKEN_KINDS: readonly ModelKind[] = ["chat", "embedding", "rerank"];
/** The kinds whose requests have fields that may be refused. */
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
  ["tokens_per_minute", TOKEN_KINDS],
  ["dialect", FORWARDED_KINDS],
  ["refuse_fields", FORWARDED_KINDS],
  ["only_known_fields", FORWARDED_KINDS],
  ...[
    "output_tokens",
    "choices",
    "vision",
    "accepts",
    "pass_fields",
    "stateful",
    "affinity",
    "cache_salt",
    ...Object.keys(dialectMembers).filter((name) => name !== "dialect"),
  ].map((name): [string, ModelKind[]] => [name, ["chat"]]),
  ["drop_tool_types", ["chat"]],
  ["forward_paths", TOKEN_KINDS],
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
  id: z.string().max(REQUEST_LIMITS.modelCharsMax).regex(MODEL_ID, {
    error: `expected ${ID_CHARACTERS}`,
  }).describe("The value of `model` in requests."),
  aliases: z.array(
    z.string().max(REQUEST_LIMITS.modelCharsMax).regex(MODEL_ALIAS, {
      error: `expected ${ID_CHARACTERS}, and at most one '*', at the end`,
    }),
  ).max(64).default([]).describe(
    "Other names by which requests may call the model, such as gpt-4o or, for all names with this beginning, claude-haiku-*. A name counts before a beginning, and the longest beginning before shorter ones.",
  ),
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
  affinity: z.enum(["session", "none"]).optional().describe(
    "session: requests of one conversation go to the same of several equal servers, which then finds its beginning in its cache, unless that one has more than 1.25 times the mean load. Default: session, if several servers of a chat model have the lowest preference that any has.",
  ),
  queue: queueSchema.optional(),
  prices: pricesSchema.optional(),
  backends: z.array(backend).min(1).max(64).describe("Servers of the model."),
}).superRefine(({ kind, ...model }, context) => {
  for (const { name, message } of priceMistakes(kind, model.prices ?? {})) {
    context.addIssue(mistake(message, ["prices", name]));
  }
  const refuse = (members: object, ...path: (string | number)[]) => {
    for (const name of Object.keys(members)) {
      const kinds = KINDS_OF_MEMBER.get(name) ?? [kind];
      if (kinds.includes(kind)) continue;
      const kindList = KINDS.format(kinds.map((each) => `"${each}"`));
      const message = `only for models of the kind ${kindList}`;
      context.addIssue(mistake(message, [...path, name]));
    }
  };
  refuse(model);
  model.backends.forEach((each, index) => refuse(each, "backends", index));
}).transform((model) => ({
  ...model,
  accepts: acceptedMedia(model),
  queue: queueTerms(model.queue),
  /** Whether the operator has said what it accepts. */
  states_media: model.accepts !== undefined || model.vision !== undefined,
  refuse_fields: model.refuse_fields ?? [],
  only_known_fields: model.only_known_fields ?? false,
  stateful: model.stateful ?? false,
  backends: model.backends.map((backend, index) => ({
    ...namedBackend(backend, backend.name ?? `${backend.type}-${index + 1}`),
    model: backend.model,
  })),
  affinity: model.affinity ??
    (model.kind === "chat" && hasEquals(model.backends) ? "session" : "none"),
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

/** The most models that a file may have. */
export const MODELS_MAX = 1_000;

/** The schema of the models file, from which `models.schema.json` is generated. */
export const modelsFileSchema = members({
  $schema: z.string().optional().describe("For editors."),
  models: z.array(model).max(MODELS_MAX).default([]).describe(
    "What the gateway offers under names of its own.",
  ),
  servers: z.array(serverSchema).max(64).default([]).describe(
    "Servers whose models are offered under the names that they have there.",
  ),
}).superRefine(({ models, servers }, context) => {
  if (models.length + servers.length === 0) {
    context.addIssue(mistake("expected at least 1 element", ["models"]));
  }
  for (const [index, name] of repeated(servers.map(({ name }) => name))) {
    const message = `another server is called '${name}' too`;
    context.addIssue(mistake(message, ["servers", index, "name"]));
  }
  for (const [index, id] of repeated(models.map(({ id }) => id))) {
    const message = `another model is called '${id}' too`;
    context.addIssue(mistake(message, ["models", index, "id"]));
  }
  for (const { path, message } of aliasMistakes(models)) {
    context.addIssue(mistake(message, ["models", ...path]));
  }
});

/** One model of the file, with all defaults. */
export type ModelConfig = z.output<typeof model>;

/** One server of a model, with all defaults. */
export type BackendConfig = ModelConfig["backends"][number];

/** The content of `models.json`. */
export type CatalogFile = z.input<typeof modelsFileSchema> & {
  models: z.input<typeof model>[];
};

/** Position and value of each name that occurred before. */
const repeated = (names: readonly string[]) =>
  [...names.entries()].filter(([index, name]) => names.indexOf(name) < index);

/** The JSON Schema of `models.json`, which editors read. */
export function catalogJsonSchema(): { [key: string]: unknown } {
  return z.toJSONSchema(modelsFileSchema, { io: "input" });
}
