/** The servers of models in `models.json`: their addresses, keys and deadlines. */
import { z } from "zod";
import { clip, didYouMean } from "../process/error_text.ts";
import { DIALECT_DEFAULT, dialectMembers, dialectOf } from "./dialects.ts";

const DEADLINE_MAX_MS = 24 * 60 * 60 * 1000;
const WEIGHT_MAX = 10_000;
const PROBE_SECONDS_MIN = 5;
const PROBE_SECONDS_MAX = 3_600;
/** A server that loads its model first may need longer, one that is frozen never ends. */
const PROBE_TIMEOUT_SECONDS = 30;
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
export function members<T extends z.core.$ZodLooseShape>(shape: T) {
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

/** The schema of an integer from 1. */
export const positive = z.int().min(1);
/** A text of this form; `expected` says which in errors. */
export const textOf = (form: RegExp, expected: string) =>
  z.string().regex(form, { error: `expected ${expected}` });
/** A mistake that concerns several members. */
export const mistake = (message: string, path: (string | number)[]) => (
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

/** What a server is called in logs and metrics. */
export const backendName = textOf(
  /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/,
  "1 to 64 letters, digits, '.', '_' or '-'",
);

/** Segments that no server and no proxy can take for another path. */
const FORWARD_PATH = /^(?=.{1,100}$)(\/[A-Za-z0-9_][A-Za-z0-9._-]*){1,6}$/;
/** The paths of the API, and all below them. */
const OWN_PATH =
  /^\/(v1(\/(chat|messages|responses|completions|embeddings|rerank|audio|images|videos|models|answers)(\/.*)?)?|healthz?|openapi\.json)$/i;

const variableName = textOf(
  /^[A-Za-z_][A-Za-z0-9_]*$/,
  `the name of an environment variable, not the key: ${KEY_REMEDY}`,
);

/** More than any provider permits, and exact in sums. */
const LIMIT_MAX = 1_000_000_000;
/** In `key_limits`: every key that is not named there. */
const ANY_KEY = "*";

const limit = (what: string) =>
  positive.max(LIMIT_MAX).optional().describe(what);

const limitMembers = {
  requests_per_minute: limit(
    "Requests that all workers together send in a minute. Default: unlimited.",
  ),
  tokens_per_minute: limit(
    "Tokens of prompts and answers, of all workers together in a minute. What a request costs is known at its end, and estimated until then. Default: unlimited.",
  ),
  concurrency: limit(
    "Requests of all workers together that run at once. Default: unlimited.",
  ),
};

const keyLimits = members(limitMembers);

/** The limits of a server or of one of its keys, by what they bound. */
const boundsOf = (
  { requests_per_minute, tokens_per_minute, concurrency }: z.output<
    typeof keyLimits
  >,
) => ({
  requests: requests_per_minute,
  tokens: tokens_per_minute,
  inFlight: concurrency,
});

/** The keys of a server, and what bounds their use. */
interface KeyVariables {
  api_key_env?: string | undefined;
  api_key_envs?: string[] | undefined;
  key_limits?: Record<string, z.output<typeof keyLimits>> | undefined;
}

const variablesOf = (
  { api_key_env, api_key_envs = [] }: KeyVariables,
): string[] => api_key_env === undefined ? api_key_envs : [api_key_env];

/** Reports what is wrong with the keys of a server as a whole. */
export function checkKeys(keys: KeyVariables, context: z.RefinementCtx): void {
  const { api_key_env, api_key_envs = [], key_limits = {} } = keys;
  const refuse = (message: string, ...path: (string | number)[]) =>
    context.addIssue(mistake(message, path));
  if (api_key_env !== undefined && api_key_envs.length > 0) {
    refuse("use api_key_env or api_key_envs, not both", "api_key_envs");
  }
  for (const [index, name] of api_key_envs.entries()) {
    if (api_key_envs.indexOf(name) === index) continue;
    refuse(`'${name}' is in the list twice`, "api_key_envs", index);
  }
  const variables = variablesOf(keys);
  for (const name of Object.keys(key_limits)) {
    if (variables.includes(name)) continue;
    if (name === ANY_KEY && variables.length > 0) continue;
    const hint = variables.length === 0
      ? ", which has none: set the limit beside key_limits"
      : didYouMean(name, variables);
    refuse(`'${name}' is no key of this server${hint}`, "key_limits", name);
  }
}

const probe = members({
  every_seconds: z.int().min(PROBE_SECONDS_MIN).max(PROBE_SECONDS_MAX)
    .describe("A server that has answered nothing for this time is asked."),
  timeout_seconds: z.int().min(1).max(PROBE_SECONDS_MAX)
    .default(PROBE_TIMEOUT_SECONDS)
    .describe(
      "A server that has not answered a probe by then counts as failed.",
    ),
}).describe(
  "Whether the server is asked now and then, so that a failure is noticed before a request meets it: with a completion of one token, or what is as small. Default: it is not.",
);

/** Any server with OpenAI's API. Several are tried in order of preference. */
export const backend = members({
  type: z.literal("openai"),
  name: backendName.optional().describe(
    "Name in logs and metrics, unique within the model. Default: its type and position, such as openai-1.",
  ),
  base_url: baseUrlSchema,
  api_key_env: variableName.optional().describe(
    "Environment variable of the worker that holds the API key. If absent, no key is sent.",
  ),
  api_key_envs: z.array(variableName).min(1).max(64).optional().describe(
    "Environment variables of the worker with several API keys, of which each request gets one that may be used now. In place of api_key_env.",
  ),
  key_limits: z.record(
    z.string().regex(/^(\*|[A-Za-z_][A-Za-z0-9_]*)$/, {
      error: "expected the name of a variable with a key, or '*'",
    }),
    keyLimits,
  ).optional().describe(
    "The limits of single keys, by the names of their variables; * stands for every key that is not named.",
  ),
  ...limitMembers,
  model: z.string().min(1).regex(/^\P{Cc}*$/u, {
    error: "control characters are not allowed",
  }).describe("The model's name at that server."),
  probe: probe.optional(),
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
  forward_paths: z.array(
    textOf(FORWARD_PATH, `a path such as /tokenize, without '..' and a query`)
      .refine((path) => !OWN_PATH.test(path), {
        error: "the gateway has an endpoint of its own there",
      }),
  ).max(32).optional().meta({ default: [] }).describe(
    "Further paths of the server to which POST requests are forwarded as they are, such as /tokenize or /v1/moderations.",
  ),
}).describe("Any server with OpenAI's API.").superRefine(checkKeys);

/** A server of a model, as the file has it. */
export type BackendEntry = z.output<typeof backend>;

/** A server with all defaults, but for its model. */
export const namedBackend = (
  backend: Omit<BackendEntry, "model">,
  name: string,
  /** Whether its limits are those of one model there, or of all together. */
  limits_of: "model" | "server" = "model",
) => ({
  ...backend,
  name,
  limits_of,
  dialect: dialectOf(backend),
  /** The name of the dialect, for messages to operators. */
  dialect_name: backend.dialect ?? DIALECT_DEFAULT,
  /** What all its keys together may do. */
  bounds: boundsOf(backend),
  /** Its keys, by their variables; none: it wants no key. */
  keys: variablesOf(backend).map((variable) => ({
    variable,
    bounds: boundsOf(
      backend.key_limits?.[variable] ?? backend.key_limits?.[ANY_KEY] ?? {},
    ),
  })),
  drop_tool_types: backend.drop_tool_types ?? [],
  forward_paths: backend.forward_paths ?? [],
});

/**
 * Whether a server fetches addresses from a network that is not the operator's: from
 * there it reaches nothing of theirs.
 */
export const isHosted = (
  { base_url: url, dialect }: Pick<BackendEntry, "base_url" | "dialect">,
): boolean =>
  url.startsWith("https:") &&
  /^(openai|dashscope|anthropic)$/.test(dialect ?? "");

/** Whether there is a choice between those that are tried first. */
export function hasEquals(
  backends: readonly { readonly preference: number }[],
): boolean {
  const preferences = backends.map(({ preference }) => preference);
  const first = Math.min(...preferences);
  return preferences.filter((each) => each === first).length > 1;
}
