/** What `up` starts: read from the environment, then planned as processes. */
import { readSettingsFile } from "@gateway/shared/reload/files";
import { resolve } from "node:path";
import type { WorkerFamily } from "@gateway/shared/bus/subjects";
import type { ModelCatalog } from "@gateway/shared/models/catalog";
import { familyOf } from "@gateway/shared/models/kinds";
import * as catalogVariables from "@gateway/shared/models/catalog_variables";
import {
  ConfigError,
  type ConfigOf,
  parseEnv,
} from "@gateway/shared/process/env";
import { natsUrls, redisUrl } from "@gateway/shared/process/service_variables";
import {
  type BackendKeys,
  backendKeys,
  type KeyPlaces,
} from "@gateway/shared/worker/models/backend_keys";
import {
  MODEL_KEYS_VARIABLES,
  MODEL_PROXY_VARIABLES,
  proxiesOf,
  UPSTREAM_KEY_VARIABLES,
} from "@gateway/shared/worker/config";
import type { ProxyVariables } from "@gateway/shared/upstream/http/proxy";
import type { Program, Unit } from "./cluster.ts";
import { ROOT, type UpOptions } from "./options.ts";
import { findFreePorts, LOOPBACK } from "./ports.ts";

/** A service, as its folder is named. */
export type ServiceName =
  | "edge-auth"
  | "chat-worker"
  | "media-worker"
  | "key-admin"
  | "model-simulator";
/** A service, or the command line that manages keys. */
export type ProgramName = ServiceName | "keys";

/** Variables by name. */
export type Environment = Readonly<Record<string, string>>;

/** What all programs of the launcher have in common. */
export interface ProgramContext {
  /** Their working directory. */
  cwd: string;
  /** The entry file of each program, absolute. Tests put stand-ins here. */
  scriptOf: (name: ProgramName) => string;
  /** The launcher's environment, which the programs inherit. */
  env: Environment;
  natsUrl: string;
  redisUrl: string;
}

const VARIABLES = {
  NATS_URL: natsUrls().optional(),
  REDIS_URL: redisUrl().optional(),
  ...UPSTREAM_KEY_VARIABLES,
  ...catalogVariables.CATALOG_VARIABLES,
  ...MODEL_KEYS_VARIABLES,
  ...MODEL_PROXY_VARIABLES,
};
/** Shorter than for a rollout: Ctrl-C should not wait for a long answer. */
const DRAIN_SECONDS = "10";
const STOP_MS = 5_000;

/**
 * By default, glibc keeps for each thread what it has freed: 20 MiB in all, for
 * nothing. And what is smaller than the threshold lies in one heap, which shrinks only
 * at its end: after 200 connections with large bodies, whose buffers have 64 KiB, an
 * edge kept 80 MiB of it for good. A connection uses its buffer again, so a small
 * request costs nothing more. Without a threshold, glibc raises its own to the largest
 * array that was freed.
 */
export const MALLOC = {
  MALLOC_ARENA_MAX: "1",
  MALLOC_MMAP_THRESHOLD_: "32768",
};

/**
 * A larger young generation gains little; creating as old what each request drops costs
 * a sixth of the CPU. V8 drops compiled code together with unused memory: that may wait
 * for 30 idle seconds. Other versions may not know these flags, and would not start.
 */
export function v8Flags(version: string): string {
  const flags = ["--max-semi-space-size=4"];
  if (version.startsWith("15.")) {
    flags.push("--no-allocation-site-pretenuring");
    flags.push("--memory-reducer-delay-ms=30000");
  }
  return flags.join();
}

/**
 * Variables that services do not inherit: they are set here, or passed on as the URL
 * that was read from the file.
 */
const SET_HERE = /^(NATS_URL_FILE|REDIS_URL|REDIS_URL_FILE|HOST|PORT)$/;
/** Only chat workers call that model server, or send salts. */
const CHAT_WORKER_ONLY = /^(UPSTREAM_API|CACHE_SALT)_KEY(_FILE)?$/;
/** Variables that name a file: passwords, certificates, the list of models. */
const FILE_VARIABLE =
  /^(MODELS|(NATS|REDIS|UPSTREAM|CACHE_SALT|OIDC)_\w+)_FILE$/;
