import type { WorkerFamily } from "@gateway/shared/bus/subjects";
import { familyOf } from "@gateway/shared/models/kinds";
import { ROOT, type UpOptions } from "./options.ts";
import { findFreePorts, LOOPBACK, whyNotFree } from "./ports.ts";
import type { ModelSettings } from "./settings.ts";
import type { Program, Unit } from "./supervise.ts";
import { UpError } from "./terminal.ts";

export type ServiceName =
  | "edge-auth"
  | "chat-worker"
  | "media-worker"
  | "key-admin"
  | "model-simulator";
/** Those, and the command line that manages keys. */
export type ProgramName = ServiceName | "keys";

export type Environment = Readonly<Record<string, string>>;

export interface ProgramContext {
  cwd: string;
  /** The entry file of each program, absolute. Tests put stand-ins here. */
  scriptOf: (name: ProgramName) => string;
  /** The launcher's environment, which the programs inherit. */
  env: Environment;
  natsUrl: string;
  redisUrl: string;
}

/** Shorter than for a rollout: Ctrl-C should not wait for a long answer. */
const DRAIN_SECONDS = "10";
const STOP_MS = 5_000;

const SET_HERE = [
  "NATS_URL_FILE",
  "REDIS_URL",
  "REDIS_URL_FILE",
  "HOST",
  "PORT",
];
/** Only chat workers call that model server. */
const CHAT_WORKER_ONLY = ["UPSTREAM_API_KEY", "UPSTREAM_API_KEY_FILE"];

/** Variables that name a file: passwords, certificates, the list of models. */
const FILE_VARIABLE = /^(MODELS|(NATS|REDIS|UPSTREAM|OIDC)_\w+)_FILE$/;

/** Throws an {@link UpError} that names the option when a port or the address is not available. */
export function requireFreePorts({ host, port, consolePort }: UpOptions): void {
  const options = [["--port", port], ["--console-port", consolePort]] as const;
  for (const [option, port] of options) {
    const why = whyNotFree(port, host);
    if (why === undefined) continue;
    throw new UpError(
      `Cannot listen on ${host}:${port}: ${why}\n` +
        `Change it with ${option} or --host (port 0 = any free port)`,
    );
  }
}

/**
 * The services to start, in this order, and the addresses at which they will serve. All
 * ports are chosen in advance: the services name each other's URLs, and keep their
 * ports when restarted. Workers that no model needs are not started. They need NATS and Redis, but not each other.
 */
export function planServices(
  { host, port, consolePort, edges, workers, mediaWorkers }: UpOptions,
  context: ProgramContext,
  { hasSimulator, catalog }: Omit<ModelSettings, "keyOf">,
) {
  const { env } = context;
  const [simulatorPort = 0, freePort = 0, ...freePorts] = findFreePorts(
    2 + edges,
    host,
  );
  // The first edge gets the port that was asked for, unless that is 0.
  const edgePorts = port === 0 ? freePorts : freePorts.with(0, port);
  const edgeUrls = edgePorts.map((each) => httpUrl(host, each));
  const consoleUrl = httpUrl(host, consolePort || freePort);
  const simulatorUrl = `${httpUrl(LOOPBACK, simulatorPort)}/v1`;
  const shared = hasSimulator ? { MODEL_SIMULATOR_URL: simulatorUrl } : {};
  const unitsOf = (
    service: ServiceName,
    variables: readonly Environment[],
  ): Unit[] =>
    variables.map((own, nth) => ({
      name: nth === 0 ? service : `${service}-${nth + 1}`,
      service,
      program: serviceProgram(context, service, { ...shared, ...own }),
    }));
  const at = (host: string, port: number) => ({ HOST: host, PORT: `${port}` });
  const simulators = hasSimulator ? [at(LOOPBACK, simulatorPort)] : [];
  const console = {
    ...at(host, consolePort || freePort),
    PUBLIC_URL: env.PUBLIC_URL ?? consoleUrl,
    API_URL: env.API_URL ?? `${edgeUrls[0]}/v1`,
    EDGE_URL: env.EDGE_URL ?? `${edgeUrls[0]}/v1`,
  };
  const families = [...catalog.values()].map(({ kind }) => familyOf(kind));
  const workersOf = (family: WorkerFamily, count: number) =>
    unitsOf(
      `${family}-worker`,
      Array(families.includes(family) ? count : 0).fill({}),
    );
  const units = [
    ...unitsOf("model-simulator", simulators),
    ...unitsOf("key-admin", [console]),
    ...workersOf("chat", workers),
    ...workersOf("media", mediaWorkers),
    ...unitsOf("edge-auth", edgePorts.map((each) => at(host, each))),
  ];
  return { units, edgeUrls, consoleUrl };
}

/** A service with its own variables, such as `{ PORT: "0" }`. */
export function serviceProgram(
  { cwd, scriptOf, env: given, natsUrl, redisUrl }: ProgramContext,
  name: ProgramName,
  own: Environment = {},
  args: readonly string[] = [],
): Program {
  const isWorker = name === "chat-worker" || name === "media-worker";
  const isConsole = name === "key-admin";
  const env: Record<string, string> = { DRAIN_SECONDS, ...given };
  const dropped = name === "chat-worker"
    ? SET_HERE
    : [...SET_HERE, ...CHAT_WORKER_ONLY];
  for (const variable of dropped) delete env[variable];
  Object.assign(env, {
    // A larger young generation takes 100 MiB more under load, and gains no speed.
    DENO_V8_FLAGS: given.DENO_V8_FLAGS ?? "--max-semi-space-size=4",
    OTEL_SERVICE_NAME: name,
    OPS_PORT: "0",
    NATS_URL: natsUrl,
    ...isWorker ? {} : { REDIS_URL: redisUrl },
    ...own,
  });
  // Not the data directory, which holds a key.
  const paths = [
    `${ROOT}/services`,
    `${ROOT}/shared`,
    // Argon2 is native code and reads `ldd` to select its build.
    ...isConsole ? ["/usr/bin/ldd"] : [],
    ...Object.keys(env).filter((variable) => FILE_VARIABLE.test(variable))
      .flatMap((variable) => env[variable] || []),
  ];
  // Deno cannot express a path with a comma in this list; then allow all paths.
  const isListable = paths.every((path) => !path.includes(","));
  const read = isListable ? `--allow-read=${paths.join()}` : "--allow-read";
  return {
    file: Deno.execPath(),
    args: [
      ...["run", "--no-prompt", "--allow-net", "--allow-env", read],
      ...isConsole ? ["--allow-ffi"] : [],
      scriptOf(name),
      ...args,
    ],
    env,
    cwd,
  };
}

/** The URL of a service that listens on `host`; on loopback if it listens on all addresses. */
export function httpUrl(host: string, port: number): string {
  const isAny = host === "0.0.0.0" || host === "::";
  const address = isAny ? LOOPBACK : host;
  return `http://${address.includes(":") ? `[${address}]` : address}:${port}`;
}

export function stopGraceMs({ DRAIN_SECONDS: given }: Environment): number {
  const seconds = Number(given ?? DRAIN_SECONDS);
  return (seconds >= 0 ? seconds : 0) * 1_000 + STOP_MS;
}
