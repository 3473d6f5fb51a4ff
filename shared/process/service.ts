/** The life cycle of every service process, from its configuration to its exit. */
import { VERSION, versionLine } from "../version.ts";
import { wallNow } from "./clock.ts";
import { ConfigError, EXIT_CONFIG } from "./env.ts";
import {
  createLineWriter,
  createLog,
  type Log,
  type LogFields,
  type LogLevel,
} from "./log.ts";
import { MetricRegistry } from "./metrics.ts";
import { type Connections, serveOps } from "./ops_server.ts";

const EXIT_OK = 0;
const EXIT_FAILED = 1;

export interface ServiceTools {
  log: Log;
  registry: MetricRegistry;
}

export interface RunningService extends Connections {
  ready: LogFields;
  stop(): Promise<void>;
}

/**
 * Runs a service, with its operations port, until SIGTERM or SIGINT, which drain it; a
 * second signal ends it at once. Ends the process with status 0 after a drain, 78 for
 * configuration mistakes, 1 for everything else. With `--version` it only prints it.
 */
export async function runService<
  Config extends {
    logLevel: LogLevel;
    logSample?: number;
    ops: { hostname: string; port: number };
  },
>(
  { name, readConfig, start }: {
    name: string;
    /** Throws {@link ConfigError}. */
    readConfig: () => Config;
    start: (config: Config, own: ServiceTools) => Promise<RunningService>;
  },
): Promise<never> {
  if (Deno.args.includes("--version")) {
    print(Deno.stdout, versionLine(name));
    Deno.exit(EXIT_OK);
  }
  const signal = firstSignal();
  const config = configOrExit(readConfig);
  const writer = createLineWriter(
    Deno.stdout,
    (count) => log.warn("log_lines_dropped", { count }),
  );
  const log = createLog({
    service: name,
    level: config.logLevel,
    sample: config.logSample,
    now: wallNow,
    write: writer.write,
  });
  const registry = new MetricRegistry();
  let isStopping = false;
  let failure = "start_failed";
  let code = EXIT_OK;
  try {
    // A signal also ends a start that still waits for Redis or NATS.
    const starting = start(config, { log, registry });
    const service = await Promise.race([starting, signal]);
    if (typeof service !== "string") {
      const { ready } = service;
      const opsPort = serveOps({
        ...config.ops,
        ...service,
        registry,
        isStopping: () => isStopping,
      });
      log.notice("ready", { version: VERSION, ...ready, opsPort });
      log.info("stopping", { signal: await signal });
      isStopping = true;
      failure = "stop_failed";
      await service.stop();
    }
    log.info("stopped");
  } catch (error) {
    log.error(failure, { error });
    code = EXIT_FAILED;
  }
  await writer.flush();
  Deno.exit(code);
}

function configOrExit<Config>(readConfig: () => Config): Config {
  try {
    return readConfig();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    print(Deno.stderr, error.message);
    Deno.exit(EXIT_CONFIG);
  }
}

function print(to: typeof Deno.stdout, line: string): void {
  to.writeSync(new TextEncoder().encode(`${line}\n`));
}

function firstSignal(): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  let isSecond = false;
  for (const name of ["SIGTERM", "SIGINT"] as const) {
    Deno.addSignalListener(name, () => {
      if (isSecond) Deno.exit(EXIT_FAILED);
      isSecond = true;
      resolve(name);
    });
  }
  return promise;
}
