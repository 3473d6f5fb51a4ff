import type { Catalog } from "../models/catalog.ts";
import * as catalogVariables from "../models/catalog_variables.ts";
import { familyOf } from "../models/kinds.ts";
import type { WorkerFamily } from "../bus/subjects.ts";
import { ConfigError, type ConfigOf, type Env } from "../process/env.ts";
import * as serviceVariables from "../process/service_variables.ts";

const MS_PER_SECOND = 1_000;

export const WORKER_VARIABLES = {
  ...serviceVariables.COMMON_VARIABLES,
  ...serviceVariables.REQUEST_LOG_VARIABLES,
  ...serviceVariables.NATS_VARIABLES,
  ...catalogVariables.CATALOG_VARIABLES,
};

export type WorkerConfig = ReturnType<typeof workerConfig>;

/**
 * The configuration of a worker of this family. Throws a {@link ConfigError} with every
 * mistake.
 */
export function workerConfig(
  settings: ConfigOf<typeof WORKER_VARIABLES>,
  { env, family, slots, upstreamKey }: {
    env: Env;
    family: WorkerFamily;
    slots: number;
    /** For `UPSTREAM_BASE_URL`. */
    upstreamKey?: string | undefined;
  },
) {
  const all = catalogVariables.catalogOf(settings, {
    hasUpstreamKey: upstreamKey !== undefined,
  });
  const catalog: Catalog = new Map(
    [...all].filter(([, { kind }]) => familyOf(kind) === family),
  );
  return {
    logLevel: settings.LOG_LEVEL,
    logSample: settings.LOG_SAMPLE,
    ops: { hostname: settings.OPS_HOST, port: settings.OPS_PORT },
    bus: serviceVariables.busAccess(settings),
    catalog,
    /** Keys of model servers by the name of the variable that holds them. */
    backendKeys: keysOf(catalog, {
      ...env,
      [catalogVariables.UPSTREAM_KEY_ENV]: upstreamKey,
    }),
    slots,
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
