/** The configuration that the workers of all families have in common. */
import { HELD_BYTES_MAX } from "../limits.ts";
import {
  CATALOG_VARIABLES,
  catalogOf,
  UPSTREAM_KEY_ENV,
} from "../models/catalog_variables.ts";
import { familyOf } from "../models/kinds.ts";
import type { WorkerFamily } from "../bus/subjects.ts";
import {
  type ConfigOf,
  type Env,
  hidden,
  integer,
  parseEnv,
  path,
  secret,
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
import { type ReadFile, Reading } from "../reload/reading.ts";
import type { ProxyVariables } from "../upstream/http/proxy.ts";
import { backendKeys } from "./models/backend_keys.ts";
import type { WorkerList } from "./models/worker_models.ts";

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

/** Where keys of model servers are, besides in variables of their own. */
export const MODEL_KEYS_VARIABLES = {
  MODEL_KEYS_DIR: path().optional().describe(
    "Directory with the keys of model servers: a file for each, called like the variable that api_key_env names; read again when it changes. A variable of that name, or its _FILE, counts before",
  ),
};

/** The variables of every worker, each with its meaning and default. */
export const WORKER_VARIABLES = {
  ...COMMON_VARIABLES,
  ...REQUEST_LOG_VARIABLES,
  ...NATS_VARIABLES,
  ...CATALOG_VARIABLES,
  ...MODEL_KEYS_VARIABLES,
  ...MODEL_PROXY_VARIABLES,
  HELD_BYTES_MAX: integer("bytes", { min: MIB, max: 64 * GIB })
    .default(HELD_BYTES_MAX).describe(
      "Files, large requests and whole answers that this worker holds at a time, with the copies that are made of them; for a container of 1 GiB. The requests of one account together get at most two thirds of it, and a third while others wait. Beyond that a request waits for up to a second, then another worker is tried, then it gets 503",
    ),
};

/** The key for `UPSTREAM_BASE_URL`, which only chat workers have. */
export const UPSTREAM_KEY_VARIABLES = {
  [UPSTREAM_KEY_ENV]: secret().optional()
    .describe("API key for UPSTREAM_BASE_URL; if absent, none is sent"),
};

/** The variables that name the models of a worker and their keys. */
const LIST_VARIABLES = { ...CATALOG_VARIABLES, ...MODEL_KEYS_VARIABLES };

/** What {@link workerConfig} makes of the variables. */
export interface WorkerConfig {
  readonly logLevel: LogLevel;
  /** The share of requests that end well whose lines are written. */
  readonly logSample: number;
  /** Where the operations port listens. */
  readonly ops: { hostname: string; port: number };
  readonly bus: BusAccess;
  /** The models of this family and the keys of their servers, which may change. */
  readonly list: Reading<WorkerList>;
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
 * The configuration of a worker of this family. Throws a `ConfigError` with every
 * mistake.
 */
export function workerConfig(
  settings: ConfigOf<typeof WORKER_VARIABLES>,
  { env, readFile, family, slots, cacheSaltKey = null }: {
    env: Env;
    readFile: ReadFile;
    family: WorkerFamily;
    slots: number;
    /** The key of the salts, for backends with `cache_salt`. */
    cacheSaltKey?: string | null | undefined;
  },
): WorkerConfig {
  return {
    logLevel: settings.LOG_LEVEL,
    logSample: settings.LOG_SAMPLE,
    ops: { hostname: settings.OPS_HOST, port: settings.OPS_PORT },
    bus: busAccess(settings),
    list: new Reading((read) => readList(family, env, read), readFile),
    slots,
    cacheSaltKey,
    heldBytesMax: settings.HELD_BYTES_MAX,
    drainMs: settings.DRAIN_SECONDS * MS_PER_SECOND,
    proxies: proxiesOf(settings),
  };
}

/** The models of a family, and their keys. Throws a `ConfigError`. */
function readList(
  family: WorkerFamily,
  env: Env,
  readFile: ReadFile,
): WorkerList {
  const values = parseEnv(LIST_VARIABLES, env, readFile);
  const isChat = family === "chat";
  const upstream = isChat
    ? parseEnv(UPSTREAM_KEY_VARIABLES, env, readFile)
    : {};
  const all = catalogOf(values, {
    hasUpstreamKey: UPSTREAM_KEY_ENV in upstream &&
      upstream[UPSTREAM_KEY_ENV] !== undefined,
  });
  // Only chat workers have the key of a server that UPSTREAM_BASE_URL names.
  const isShared = isChat || values.MODELS_FILE !== undefined;
  const file = {
    models: all.file.models.filter(({ kind }) => familyOf(kind) === family),
    servers: isShared ? all.servers : [],
    prices: all.prices,
  };
  const directory = values.MODEL_KEYS_DIR;
  return { file, keys: backendKeys(file, { env, readFile, directory }) };
}