/** Variables of workers that name where keys of model servers are. */
const KEY_VARIABLE = /_(KEY|TOKEN)_FILE$|^MODEL_KEYS_DIR$/;

/** What the environment says about stores and models: {@link readSettings}. */
export interface Settings extends ConfigOf<typeof VARIABLES> {
  /** Whether the environment names no models, so that a simulator serves them. */
  hasSimulator: boolean;
  /** The way to model servers. */
  proxies: ProxyVariables;
  catalog: ModelCatalog;
  /** The key of a model server that this variable holds. */
  keyOf: (variable: string) => string | undefined;
}

/**
 * Reads the environment and the files that it names, relative to `cwd`. Throws a
 * `ConfigError` with all mistakes.
 */
export function readSettings(env: Environment, cwd: string): Settings {
  const readFile = (path: string) => readSettingsFile(resolve(cwd, path));
  const values = parseEnv(VARIABLES, env, readFile);
  const { [catalogVariables.UPSTREAM_KEY_ENV]: upstreamKey } = values;
  const modelsCatalog = catalogVariables.catalogIfGiven(values, {
    hasUpstreamKey: upstreamKey !== undefined,
  });
  const catalog = modelsCatalog ??
    catalogVariables.catalogFromSimulator("http://simulator/v1");
  const directory = values.MODEL_KEYS_DIR;
  const keys = keysOf(catalog, { env, readFile, directory });
  return {
    ...values,
    hasSimulator: modelsCatalog === undefined,
    proxies: proxiesOf(values),
    catalog,
    keyOf: (variable) => keys.get(variable),
  };
}

/** The keys of model servers; none if one is missing, which workers say themselves. */
function keysOf(catalog: ModelCatalog, places: KeyPlaces): BackendKeys {
  try {
    return backendKeys(catalog.file, places);
  } catch (error) {
    if (error instanceof ConfigError) return new Map();
    throw error;
  }
}

/**
 * The services to start, and the addresses at which they will serve, without workers
 * that no model needs. All ports are chosen in advance: the services name each other's
 * URLs, and keep their ports when restarted.
 */
export function planServices(
  { host, port, consolePort, edges, workers, mediaWorkers }: UpOptions,
  context: ProgramContext,
  { hasSimulator, catalog }: Pick<Settings, "hasSimulator" | "catalog">,
) {
  const { env } = context;
  const [simulatorPort = 0, freePort = 0, ...freePorts] = findFreePorts(
    2 + edges,
    host,
  );
  // The first edge gets the port that was asked for, unless that is 0.
  const edgePorts = port === 0 ? freePorts : freePorts.with(0, port);
  const edgeUrls = edgePorts.map((each) => httpUrl(host, each));
  const [edgeUrl = ""] = edgeUrls;
  const consoleUrl = httpUrl(host, consolePort || freePort);
  const simulatorUrl = `${httpUrl(LOOPBACK, simulatorPort)}/v1`;
  const shared = hasSimulator ? { MODEL_SIMULATOR_URL: simulatorUrl } : {};
  // Models that servers list are not known yet, but some of their kinds are.
  const listed = catalog.servers.flatMap(({ kinds }) => Object.values(kinds));
  const kinds = [
    ...catalog.values().map(({ kind }) => kind),
    ...listed.filter((kind) => kind !== "none"),
  ];
  const families = kinds.map((kind) => familyOf(kind));
  if (catalog.servers.length > 0) families.push("chat");
  const copies = (family: WorkerFamily, count: number) =>
    Array(families.includes(family) ? count : 0).fill({});
  const at = (host: string, port: number) => ({ HOST: host, PORT: `${port}` });
  const console = {
    ...at(host, consolePort || freePort),
    PUBLIC_URL: env.PUBLIC_URL ?? consoleUrl,
    API_URL: env.API_URL ?? `${edgeUrl}/v1`,
    EDGE_URL: env.EDGE_URL ?? `${edgeUrl}/v1`,
    OTEL_DENO: "false", // Deno would record addresses with the secrets of links.
  };
  /** The variables of each process of a service. */
  const processes: [ServiceName, Environment[]][] = [
    ["model-simulator", hasSimulator ? [at(LOOPBACK, simulatorPort)] : []],
    ["key-admin", [console]],
    ["chat-worker", copies("chat", workers)],
    ["media-worker", copies("media", mediaWorkers)],
    ["edge-auth", edgePorts.map((each) => at(host, each))],
  ];
  const units = processes.flatMap(([service, variables]) =>
    variables.map((own, nth): Unit => ({
      name: nth === 0 ? service : `${service}-${nth + 1}`,
      service,
      program: serviceProgram(context, service, {
        variables: { ...shared, ...own },
      }),
    }))
  );
  return {
    units,
    edgeUrls,
    consoleUrl,
    simulatorUrl: hasSimulator ? simulatorUrl : null,
  };
}

