/**
 * The variables that define which models an installation offers, for all services that
 * need the list.
 */
import * as read from "../process/env.ts";
import {
  BACKEND_DEADLINE_DEFAULTS,
  BASE_URL_FORM,
  baseUrlSchema,
  type Catalog,
  type CatalogFile,
  DEFAULT_MODEL_ID,
  parseCatalog,
} from "./catalog.ts";
import { DIALECT_DEFAULT, DIALECT_NAMES } from "./dialects.ts";

/** The variable with the API key for `UPSTREAM_BASE_URL`. */
export const UPSTREAM_KEY_ENV = "UPSTREAM_API_KEY";

const MS_PER_SECOND = 1_000;
const { total_ms, first_token_ms } = BACKEND_DEADLINE_DEFAULTS;
const baseUrl = () => read.variable(baseUrlSchema, { expects: BASE_URL_FORM });

export const CATALOG_VARIABLES = {
  MODELS_FILE: read.file().optional()
    .describe(
      "List of models and their backends; takes precedence over UPSTREAM_*",
    ),
  UPSTREAM_BASE_URL: baseUrl().optional()
    .describe("An OpenAI-compatible model server, up to and including /v1"),
  UPSTREAM_MODEL: read.text().default(DEFAULT_MODEL_ID)
    .describe("The model's name at UPSTREAM_BASE_URL"),
  UPSTREAM_DIALECT: read.choice(DIALECT_NAMES).default(DIALECT_DEFAULT)
    .describe("Dialect of the server at UPSTREAM_BASE_URL"),
  UPSTREAM_FIRST_TOKEN_SECONDS: read.integer("seconds", {
    min: 1,
    // The whole answer must not take longer.
    max: total_ms / MS_PER_SECOND,
  }).default(first_token_ms / MS_PER_SECOND).describe(
    "How long UPSTREAM_BASE_URL may take to send the first token of a stream; set it higher for a server that has to load its model first",
  ),
  MODEL_SIMULATOR_URL: baseUrl().optional().describe(
    "Base URL of the model simulator, up to and including /v1; used when neither MODELS_FILE nor UPSTREAM_BASE_URL is set",
  ),
};

export function requireCatalog(catalog: Catalog | undefined): Catalog {
  if (catalog !== undefined) return catalog;
  throw new read.ConfigError("the environment", [
    "no model server: set MODELS_FILE, UPSTREAM_BASE_URL or, to try the " +
    "gateway without one, MODEL_SIMULATOR_URL",
  ]);
}

export const catalogOf = (...of: Parameters<typeof catalogIfGiven>): Catalog =>
  requireCatalog(catalogIfGiven(...of));

/**
 * The catalog of these variables, or undefined when none of them names a model server.
 * Throws a `ConfigError` with every mistake in the file.
 */
export function catalogIfGiven(
  env: read.ConfigOf<typeof CATALOG_VARIABLES>,
  hasUpstreamKey: boolean,
): Catalog | undefined {
  if (env.MODELS_FILE !== undefined) {
    let json: unknown;
    try {
      json = JSON.parse(env.MODELS_FILE);
    } catch (error) {
      throw new read.ConfigError("the models file", [
        `it is not valid JSON: ${read.errorMessage(error)}`,
      ]);
    }
    return parseCatalog(json);
  }
  if (env.UPSTREAM_BASE_URL !== undefined) {
    // The server's own name for the model stays internal.
    return parseCatalog({
      models: [{
        id: DEFAULT_MODEL_ID,
        ...ABILITIES,
        backends: [{
          type: "openai",
          name: "upstream",
          base_url: env.UPSTREAM_BASE_URL,
          api_key_env: hasUpstreamKey ? UPSTREAM_KEY_ENV : undefined,
          model: env.UPSTREAM_MODEL,
          dialect: env.UPSTREAM_DIALECT,
          deadlines: {
            first_token_ms: env.UPSTREAM_FIRST_TOKEN_SECONDS * MS_PER_SECOND,
          },
        }],
      }],
    });
  }
  if (env.MODEL_SIMULATOR_URL !== undefined) {
    return catalogFromSimulator(env.MODEL_SIMULATOR_URL);
  }
}

/**
 * What the `model-simulator` at this URL simulates, the model of the service
 * specification first.
 */
export function catalogFromSimulator(baseUrl: string): Catalog {
  const simulated = (
    id: string,
    rest: Partial<CatalogFile["models"][number]>,
  ) => ({
    id,
    owned_by: "simulator",
    ...rest,
    backends: [
      { type: "openai", name: "simulator", base_url: baseUrl, model: id },
    ],
  });
  return parseCatalog({
    models: [
      // The bounds of large hosted models.
      simulated(DEFAULT_MODEL_ID, {
        ...ABILITIES,
        context_tokens: 200_000,
        output_tokens: 32_768,
      }),
      ...(["speech", "image", "transcription", "video"] as const)
        .map((kind) => simulated(`simulated-${kind}-1`, { kind })),
    ],
  });
}

/** Of a chat server about which nothing is known: it decides itself what it accepts. */
const ABILITIES = {
  vision: true,
  // Local servers support these in addition to OpenAI's; strict ones refuse them.
  pass_fields: [
    "top_k",
    "min_p",
    "logit_bias",
    "reasoning_effort",
    "chat_template_kwargs",
  ],
};
