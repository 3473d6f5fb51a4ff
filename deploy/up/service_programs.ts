import type { Program } from "./child.ts";
import { filesNamedIn } from "./file_variables.ts";
import type { UpOptions } from "./options.ts";

/** The entry files of the services, absolute. Tests put stand-ins here. */
export interface ServiceScripts {
  edge: string;
  worker: string;
  admin: string;
  /** The command line that manages keys. */
  keys: string;
}

/** The entry files of the product. */
export function productScripts(root: string): ServiceScripts {
  return {
    edge: `${root}/services/edge-auth/main.ts`,
    worker: `${root}/services/chat-worker/main.ts`,
    admin: `${root}/services/key-admin/main.ts`,
    keys: `${root}/services/key-admin/cli.ts`,
  };
}

/** What every service of one cluster shares. */
export interface ProgramContext {
  /** The Deno that runs the launcher also runs the services. */
  execPath: string;
  root: string;
  scripts: ServiceScripts;
  /** The launcher's own environment: what is not set here is passed on. */
  env: Readonly<Record<string, string>>;
  options: UpOptions;
  natsUrl: string;
  redisUrl: string;
}

/** The services bind these on loopback only; the launcher reads the numbers from `ready`. */
const ANY_PORT = "0";
/** Ctrl-C on a workstation should not wait for a long answer as a rollout does. */
const DRAIN_SECONDS = "10";

/** Argon2 is native code, and looks at `ldd` to find out which build of it fits. */
const PASSWORD_HASHER = { readable: ["/usr/bin/ldd"], flags: ["--allow-ffi"] };

/** Only the worker talks to model servers, so only it gets their secret. */
const WORKER_ONLY = new Set(["UPSTREAM_API_KEY", "UPSTREAM_API_KEY_FILE"]);

/** The public door. `port` 0: any free one. */
export function edgeProgram(context: ProgramContext, port: number): Program {
  const { scripts, options, redisUrl, natsUrl } = context;
  return denoProgram(context, scripts.edge, [], {
    ...withoutSecrets(sharedEnv(context)),
    HOST: options.host,
    PORT: String(port),
    OPS_PORT: ANY_PORT,
    OTEL_SERVICE_NAME: "edge-auth",
    REDIS_URL: redisUrl,
    NATS_URL: natsUrl,
  });
}

/** Runs completions. May reach any host and read any variable: the model list names both. */
export function workerProgram(context: ProgramContext): Program {
  return denoProgram(context, context.scripts.worker, [], {
    ...sharedEnv(context),
    OPS_PORT: ANY_PORT,
    OTEL_SERVICE_NAME: "chat-worker",
    NATS_URL: context.natsUrl,
  });
}

/** The console and the key lifecycle. `port` must be a real one: links are made with it. */
export function adminProgram(
  context: ProgramContext,
  port: number,
  edgePort: number,
): Program {
  const { scripts, options, redisUrl, natsUrl, env } = context;
  return denoProgram(context, scripts.admin, [], {
    ...withoutSecrets(sharedEnv(context)),
    HOST: options.host,
    PORT: String(port),
    OPS_PORT: ANY_PORT,
    OTEL_SERVICE_NAME: "key-admin",
    REDIS_URL: redisUrl,
    NATS_URL: natsUrl,
    PUBLIC_URL: env.PUBLIC_URL ?? httpUrl(options.host, port),
    API_URL: env.API_URL ?? `${httpUrl(options.host, edgePort)}/v1`,
  }, PASSWORD_HASHER);
}

/** Creates a key and prints `{"id":"key_…","key":"sk-…"}`. */
export function createKeyProgram(
  context: ProgramContext,
  description: string,
): Program {
  const args = ["keys", "create", "--description", description, "--json"];
  return denoProgram(context, context.scripts.keys, args, {
    ...withoutSecrets(sharedEnv(context)),
    REDIS_URL: context.redisUrl,
    NATS_URL: context.natsUrl,
  });
}

/** Where to reach a service that listens on `host`: "all addresses" is no address to call. */
export function httpUrl(host: string, port: number): string {
  const isAny = host === "0.0.0.0" || host === "::";
  const name = isAny ? "127.0.0.1" : host.includes(":") ? `[${host}]` : host;
  return `http://${name}:${port}`;
}

function sharedEnv({ env, options }: ProgramContext): Record<string, string> {
  const shared: Record<string, string> = { DRAIN_SECONDS, ...env };
  // Each service is told where to listen and where the stores are.
  delete shared.NATS_URL_FILE;
  delete shared.REDIS_URL_FILE;
  delete shared.HOST;
  delete shared.PORT;
  delete shared.OPS_PORT;
  if (options.modelsFile !== undefined) shared.MODELS_FILE = options.modelsFile;
  return shared;
}

function withoutSecrets(env: Record<string, string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).filter(([name]) => !WORKER_ONLY.has(name)),
  );
}

function denoProgram(
  { execPath, root, options }: ProgramContext,
  script: string,
  args: readonly string[],
  environment: Record<string, string>,
  more: { readable: readonly string[]; flags: readonly string[] } = {
    readable: [],
    flags: [],
  },
): Program {
  // Their own files, not those of this run: a key lies among those.
  const readable = [`${root}/services`, `${root}/shared`, ...more.readable];
  if (options.modelsFile !== undefined) readable.push(options.modelsFile);
  readable.push(...filesNamedIn(environment));
  return {
    file: execPath,
    args: [
      "run",
      "--no-prompt",
      "--allow-net",
      "--allow-env",
      allowRead(readable),
      ...more.flags,
      script,
      ...args,
    ],
    env: environment,
    cwd: root,
  };
}

/** Deno has no way to write a comma in a path of its list: then all may be read. */
function allowRead(paths: readonly string[]): string {
  const isListable = paths.every((path) => !path.includes(","));
  return isListable ? `--allow-read=${paths.join()}` : "--allow-read";
}

/** Patience with a service that was told to stop: its own drain time and some more. */
export function stopGraceMs(env: Readonly<Record<string, string>>): number {
  const seconds = Number(env.DRAIN_SECONDS ?? DRAIN_SECONDS);
  return ((seconds >= 0 ? seconds : 0) + 5) * 1_000;
}
