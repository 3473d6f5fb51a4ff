/**
 * The variables that define which models an installation offers, for all services that
 * need the list.
 */
import { z } from "zod";
import * as env from "../process/env.ts";
import {
  BACKEND_DEADLINE_DEFAULTS,
  BASE_URL_FORM,
  baseUrlSchema,
} from "./backend.ts";
import {
  type Catalog,
  type CatalogFile,
  DEFAULT_MODEL_ID,
  ModelCatalog,
  parseCatalog,
} from "./catalog.ts";
import {
  DIALECT_DEFAULT,
  DIALECT_NAMES,
  type ServerAbility,
} from "./dialects.ts";
import { CURRENCY_DEFAULT } from "./price_list.ts";
import { repeatedMembers } from "./repeated_members.ts";

/** The variable with the API key for `UPSTREAM_BASE_URL`. */
export const UPSTREAM_KEY_ENV = "UPSTREAM_API_KEY";

const MS_PER_SECOND = 1_000;
const DAY_SECONDS = 86_400;
const { total_ms, first_token_ms, between_tokens_ms } =
  BACKEND_DEADLINE_DEFAULTS;
const baseUrl = () => env.variable(baseUrlSchema, { expects: BASE_URL_FORM });

/**
 * Where the models are, in the order of precedence: a file, a server, the simulator.
 */
export const CATALOG_VARIABLES = {
  MODELS_FILE: env.file().optional()
    .describe(
      "List of models and their backends; takes precedence over UPSTREAM_*",
    ),
  UPSTREAM_BASE_URL: baseUrl().optional()
    .describe("An OpenAI-compatible model server, up to and including /v1"),
  UPSTREAM_MODEL: env.text().optional().describe(
    `What ${DEFAULT_MODEL_ID} is called at UPSTREAM_BASE_URL; if absent, the first chat model that the server lists`,
  ),
  UPSTREAM_DISCOVER: env.choice(["true", "false"]).default("true").describe(
    "Whether the models that UPSTREAM_BASE_URL lists are offered, each under its own name",
  ),
  UPSTREAM_DIALECT: env.choice(DIALECT_NAMES).default(DIALECT_DEFAULT)
    .describe("Dialect of the server at UPSTREAM_BASE_URL"),
  UPSTREAM_FIRST_TOKEN_SECONDS: env.integer("seconds", {
    min: 1,
    // How long the whole answer may take by default.
    max: total_ms / MS_PER_SECOND,
  }).default(first_token_ms / MS_PER_SECOND).describe(
    "How long UPSTREAM_BASE_URL may take to send the first token of a stream; set it higher for a server that has to load its model first",
  ),
  UPSTREAM_BETWEEN_TOKENS_SECONDS: env.integer("seconds", {
    min: 1,
    max: total_ms / MS_PER_SECOND,
  }).default(between_tokens_ms / MS_PER_SECOND).describe(
    "How long UPSTREAM_BASE_URL may be silent within an answer; whatever it sends, a comment too, ends the silence",
  ),
  UPSTREAM_TOTAL_SECONDS: env.integer("seconds", {
    min: 1,
    max: DAY_SECONDS,
  }).default(total_ms / MS_PER_SECOND).describe(
    "How long a whole answer of UPSTREAM_BASE_URL may take",
  ),
  CURRENCY: env.variable(z.string().regex(/^[A-Z]{3}$/), {
    expects: "three capital letters, as in ISO 4217",
  }).default(CURRENCY_DEFAULT).describe(
    "What the prices of MODELS_FILE and all amounts are in. It is a name: nothing is converted when it changes",
  ),
  MODEL_SIMULATOR_URL: baseUrl().optional().describe(
    "Base URL of the model simulator, up to and including /v1; used when neither MODELS_FILE nor UPSTREAM_BASE_URL is set",
  ),
};

/** The values of {@link CATALOG_VARIABLES}. */
export type CatalogValues = env.ConfigOf<typeof CATALOG_VARIABLES>;

/** Whether this process has a key for `UPSTREAM_BASE_URL`; only workers need one. */
export interface UpstreamKey {
  hasUpstreamKey: boolean;
}

/** The catalog if there is one. Throws a `ConfigError` that says what to set. */
export function requireCatalog<Models extends Catalog>(
  catalog: Models | undefined,
): Models {
  if (catalog !== undefined) return catalog;
  throw new env.ConfigError("the environment", [
    "no model server: set MODELS_FILE, UPSTREAM_BASE_URL or, to try the " +
    "gateway without one, MODEL_SIMULATOR_URL",
  ]);
}

/**
 * The ids of all models; undefined if only the servers know all of them.
 */
export const idsOf = (catalog: Catalog): readonly string[] | undefined =>
  catalog.servers.length > 0 ? undefined : [...catalog.keys()];

/** The catalog of these variables. Throws a `ConfigError` if there is none. */
export function catalogOf(
  values: CatalogValues,
  key: UpstreamKey,
): ModelCatalog {
  return requireCatalog(catalogIfGiven(values, key));
}

