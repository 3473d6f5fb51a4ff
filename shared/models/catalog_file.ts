import * as z from "zod";
import { ConfigError } from "../process/env.ts";
import {
  type BackendConfig,
  type Catalog,
  DEFAULT_MODEL_ID,
  type ModelConfig,
} from "./catalog.ts";
import {
  contradictionsIn,
  duplicatesIn,
  mistakesOf,
} from "./catalog_mistakes.ts";
import {
  baseUrlSchema,
  type CatalogFile,
  catalogFileSchema,
  defaultBackendName,
  envNameSchema,
  upstreamModelSchema,
} from "./catalog_schema.ts";

import { DIALECT_DEFAULT, type DialectName, dialectOf } from "./dialects.ts";

type ModelFile = CatalogFile["models"][number];
type BackendFile = ModelFile["backends"][number];

/**
 * Turns the parsed `models.json` into a catalog, defaults filled in. Throws a
 * {@link ConfigError} with all mistakes and their paths at once. The smallest file:
 *
 * ```json
 * { "models": [{
 *   "id": "qwen3-8b",
 *   "backends": [{ "type": "openai", "base_url": "http://vllm:8000/v1", "model": "Qwen/Qwen3-8B" }]
 * }] }
 * ```
 *
 * A full one is `deploy/models.example.json`; every member is described in
 * `deploy/models.schema.json`.
 */
export function parseCatalog(json: unknown): Catalog {
  const checked = catalogFileSchema.safeParse(json);
  const mistakes = [
    ...mistakesOf(checked, json, "the file"),
    ...duplicatesIn(json),
    ...contradictionsIn(json),
  ];
  if (!checked.success || mistakes.length > 0) {
    throw new ConfigError("the models file", mistakes);
  }
  return new Map(
    checked.data.models.map((model) => [model.id, toModel(model)]),
  );
}

/** What the `UPSTREAM_*` variables say: one model server, without a file. */
export interface UpstreamShortcut {
  /** Up to and including `/v1`. */
  baseUrl: string;
  /** The variable that holds its key; absent when it wants none. */
  apiKeyEnv?: string;
  /** The model's name there. Absent: the same as ours. */
  model?: string;
  /** What it wants to be sent. Absent: the default of a models file. */
  dialect?: DialectName;
  /** Bound of the wait for the first token of a stream. Absent: that of a models file. */
  firstTokenMs?: number;
}

/** Fields that local model servers understand beyond OpenAI's; strict servers refuse them by themselves. */
const UPSTREAM_PASS_FIELDS = [
  "top_k",
  "min_p",
  "logit_bias",
  "reasoning_effort",
  "chat_template_kwargs",
];

/**
 * A catalog of one model server, offered under the identifier of the service
 * specification only: its own name is the operator's business. What the model
 * can do is left to the server to say. Throws a {@link ConfigError} when the
 * shortcut cannot be used.
 */
export function catalogFromUpstream(shortcut: UpstreamShortcut): Catalog {
  const {
    baseUrl,
    apiKeyEnv,
    model = DEFAULT_MODEL_ID,
    dialect = DIALECT_DEFAULT,
    firstTokenMs,
  } = shortcut;
  const mistakes = [
    ...mistakesOf(baseUrlSchema.safeParse(baseUrl), baseUrl, "the base URL"),
    ...mistakesOf(
      envNameSchema.optional().safeParse(apiKeyEnv),
      apiKeyEnv,
      "the key's variable",
    ),
    ...mistakesOf(upstreamModelSchema.safeParse(model), model, "the model"),
  ];
  if (mistakes.length > 0) throw new ConfigError("the upstream", mistakes);
  return parseCatalog({
    models: [{
      id: DEFAULT_MODEL_ID,
      vision: true,
      pass_fields: UPSTREAM_PASS_FIELDS,
      backends: [{
        type: "openai",
        name: "upstream",
        base_url: baseUrl,
        api_key_env: apiKeyEnv,
        model,
        dialect,
        deadlines: { first_token_ms: firstTokenMs },
      }],
    }],
  });
}

/** Bounds of the simulated model: those of large hosted ones. */
const SIMULATED_CONTEXT_TOKENS = 200_000;
const SIMULATED_OUTPUT_TOKENS = 32_768;

/**
 * The catalog of an installation without a model server: the model of the service
 * specification, simulated by the `model-simulator` at this URL. Throws a
 * {@link ConfigError} when the URL cannot be used.
 */
export function catalogFromSimulator(baseUrl: string): Catalog {
  const mistakes = mistakesOf(
    baseUrlSchema.safeParse(baseUrl),
    baseUrl,
    "the base URL",
  );
  if (mistakes.length > 0) throw new ConfigError("the simulator", mistakes);
  return parseCatalog({
    models: [{
      id: DEFAULT_MODEL_ID,
      owned_by: "simulator",
      context_tokens: SIMULATED_CONTEXT_TOKENS,
      output_tokens: SIMULATED_OUTPUT_TOKENS,
      vision: true,
      pass_fields: UPSTREAM_PASS_FIELDS,
      backends: [{
        type: "openai",
        name: "simulator",
        base_url: baseUrl,
        model: DEFAULT_MODEL_ID,
      }],
    }],
  });
}

/** The JSON Schema of `models.json`, for editors. */
export function catalogJsonSchema(): { [key: string]: unknown } {
  return z.toJSONSchema(catalogFileSchema, { io: "input" });
}

function toModel(file: ModelFile): ModelConfig {
  return {
    id: file.id,
    kind: file.kind,
    ownedBy: file.owned_by,
    created: file.created,
    ...(file.context_tokens === undefined
      ? {}
      : { contextTokensMax: file.context_tokens }),
    ...(file.output_tokens === undefined
      ? {}
      : { outputTokensMax: file.output_tokens }),
    ...(file.choices === undefined ? {} : { choicesMax: file.choices }),
    vision: file.vision,
    passFields: [...new Set(file.pass_fields)],
    backends: file.backends.map(toBackend),
  };
}

function toBackend(file: BackendFile, index: number): BackendConfig {
  const name = file.name ?? defaultBackendName(file.type, index);
  const { weight, preference } = file;
  const backend: BackendConfig = {
    type: "openai",
    name,
    baseUrl: file.base_url.replace(/\/+$/, ""),
    model: file.model,
    weight,
    preference,
    headers: file.headers,
    deadlines: {
      connectMs: file.deadlines.connect_ms,
      firstTokenMs: file.deadlines.first_token_ms,
      betweenTokensMs: file.deadlines.between_tokens_ms,
      totalMs: file.deadlines.total_ms,
    },
    dialect: dialectOf(file),
  };
  if (file.api_key_env !== undefined) backend.apiKeyEnv = file.api_key_env;
  return backend;
}
