import { resolve } from "node:path";
import type { Program } from "./child.ts";
import type { UpOptions } from "./options.ts";

/** The entry files of the services, absolute. Tests put stand-ins here. */
export interface ServiceScripts {
  edge: string;
  worker: string;
  admin: string;
  simulator: string;
  /** The command line that manages keys. */
  keys: string;
}

/** The entry files of the product. */
export function productScripts(root: string): ServiceScripts {
  return {
    edge: `${root}/services/edge-auth/main.ts`,
    worker: `${root}/services/chat-worker/main.ts`,
    admin: `${root}/services/key-admin/main.ts`,
    simulator: `${root}/services/model-simulator/main.ts`,
    keys: `${root}/services/key-admin/cli.ts`,
  };
}

type Environment = Readonly<Record<string, string>>;

/** What the services of one cluster share. */
export interface ProgramContext {
  /** The Deno that runs the launcher also runs the services. */
  execPath: string;
  root: string;
  scripts: ServiceScripts;
  /** The launcher's own environment: what is not set here is passed on. */
  env: Environment;
  options: UpOptions;
  natsUrl: string;
  redisUrl: string;
  /** Base URL of the model simulator, where it is used. */
  simulatorUrl?: string;
}

/** On loopback; the launcher reads the number from `ready`. */
const ANY_PORT = "0";
/** Ctrl-C should not wait for a long answer as a rollout does. */
const DRAIN_SECONDS = "10";
/** What a service may need beyond that to stop. */
const STOP_MS = 5_000;

/** Argon2 is native code, and reads `ldd` to find the build of it that fits. */
const PASSWORD_HASHER = { readable: ["/usr/bin/ldd"], flags: ["--allow-ffi"] };

/** Only workers call model servers. */
const WORKER_ONLY = ["UPSTREAM_API_KEY", "UPSTREAM_API_KEY_FILE"];

/** Variables that name a file: passwords, certificates. The list of models is an option. */
const FILE_VARIABLE = /^(NATS|REDIS|UPSTREAM|OIDC)_\w+_FILE$/;

/** Makes the paths in file variables absolute: the operator stands in `cwd`, services run elsewhere. */
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

/** The public door. `port` 0: any free one. */
export function edgeProgram(context: ProgramContext, port: number): Program {
  return denoProgram(context, context.scripts.edge, {
    OTEL_SERVICE_NAME: "edge-auth",
    HOST: context.options.host,
    PORT: String(port),
    NATS_URL: context.natsUrl,
    REDIS_URL: context.redisUrl,
  });
}

/** Runs completions. */
export function workerProgram(context: ProgramContext): Program {
  return denoProgram(context, context.scripts.worker, {
    OTEL_SERVICE_NAME: "chat-worker",
    NATS_URL: context.natsUrl,
  }, { isWorker: true });
}

/** The stand-in for a model server. */
export function simulatorProgram(
  context: ProgramContext,
  port: number,
): Program {
  return denoProgram(context, context.scripts.simulator, {
    OTEL_SERVICE_NAME: "model-simulator",
    HOST: "127.0.0.1",
    PORT: String(port),
  });
}

/** The console and the key lifecycle. `port` must be a real one: links are made with it. */
export function adminProgram(
  context: ProgramContext,
  port: number,
  edgePort: number,
): Program {
  const { options: { host }, env } = context;
  return denoProgram(context, context.scripts.admin, {
    OTEL_SERVICE_NAME: "key-admin",
    HOST: host,
    PORT: String(port),
    NATS_URL: context.natsUrl,
    REDIS_URL: context.redisUrl,
    PUBLIC_URL: env.PUBLIC_URL ?? httpUrl(host, port),
    API_URL: env.API_URL ?? `${httpUrl(host, edgePort)}/v1`,
  }, PASSWORD_HASHER);
}

/** `deno task keys …`. */
export function keysProgram(
  context: ProgramContext,
  args: readonly string[],
): Program {
  const program = denoProgram(context, context.scripts.keys, {
    NATS_URL: context.natsUrl,
    REDIS_URL: context.redisUrl,
  });
  return { ...program, args: [...program.args, "keys", ...args] };
}

/** Where to reach a service that listens on `host`: "all addresses" is no address to call. */
export function httpUrl(host: string, port: number): string {
  const isAny = host === "0.0.0.0" || host === "::";
  const name = isAny ? "127.0.0.1" : host.includes(":") ? `[${host}]` : host;
  return `http://${name}:${port}`;
}

/** How long a service that was told to stop may take. */
export function stopGraceMs({ DRAIN_SECONDS: given }: Environment): number {
  const seconds = Number(given ?? DRAIN_SECONDS);
  return (seconds >= 0 ? seconds : 0) * 1_000 + STOP_MS;
}

interface Extras {
  readable?: readonly string[];
  flags?: readonly string[];
  isWorker?: boolean;
}

function denoProgram(
  context: ProgramContext,
  script: string,
  own: Environment,
  { readable = [], flags = [], isWorker = false }: Extras = {},
): Program {
  const { execPath, root, options: { modelsFile }, simulatorUrl } = context;
  // Each service is told anew where to listen and where the stores are.
  const {
    NATS_URL_FILE: _nats,
    REDIS_URL_FILE: _redis,
    HOST: _host,
    PORT: _port,
    ...inherited
  } = context.env;
  const env: Record<string, string> = {
    DRAIN_SECONDS,
    ...inherited,
    OPS_PORT: ANY_PORT,
    ...modelsFile === undefined ? {} : { MODELS_FILE: modelsFile },
    ...simulatorUrl === undefined ? {} : { MODEL_SIMULATOR_URL: simulatorUrl },
    ...own,
  };
  if (!isWorker) { for (const name of WORKER_ONLY) delete env[name]; }
  // Not the files of this run: a key lies among those.
  const paths = [
    `${root}/services`,
    `${root}/shared`,
    ...readable,
    ...modelsFile === undefined ? [] : [modelsFile],
    ...Object.keys(env).filter((name) => FILE_VARIABLE.test(name))
      .flatMap((name) => env[name] || []),
  ];
  // Deno cannot write a path with a comma in its list: then all may be read.
  const isListable = paths.every((path) => !path.includes(","));
  const read = isListable ? `--allow-read=${paths.join()}` : "--allow-read";
  return {
    file: execPath,
    args: [
      ...["run", "--no-prompt", "--allow-net", "--allow-env", read],
      ...flags,
      script,
    ],
    env,
    cwd: root,
  };
}