/** Returns the command that runs a service, or the command line of keys. */
export function serviceProgram(
  { cwd, scriptOf, env: environment, natsUrl, redisUrl }: ProgramContext,
  name: ProgramName,
  { variables = {}, args = [] }: {
    /** Its own variables, such as `{ PORT: "0" }`. */
    variables?: Environment;
    args?: readonly string[];
  } = {},
): Program {
  const isWorker = name === "chat-worker" || name === "media-worker";
  const isConsole = name === "key-admin";
  const inherited = Object.entries(environment).filter(([variable]) =>
    !SET_HERE.test(variable) &&
    (name === "chat-worker" || !CHAT_WORKER_ONLY.test(variable))
  );
  const env: Record<string, string> = {
    DRAIN_SECONDS,
    DENO_V8_FLAGS: v8Flags(Deno.version.v8),
    ...MALLOC,
    ...Object.fromEntries(inherited),
    OTEL_SERVICE_NAME: name,
    OPS_PORT: "0",
    NATS_URL: natsUrl,
    ...!isWorker && { REDIS_URL: redisUrl },
    ...variables,
  };
  // Not the data directory, which holds a key.
  const paths = [
    `${ROOT}/services`,
    `${ROOT}/shared`,
    // Argon2 is native code and reads `ldd` to select its build.
    ...isConsole ? ["/usr/bin/ldd"] : [],
    ...Object.keys(env).filter((variable) =>
      FILE_VARIABLE.test(variable) || (isWorker && KEY_VARIABLE.test(variable))
    )
      .flatMap((variable) => env[variable] || []),
  ];
  // Deno cannot express a path with a comma in the list.
  const isListable = paths.every((path) => !path.includes(","));
  return {
    file: Deno.execPath(),
    args: [
      "run",
      "--no-prompt",
      "--allow-net",
      "--allow-env",
      isListable ? `--allow-read=${paths.join()}` : "--allow-read",
      ...isConsole ? ["--allow-ffi"] : [],
      scriptOf(name),
      ...args,
    ],
    env,
    cwd,
  };
}

/**
 * The URL of a service that listens on `host`; on loopback if it listens on all
 * addresses.
 */
export function httpUrl(host: string, port: number): string {
  const isAny = host === "0.0.0.0" || host === "::";
  const address = isAny ? LOOPBACK : host;
  return `http://${address.includes(":") ? `[${address}]` : address}:${port}`;
}

/** How long a service may take to stop: its drain, and some seconds more. */
export function stopGraceMs(
  { DRAIN_SECONDS: drainSeconds }: Environment,
): number {
  const seconds = Number(drainSeconds ?? DRAIN_SECONDS);
  return (seconds >= 0 ? seconds : 0) * 1_000 + STOP_MS;
}
