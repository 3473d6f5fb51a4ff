import * as z from "zod";
import { REQUEST_LIMITS } from "../limits.ts";
import { KNOWN_FIELDS } from "../openai/request_schema.ts";
import { dialectMembers } from "./dialects.ts";

/**
 * The form of `models.json`. Every member that nobody knows is a mistake, so that
 * a misspelled bound does not silently stay at its default. Descriptions go into
 * `deploy/models.schema.json`, which editors show while the file is written.
 */

/** Longest deadline that makes sense: a day. */
const DEADLINE_MAX_MS = 24 * 60 * 60 * 1000;
const WEIGHT_MAX = 10_000;
const UNIX_SECONDS_MAX = 2 ** 32 - 1;

/** When nothing is said: 1 January 2026. Clients show it and sort by it. */
const CREATED_DEFAULT = 1_767_225_600;

/** How long a backend may take when nothing is said, in milliseconds. */
export const BACKEND_DEADLINE_DEFAULTS = {
  /** TCP and TLS within one region take under 100; a retry of a lost packet takes 1,000 to 3,000. */
  connect_ms: 5_000,
  /** A long prompt on a busy server. */
  first_token_ms: 60_000,
  /** A model that thinks in silence, or a batch that was preempted. */
  between_tokens_ms: 30_000,
  /** What OpenAI's SDKs wait for by default. */
  total_ms: 600_000,
} as const;

/** Headers that belong to the connection or to what the worker itself sends. */
const RESERVED_HEADERS: ReadonlySet<string> = new Set([
  "accept",
  "accept-encoding",
  "authorization",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "expect",
  "host",
  "keep-alive",
  "te",
  "traceparent",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "x-request-id",
]);

const positive = z.int().min(1);
const deadline = positive.max(DEADLINE_MAX_MS);

const name = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, {
  error: "expected 1 to 64 letters, digits, '.', '_' or '-'",
}).describe(
  "Appears in logs and metrics, unique within the model. Default: its type and position, as in openai-1.",
);
const weight = positive.max(WEIGHT_MAX).default(1).describe(
  "Share of requests among backends of the same preference.",
);
const preference = z.int().min(0).max(WEIGHT_MAX).default(0).describe(
  "Lower is tried first; higher ones only when those fail.",
);

/** The base URL of a model server: where it is, and nothing else. */
export const baseUrlSchema = z.string().refine(isBaseUrl, {
  error: "expected a URL that begins with http:// or https://, without user, " +
    "password, query or fragment",
}).describe(
  "Up to and including /v1, as in http://vllm:8000/v1.",
);

/** The name of an environment variable that holds a secret. */
export const envNameSchema = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, {
  error: "expected the name of an environment variable, not its value",
}).describe(
  "Environment variable of the worker that holds the key. Absent: no key is sent.",
);

/** A model's name at its server. */
export const upstreamModelSchema = z.string().min(1).regex(/^\P{Cc}*$/u, {
  error: "control characters are not allowed",
}).describe("The model's name at that server.");

const headers = z.record(
  z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, {
    error: "expected the name of a header",
  }).refine((text) => !RESERVED_HEADERS.has(text.toLowerCase()), {
    error: "the gateway sets this header itself",
  }),
  z.string().regex(/^[\x20-\x7e\t]*$/, {
    error: "expected printable ASCII without line ends",
  }),
).default({}).describe(
  "Sent with every call. Not for secrets: they belong in the environment.",
);

const deadlines = z.strictObject({
  connect_ms: deadline.default(BACKEND_DEADLINE_DEFAULTS.connect_ms)
    .describe("Until the connection stands."),
  first_token_ms: deadline.default(BACKEND_DEADLINE_DEFAULTS.first_token_ms)
    .describe("Until the first token, the connection included."),
  between_tokens_ms: deadline
    .default(BACKEND_DEADLINE_DEFAULTS.between_tokens_ms)
    .describe("Between two tokens."),
  total_ms: deadline.default(BACKEND_DEADLINE_DEFAULTS.total_ms)
    .describe("The whole answer."),
}).prefault({}).describe("How long the server may take, in milliseconds.");

const backend = z.strictObject({
  type: z.literal("openai"),
  name: name.optional(),
  base_url: baseUrlSchema,
  api_key_env: envNameSchema.optional(),
  model: upstreamModelSchema,
  weight,
  preference,
  headers,
  deadlines,
  ...dialectMembers,
}).describe("Any server that speaks OpenAI's chat completions.");

const passField = z.string().regex(/^[A-Za-z_][A-Za-z0-9_.-]{0,63}$/, {
  error: "expected the name of a request field",
}).refine((text) => !KNOWN_FIELDS.has(text) && text !== "__proto__", {
  error: "the gateway checks and passes on this field by itself",
});

/** A model's name among clients: no blanks, no wildcards, nothing that needs quoting. */
export const modelIdSchema = z.string().max(REQUEST_LIMITS.modelCharsMax)
  .regex(/^[A-Za-z0-9][A-Za-z0-9._:\/@+-]*$/, {
    error: "expected letters, digits, '.', '_', ':', '/', '@', '+' or '-'",
  }).describe("What clients put in `model`.");

const model = z.strictObject({
  id: modelIdSchema,
  kind: z.literal("chat").default("chat"),
  owned_by: z.string().min(1).max(100).default("gateway")
    .describe("Shown by GET /v1/models."),
  created: z.int().min(0).max(UNIX_SECONDS_MAX).default(CREATED_DEFAULT)
    .describe("Unix seconds, shown by GET /v1/models."),
  context_tokens: positive.optional()
    .describe("Prompt and answer together. Absent: the backend decides."),
  output_tokens: positive.optional()
    .describe("Upper bound of max_tokens. Absent: the backend decides."),
  choices: positive.max(REQUEST_LIMITS.nMax).optional().describe(
    "Upper bound of n. Absent: the backend decides.",
  ),
  vision: z.boolean().default(false).describe("Image parts are accepted."),
  pass_fields: z.array(passField).max(64).default([]).describe(
    "Request fields passed on untouched beside the known ones, as in top_k.",
  ),
  backends: z.array(backend).min(1).max(64).describe("Who runs the model."),
});

/** The whole file. */
export const catalogFileSchema = z.strictObject({
  $schema: z.string().optional().describe("For editors."),
  models: z.array(model).min(1).max(1_000),
});

/** A file that has the right form. */
export type CatalogFile = z.infer<typeof catalogFileSchema>;

/** What a backend without a name is called: `openai-1` for the first in its list. */
export function defaultBackendName(type: string, index: number): string {
  return `${type}-${index + 1}`;
}

function isBaseUrl(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && /^https?:$/.test(url.protocol) &&
    url.hostname !== "" && url.username === "" && url.password === "" &&
    url.search === "" && url.hash === "" && !text.includes("#") &&
    !text.includes("?");
}
