import { resolve } from "node:path";
import type { Program, ServiceName } from "./supervise.ts";

/** The gateway's own services, and the command line that manages keys. */
export type ProgramName = Exclude<ServiceName, "nats" | "redis"> | "keys";

type Environment = Readonly<Record<string, string>>;

/** The settings that all programs of a cluster share. */
export interface ProgramContext {
  root: string;
  /** The entry file of each program, absolute. Tests put stand-ins here. */
  scriptOf: (name: ProgramName) => string;
  /** The launcher's environment, which the programs inherit. */
  env: Environment;
  natsUrl: string;
  redisUrl: string;
  /** Base URL of the model simulator, where it is used. */
  simulatorUrl?: string;
}

/** Shorter than for a rollout: Ctrl-C should not wait for a long answer. */
const DRAIN_SECONDS = "10";
/** How much longer a service may need to stop. */
const STOP_MS = 5_000;

/** Only workers call model servers. */
const WORKER_ONLY = ["UPSTREAM_API_KEY", "UPSTREAM_API_KEY_FILE"];

/** Argon2 is native code and reads `ldd` to select its build. */
const PASSWORD_HASHER = { readable: ["/usr/bin/ldd"], flags: ["--allow-ffi"] };

/** Variables that name a file: passwords, certificates, the list of models. */
const FILE_VARIABLE = /^(MODELS|(NATS|REDIS|UPSTREAM|OIDC)_\w+)_FILE$/;

/** Makes the paths in file variables absolute: services run in another directory than `cwd`. */
export function withAbsoluteFiles(
  env: Environment,
  cwd: string,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).map(([name, value]) => [
      name,
      FILE_VARIABLE.test(name) && value !== "" ? resolve(cwd, value) : value,
    ]),
  );
}

/** A service with its own variables, such as `{ PORT: "0" }`. */
export function serviceProgram(
  context: ProgramContext,
  name: ProgramName,
  own: Environment = {},
  args: readonly string[] = [],
): Program {
  const { root, scriptOf, natsUrl, redisUrl, simulatorUrl } = context;
  const isWorker = name === "chat-worker";
  const { readable, flags } = name === "key-admin"
    ? PASSWORD_HASHER
    : { readable: [], flags: [] };
  // Each service gets its own values of these.
  const {
    NATS_URL_FILE: _nats,
    REDIS_URL_FILE: _redis,
    REDIS_URL: _url,
    HOST: _host,
    PORT: _port,
    ...inherited
  } = context.env;
  const env: Record<string, string> = {
    DRAIN_SECONDS,
    ...inherited,
    OTEL_SERVICE_NAME: name,
    OPS_PORT: "0",
    NATS_URL: natsUrl,
    ...isWorker ? {} : { REDIS_URL: redisUrl },
    ...simulatorUrl === undefined ? {} : { MODEL_SIMULATOR_URL: simulatorUrl },
    ...own,
  };
  if (!isWorker) { for (const secret of WORKER_ONLY) delete env[secret]; }
  // Not the data directory, which holds a key.
  const paths = [
    `${root}/services`,
    `${root}/shared`,
    ...readable,
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
      ...flags,
      scriptOf(name),
      ...args,
    ],
    env,
    cwd: root,
  };
}

/** The URL of a service that listens on `host`; loopback if that is all addresses. */
export function httpUrl(host: string, port: number): string {
  const isAny = host === "0.0.0.0" || host === "::";
  const name = isAny ? "127.0.0.1" : host.includes(":") ? `[${host}]` : host;
  return `http://${name}:${port}`;
}

/** How long a service may take to stop. */
export function stopGraceMs({ DRAIN_SECONDS: given }: Environment): number {
  const seconds = Number(given ?? DRAIN_SECONDS);
  return (seconds >= 0 ? seconds : 0) * 1_000 + STOP_MS;
}
