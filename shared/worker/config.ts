/** The configuration that the workers of all families have in common. */
import { HELD_BYTES_MAX } from "../limits.ts";
import { type Catalog, ModelCatalog } from "../models/catalog.ts";
import {
  CATALOG_VARIABLES,
  catalogOf,
  UPSTREAM_KEY_ENV,
} from "../models/catalog_variables.ts";
import { familyOf } from "../models/kinds.ts";
import type { WorkerFamily } from "../bus/subjects.ts";
import {
  ConfigError,
  type ConfigOf,
  type Env,
  hidden,
  integer,
  text,
  url,
} from "../process/env.ts";
import type { LogLevel } from "../process/log.ts";
import {
  type BusAccess,
  busAccess,
  COMMON_VARIABLES,
  NATS_VARIABLES,
  REQUEST_LOG_VARIABLES,
} from "../process/service_variables.ts";
import type { ProxyVariables } from "../upstream/http/proxy.ts";

const MS_PER_SECOND = 1_000;
const MIB = 1024 * 1024;
const GIB = 1024 * MIB;

/** A proxy's URL, which may contain a password. */
const proxyUrl = () => hidden(url(["http:"])).optional();

/** The proxies through which model servers are reached, as other programs obey them. */
export const MODEL_PROXY_VARIABLES = {
  HTTPS_PROXY: proxyUrl().describe(
    "HTTP proxy through which model servers with https are reached",
  ),
  HTTP_PROXY: proxyUrl().describe(
    "HTTP proxy through which model servers with http are reached, in a tunnel (CONNECT) too",
  ),
  NO_PROXY: text().optional().describe(
    "Model servers that are reached without a proxy, separated by commas: names, which include all below them, addresses, IPv4 blocks such as 10.0.0.0/8, or * for all; this machine always is",
  ),
};

/** The proxies that {@link MODEL_PROXY_VARIABLES} name. */
export function proxiesOf(
  { HTTPS_PROXY, HTTP_PROXY, NO_PROXY }: ConfigOf<typeof MODEL_PROXY_VARIABLES>,
): ProxyVariables {
  return {
    httpsProxy: HTTPS_PROXY,
    httpProxy: HTTP_PROXY,
    noProxy: NO_PROXY,
  };
}

/** The variables of every worker, each with its meaning and default. */
export const WORKER_VARIABLES = {
  ...COMMON_VARIABLES,
  ...REQUEST_LOG_VARIABLES,
  ...NATS_VARIABLES,
  ...CATALOG_VARIABLES,
  ...MODEL_PROXY_VARIABLES,
  HELD_BYTES_MAX: integer("bytes", { min: MIB, max: 64 * GIB })
    .default(HELD_BYTES_MAX).describe(
      "Files, large requests and whole answers that this worker holds at a time, with the copies that are made of them; for a container of 1 GiB. The requests of one account together get at most two thirds of it, and a third while others wait. Beyond that a request waits for up to a second, then another worker is tried, then it gets 503",
    ),
};

/** What {@link workerConfig} makes of the variables. */
export interface WorkerConfig {
  readonly logLevel: LogLevel;
  /** The share of requests that end well whose lines are written. */
  readonly logSample: number;
  /** Where the operations port listens. */
  readonly ops: { hostname: string; port: number };
  readonly bus: BusAccess;
  /** The models of this family. */
  readonly catalog: ModelCatalog;
  /** Keys of model servers by the name of the variable that holds them. */
  readonly backendKeys: ReadonlyMap<string, string>;
  /** Jobs that run at once. */
  readonly slots: number;
  /** Bytes of bodies and answers that the process may hold. */
  readonly heldBytesMax: number;
  /** The key of the salts of accounts; null: a random one. */
  readonly cacheSaltKey: string | null;
  /** How long running jobs may take to end after a signal. */
  readonly drainMs: number;
  /** The proxies through which model servers are reached. */
  readonly proxies: ProxyVariables;
}

/**
 * The configuration of a worker of this family. Throws a {@link ConfigError} with every
 * mistake.
 */
export function workerConfig(
  settings: ConfigOf<typeof WORKER_VARIABLES>,
  { env, family, slots, upstreamKey, cacheSaltKey = null }: {
    env: Env;
    family: WorkerFamily;
    slots: number;
    /** The key for `UPSTREAM_BASE_URL`. */
    upstreamKey?: string | undefined;
    /** The key of the salts, for backends with `cache_salt`. */
    cacheSaltKey?: string | null | undefined;
  },
): WorkerConfig {
  const all = catalogOf(settings, {
    hasUpstreamKey: upstreamKey !== undefined,
  });
  // Of a single server, only chat workers have the key.
  const isShared = family === "chat" || settings.MODELS_FILE !== undefined;
  const catalog = new ModelCatalog(
    [...all.values()].filter(({ kind }) => familyOf(kind) === family),
    isShared ? all.servers : [],
  );
  return {
    logLevel: settings.LOG_LEVEL,
    logSample: settings.LOG_SAMPLE,
    ops: { hostname: settings.OPS_HOST, port: settings.OPS_PORT },
    bus: busAccess(settings),
    catalog,
    backendKeys: backendKeys(catalog, {
      ...env,
      [UPSTREAM_KEY_ENV]: upstreamKey,
    }),
    slots,
    cacheSaltKey,
    heldBytesMax: settings.HELD_BYTES_MAX,
    drainMs: settings.DRAIN_SECONDS * MS_PER_SECOND,
    proxies: proxiesOf(settings),
  };
}

/**
 * The keys that the catalog names, by the names of their variables. Throws a
 * {@link ConfigError} if a name has no value.
 */
export function backendKeys(
  catalog: Catalog,
  env: Env,
): ReadonlyMap<string, string> {
  const backends = [...catalog.values()].flatMap(({ backends }) => backends);
  const templates = catalog.servers.map(({ template }) => template);
  const names = [...backends, ...templates].map((each) => each.api_key_env)
    .filter((name) => name !== undefined);
  const keys = new Map(names.map((name) => [name, env[name]?.trim() ?? ""]));
  const missing = [...keys].filter(([, key]) => key === "").map(([name]) =>
    `${name} is missing: the models file names it as the key of a backend.\nSet it in the environment of the worker`
  );
  if (missing.length > 0) throw new ConfigError("the environment", missing);
  return keys;
}
