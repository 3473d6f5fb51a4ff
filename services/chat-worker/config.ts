/** The only file of this service that reads the environment. */
import {
  ConfigError,
  type Env,
  integer,
  parseEnv,
  secret,
} from "@gateway/shared/process/env";
import type { Catalog } from "@gateway/shared/models/catalog";
import {
  CATALOG_VARIABLES,
  catalogOf,
  UPSTREAM_KEY_ENV,
} from "@gateway/shared/models/catalog_variables";
import {
  busAccess,
  NATS_VARIABLES,
  SERVICE_VARIABLES,
} from "@gateway/shared/process/service_variables";

const MS_PER_SECOND = 1_000;

/** Every variable of the worker, except the backend keys that `MODELS_FILE` names. */
export const WORKER_VARIABLES = {
  ...SERVICE_VARIABLES,
  ...NATS_VARIABLES,
  ...CATALOG_VARIABLES,
  [UPSTREAM_KEY_ENV]: secret().optional()
    .describe("API key for UPSTREAM_BASE_URL; if absent, none is sent"),
  SLOTS: integer("requests", { min: 1, max: 100_000 }).default(1_024)
    .describe("Requests that a worker runs at once; it rejects further ones"),
};

/** The configuration of the worker, in the units and shapes that its code uses. */
export type WorkerConfig = ReturnType<typeof readConfig>;

/** Reads the environment of this process. Throws a `ConfigError` with every mistake. */
export function readConfig() {
  const env = Deno.env.toObject();
  const settings = parseEnv(WORKER_VARIABLES, env, Deno.readTextFileSync);
  const upstreamKey = settings[UPSTREAM_KEY_ENV];
  const catalog = catalogOf(settings, upstreamKey !== undefined);
  return {
    logLevel: settings.LOG_LEVEL,
    ops: { hostname: settings.OPS_HOST, port: settings.OPS_PORT },
    bus: busAccess(settings),
    catalog,
    /** Keys of model servers by the name of the variable that holds them. */
    backendKeys: keysOf(catalog, { ...env, [UPSTREAM_KEY_ENV]: upstreamKey }),
    slots: settings.SLOTS,
    drainMs: settings.DRAIN_SECONDS * MS_PER_SECOND,
  };
}

/** The keys that the catalog names. A name without a value is a configuration error. */
function keysOf(catalog: Catalog, env: Env): ReadonlyMap<string, string> {
  const names = [...catalog.values()]
    .flatMap(({ backends }) => backends.map((each) => each.api_key_env))
    .filter((name) => name !== undefined);
  const keys = new Map(names.map((name) => [name, env[name]?.trim() ?? ""]));
  const missing = [...keys].filter(([, key]) => key === "").map(([name]) =>
    `${name} is missing: the models file names it as the key of a backend.\nSet it in the environment of the worker`
  );
  if (missing.length > 0) throw new ConfigError("the environment", missing);
  return keys;
}
