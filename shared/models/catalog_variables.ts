/**
 * How an installation says which models it offers: a file, or the address of one
 * model server, or of the simulator. The same for every service that needs the list.
 */
import {
  choice,
  ConfigError,
  type ConfigOf,
  errorMessage,
  file,
  integer,
  text,
  url,
} from "../process/env.ts";
import type { Catalog } from "./catalog.ts";
import {
  catalogFromSimulator,
  catalogFromUpstream,
  parseCatalog,
} from "./catalog_file.ts";
import { BACKEND_DEADLINE_DEFAULTS } from "./catalog_schema.ts";
import { DIALECT_DEFAULT, DIALECT_NAMES } from "./dialects.ts";

/** Name of the variable that holds the key of the model server given by address. */
export const UPSTREAM_KEY_ENV = "UPSTREAM_API_KEY";

const MS_PER_SECOND = 1_000;
const UPSTREAM_DEADLINES = BACKEND_DEADLINE_DEFAULTS;

/** The variables of the model list. */
export const CATALOG_VARIABLES = {
  MODELS_FILE: file().optional()
    .describe("List of models and their backends; goes before UPSTREAM_*"),
  UPSTREAM_BASE_URL: url(["http:", "https:"]).optional()
    .describe("An OpenAI-compatible model server, up to and including /v1"),
  UPSTREAM_MODEL: text().optional()
    .describe("The model's name at UPSTREAM_BASE_URL; ours if absent"),
  UPSTREAM_DIALECT: choice(DIALECT_NAMES).default(DIALECT_DEFAULT)
    .describe("What the server at UPSTREAM_BASE_URL wants to be sent"),
  UPSTREAM_FIRST_TOKEN_SECONDS: integer("seconds", {
    min: 1,
    // More than the whole answer may take would never be waited.
    max: UPSTREAM_DEADLINES.total_ms / MS_PER_SECOND,
  }).default(UPSTREAM_DEADLINES.first_token_ms / MS_PER_SECOND).describe(
    "How long a stream from UPSTREAM_BASE_URL may take to begin: more for a server that loads its model first",
  ),
  MODEL_SIMULATOR_URL: url(["http:", "https:"]).optional().describe(
    "The model simulator, up to and including /v1: used when neither MODELS_FILE nor UPSTREAM_BASE_URL is set",
  ),
};

/**
 * The catalog that these variables mean. Throws a {@link ConfigError} with every
 * mistake in the file.
 */
export function catalogOf(
  env: ConfigOf<typeof CATALOG_VARIABLES>,
  hasUpstreamKey: boolean,
): Catalog {
  if (env.MODELS_FILE !== undefined) {
    return parseCatalog(parseJson(env.MODELS_FILE));
  }
  if (env.UPSTREAM_BASE_URL !== undefined) {
    return catalogFromUpstream({
      baseUrl: env.UPSTREAM_BASE_URL,
      dialect: env.UPSTREAM_DIALECT,
      firstTokenMs: env.UPSTREAM_FIRST_TOKEN_SECONDS * MS_PER_SECOND,
      ...(env.UPSTREAM_MODEL === undefined
        ? {}
        : { model: env.UPSTREAM_MODEL }),
      ...(hasUpstreamKey ? { apiKeyEnv: UPSTREAM_KEY_ENV } : {}),
    });
  }
  if (env.MODEL_SIMULATOR_URL !== undefined) {
    return catalogFromSimulator(env.MODEL_SIMULATOR_URL);
  }
  throw new ConfigError("the environment", [
    "no model server: set MODELS_FILE, UPSTREAM_BASE_URL or, to try the " +
    "gateway without one, MODEL_SIMULATOR_URL",
  ]);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ConfigError("the models file", [errorMessage(error)]);
  }
}