/**
 * The catalog that an environment and the files it names describe, for services that
 * need no keys of backends. Throws as {@link catalogOf}.
 */
export const readCatalog = (
  variables: env.Env,
  readFile: (path: string) => string,
): ModelCatalog =>
  catalogOf(env.parseEnv(CATALOG_VARIABLES, variables, readFile), {
    hasUpstreamKey: false,
  });

/**
 * The catalog of these variables, or undefined when none of them names a model server.
 * Throws a `ConfigError` with every mistake in the file.
 */
export function catalogIfGiven(
  values: CatalogValues,
  { hasUpstreamKey }: UpstreamKey,
): ModelCatalog | undefined {
  if (values.MODELS_FILE !== undefined) {
    return catalogFromFile(values.MODELS_FILE, values.CURRENCY);
  }
  if (values.UPSTREAM_BASE_URL !== undefined) {
    return catalogFromServer(values, values.UPSTREAM_BASE_URL, hasUpstreamKey);
  }
  if (values.MODEL_SIMULATOR_URL !== undefined) {
    return catalogFromSimulator(values.MODEL_SIMULATOR_URL);
  }
}

/** What one server has: its models by their names, and one of them by ours. */
function catalogFromServer(
  values: CatalogValues,
  baseUrl: string,
  hasUpstreamKey: boolean,
): ModelCatalog {
  const { UPSTREAM_MODEL: model } = values;
  const server = {
    type: "openai",
    name: "upstream",
    base_url: baseUrl,
    api_key_env: hasUpstreamKey ? UPSTREAM_KEY_ENV : undefined,
    dialect: values.UPSTREAM_DIALECT,
    deadlines: {
      first_token_ms: values.UPSTREAM_FIRST_TOKEN_SECONDS * MS_PER_SECOND,
      between_tokens_ms: values.UPSTREAM_BETWEEN_TOKENS_SECONDS *
        MS_PER_SECOND,
      total_ms: values.UPSTREAM_TOTAL_SECONDS * MS_PER_SECOND,
    },
  };
  const backends = [{ ...server, model: model ?? DEFAULT_MODEL_ID }];
  const models = [{ id: DEFAULT_MODEL_ID, ...ABILITIES, backends }];
  if (values.UPSTREAM_DISCOVER === "false") return parseCatalog({ models });
  const catalog = parseCatalog({ models, servers: [server] });
  const standIn = model === undefined ? DEFAULT_MODEL_ID : null;
  const servers = catalog.servers.map((each) => ({ ...each, standIn }));
  return new ModelCatalog([...catalog.values()], servers);
}

function catalogFromFile(text: string, currency: string): ModelCatalog {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    const what = env.errorMessage(error);
    // A file that was cut has no place of its own: it is the end.
    const lines = text.split("\n").length;
    const where = /line \d+/.test(what) ? "" : ` (it has ${lines} lines)`;
    throw new env.ConfigError("the models file", [
      `it is not valid JSON: ${what}${where}`,
    ]);
  }
  const repeated = repeatedMembers(text);
  if (repeated.length > 0) {
    throw new env.ConfigError("the models file", repeated);
  }
  return parseCatalog(json, currency);
}

/**
 * What the `model-simulator` at this URL simulates, the model of the service
 * specification first.
 */
export function catalogFromSimulator(baseUrl: string): ModelCatalog {
  const simulated = (
    id: string,
    rest: Partial<CatalogFile["models"][number]>,
  ) => ({
    id,
    owned_by: "simulator",
    ...rest,
    backends: [{
      type: "openai",
      name: "simulator",
      base_url: baseUrl,
      model: id,
      ...rest.kind === undefined && { speaks: SPEAKS },
    }],
  });
  return parseCatalog({
    models: [
      // The bounds of large hosted models.
      simulated(DEFAULT_MODEL_ID, {
        ...ABILITIES,
        // The simulator fetches nothing.
        fetches_urls: true,
        context_tokens: 200_000,
        output_tokens: 32_768,
      }),
      simulated("simulated-speech-1", { kind: "speech" }),
      simulated("simulated-image-1", { kind: "image" }),
      simulated("simulated-transcription-1", { kind: "transcription" }),
      simulated("simulated-video-1", { kind: "video" }),
      simulated("simulated-embedding-1", { kind: "embedding" }),
      simulated("simulated-rerank-1", { kind: "rerank" }),
    ],
  });
}

/** The endpoints that the simulator has for its chat model. */
const SPEAKS: ServerAbility[] = [
  "chat",
  "messages",
  "count_tokens",
  "responses",
  "input_tokens",
  "completions",
];

/**
 * Abilities of a chat server about which nothing is known: it refuses what it lacks.
 */
const ABILITIES: Pick<CatalogFile["models"][number], "accepts"> = {
  accepts: ["image", "audio", "video", "file"],
};
