/**
 * How an installation says which models it offers: a file, or the address of one
 * model server, or of the simulator. The same for every service that needs the list.
 */
import {
  choice,
  ConfigError,
  type ConfigOf,
  integer,
  optional,
  path,
  text,
  url,
  type Variable,
} from "../process/env.ts";
import type { Catalog } from "./catalog.ts";
import {
  catalogFromSimulator,
  catalogFromUpstream,
  parseCatalog,
} from "./catalog_file.ts";
import { BACKEND_DEADLINE_DEFAULTS } from "./catalog_schema.ts";
import {
  DIALECT_DEFAULT,
  DIALECT_NAMES,
  type DialectName,
} from "./dialects.ts";

/** Name of the variable that holds the key of the model server given by address. */
export const UPSTREAM_KEY_ENV = "UPSTREAM_API_KEY";

const MS_PER_SECOND = 1_000;
const UPSTREAM_DEADLINES = BACKEND_DEADLINE_DEFAULTS;

/** The variables of the model list. */
export const CATALOG_VARIABLES: {
  readonly modelsFile: Variable<string | undefined>;
  readonly upstreamBaseUrl: Variable<string | undefined>;
  readonly upstreamModel: Variable<string | undefined>;
  readonly upstreamDialect: Variable<DialectName>;
  readonly upstreamFirstTokenSeconds: Variable<number>;
  readonly modelSimulatorUrl: Variable<string | undefined>;
} = {
  modelsFile: optional(path({
    name: "MODELS_FILE",
    meaning: "List of models and their backends; goes before UPSTREAM_*",
  })),
  upstreamBaseUrl: optional(url({
    name: "UPSTREAM_BASE_URL",
    meaning: "An OpenAI-compatible model server, up to and including /v1",
    protocols: ["http:", "https:"],
  })),
  upstreamModel: optional(text({
    name: "UPSTREAM_MODEL",
    meaning: "The model's name at UPSTREAM_BASE_URL; ours if absent",
  })),
  upstreamDialect: choice({
    name: "UPSTREAM_DIALECT",
    meaning: "What the server at UPSTREAM_BASE_URL wants to be sent",
    values: DIALECT_NAMES,
    fallback: DIALECT_DEFAULT,
  }),
  // More than the whole answer may take would never be waited.
  upstreamFirstTokenSeconds: integer({
    name: "UPSTREAM_FIRST_TOKEN_SECONDS",
    meaning:
      "How long a stream from UPSTREAM_BASE_URL may take to begin: more for a server that loads its model first",
    unit: "seconds",
    min: 1,
    max: UPSTREAM_DEADLINES.total_ms / MS_PER_SECOND,
    fallback: UPSTREAM_DEADLINES.first_token_ms / MS_PER_SECOND,
  }),
  modelSimulatorUrl: optional(url({
    name: "MODEL_SIMULATOR_URL",
    meaning:
      "The model simulator, up to and including /v1: used when neither MODELS_FILE nor UPSTREAM_BASE_URL is set",
    protocols: ["http:", "https:"],
  })),
};

/** What the operator said. */
export type CatalogSettings = ConfigOf<typeof CATALOG_VARIABLES>;

/**
 * The catalog that these settings mean. Throws a {@link ConfigError} that names
 * the file and every mistake in it.
 */
export function catalogOf(
  settings: CatalogSettings,
  readFile: (path: string) => string,
  hasUpstreamKey: boolean,
): Catalog {
  if (settings.modelsFile !== undefined) {
    return parseCatalog(readJson(settings.modelsFile, readFile));
  }
  if (settings.upstreamBaseUrl !== undefined) {
    return catalogFromUpstream({
      baseUrl: settings.upstreamBaseUrl,
      dialect: settings.upstreamDialect,
      firstTokenMs: settings.upstreamFirstTokenSeconds * MS_PER_SECOND,
      ...(settings.upstreamModel === undefined
        ? {}
        : { model: settings.upstreamModel }),
      ...(hasUpstreamKey ? { apiKeyEnv: UPSTREAM_KEY_ENV } : {}),
    });
  }
  if (settings.modelSimulatorUrl !== undefined) {
    return catalogFromSimulator(settings.modelSimulatorUrl);
  }
  throw new ConfigError("the environment", [
    "no model server: set MODELS_FILE, UPSTREAM_BASE_URL or, to try the " +
    "gateway without one, MODEL_SIMULATOR_URL",
  ]);
}

function readJson(file: string, readFile: (path: string) => string): unknown {
  let content: string;
  try {
    content = readFile(file);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new ConfigError("MODELS_FILE", [`cannot read ${file}: ${why}`]);
  }
  try {
    return JSON.parse(content);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new ConfigError("MODELS_FILE", [`${file} is not JSON: ${why}`]);
  }
}
