/** The one place of this service that reads the environment. */
import {
  ConfigError,
  type ConfigOf,
  integer,
  parseEnv,
  secret,
} from "@gateway/shared/process/env";
import type { LogLevel } from "@gateway/shared/process/log";
import type { Catalog } from "@gateway/shared/models/catalog";
import {
  CATALOG_VARIABLES,
  catalogOf,
  UPSTREAM_KEY_ENV,
} from "@gateway/shared/models/catalog_variables";
import {
  type BusAccess,
  busAccess,
  NATS_VARIABLES,
  SERVICE_VARIABLES,
} from "@gateway/shared/process/service_variables";

const MS_PER_SECOND = 1_000;

/** Every variable of the worker. The keys of backends in `MODELS_FILE` have the names given there. */
export const WORKER_VARIABLES = {
  ...SERVICE_VARIABLES,
  ...NATS_VARIABLES,
  ...CATALOG_VARIABLES,
  [UPSTREAM_KEY_ENV]: secret().optional()
    .describe("Sent to UPSTREAM_BASE_URL; nothing is sent if absent"),
  SLOTS: integer("requests", { min: 1, max: 100_000 }).default(1_024)
    .describe("Requests one worker runs at once; beyond it they go elsewhere"),
};

/** What the worker was told, in the units and shapes its code uses. */
export interface WorkerConfig {
  logLevel: LogLevel;
  ops: { hostname: string; port: number };
  bus: BusAccess;
  catalog: Catalog;
  /** Keys of model servers by the name of the variable that holds them. */
  backendKeys: ReadonlyMap<string, string>;
  slots: number;
  drainMs: number;
}

/** Reads the environment of this process. Throws a `ConfigError` with every mistake. */
export function readConfig(): WorkerConfig {
  const env = Deno.env.toObject();
  return toConfig(
    parseEnv(WORKER_VARIABLES, env, Deno.readTextFileSync),
    env,
  );
}

function toConfig(
  settings: ConfigOf<typeof WORKER_VARIABLES>,
  env: Record<string, string>,
): WorkerConfig {
  const upstreamKey = settings[UPSTREAM_KEY_ENV];
  const catalog = catalogOf(settings, upstreamKey !== undefined);
  return {
    logLevel: settings.LOG_LEVEL,
    ops: { hostname: settings.OPS_HOST, port: settings.OPS_PORT },
    bus: busAccess(settings),
    catalog,
    backendKeys: keysOf(catalog, {
      ...env,
      ...(upstreamKey === undefined ? {} : { [UPSTREAM_KEY_ENV]: upstreamKey }),
    }),
    slots: settings.SLOTS,
    drainMs: settings.DRAIN_SECONDS * MS_PER_SECOND,
  };
}

/** The keys that the catalog names. A name without a value is a mistake of the operator. */
function keysOf(
  catalog: Catalog,
  env: Record<string, string>,
): ReadonlyMap<string, string> {
  const keys = new Map<string, string>();
  const missing = new Set<string>();
  for (const { backends } of catalog.values()) {
    for (const backend of backends) {
      if (backend.apiKeyEnv === undefined) continue;
      const key = env[backend.apiKeyEnv]?.trim();
      if (key === undefined || key === "") missing.add(backend.apiKeyEnv);
      else keys.set(backend.apiKeyEnv, key);
    }
  }
  if (missing.size > 0) {
    throw new ConfigError(
      "the environment",
      [...missing].map((name) =>
        `${name} is missing: the models file names it as the key of a backend`
      ),
    );
  }
  return keys;
}
