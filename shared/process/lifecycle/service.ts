/** The life cycle of every service process, from its configuration to its exit. */
import { VERSION, versionLine } from "../../version.ts";
import { wallNow } from "../clock.ts";
import { ConfigError, EXIT_CONFIG } from "../env.ts";
import {
  createLog,
  LineWriter,
  type Log,
  type LogFields,
  type LogLevel,
} from "../log.ts";
import { MetricRegistry } from "../metrics.ts";
import { type Connections, serveOps } from "./ops_server.ts";

const EXIT_OK = 0;
const EXIT_FAILED = 1;

/** What a service gets of its process. */
export interface ServiceTools {
  log: Log;
  /** Its metrics, which the operations port shows. */
  registry: MetricRegistry;
  /** Calls the listener at each SIGHUP, which otherwise ends the process. */
  onHangUp(listener: () => void): void;
}

/** A service that has started: its connections decide whether it is ready. */
export interface RunningService extends Connections {
  /** Fields of the log line `ready`, such as its port. */
  ready: LogFields;
  /** Drains the service, and resolves when its work has ended. */
  stop(): Promise<void>;
}

/** What every service's configuration has for {@link runService}. */
export interface ProcessConfig {
  logLevel: LogLevel;
  /** The share of requests that end well whose lines are written. Default: 1. */
  logSample?: number;
  /** Where the operations port listens; port 0 for any free one. */
  ops: { hostname: string; port: number };
}

/** What {@link runService} runs. */
export interface ServiceDefinition<Config extends ProcessConfig> {
  /** Its name in log lines and for `--version`. */
  name: string;
  /** Throws {@link ConfigError}. */
  readConfig: () => Config;
  /** Rejects if it cannot start, which ends the process. */
  start: (config: Config, own: ServiceTools) => Promise<RunningService>;
}

/**
 * Runs a service, with its operations port, until SIGTERM or SIGINT, which drain it; a
 * second signal ends it at once. Ends the process with status 0 after a drain, 78 for
 * configuration mistakes, 1 for everything else. With `--version` it only prints it.
 */
export async function runService<Config extends ProcessConfig>(
  { name, readConfig, start }: ServiceDefinition<Config>,
): Promise<never> {
  if (Deno.args.includes("--version")) {
    print(Deno.stdout, versionLine(name));
    Deno.exit(EXIT_OK);
  }
  const signal = firstSignal();
  const config = configOrExit(readConfig);
  const writer = new LineWriter(
    Deno.stdout,
    (count) => log.warn("log_lines_dropped", { count }),
  );
  const log = createLog({
    service: name,
    level: config.logLevel,
    sample: config.logSample,
    now: wallNow,
    write: (line, isUrgent) => writer.write(line, isUrgent),
  });
  const registry = new MetricRegistry();
  const tools: ServiceTools = {
    log,
    registry,
    onHangUp: (listener) => Deno.addSignalListener("SIGHUP", listener),
  };
  const code = await runToEnd({
    ...tools,
    start: () => start(config, tools),
    signal,
    config,
  });
  await writer.flush();
  Deno.exit(code);
}

interface Life extends ServiceTools {
  start: () => Promise<RunningService>;
  /** Resolves to the name of the first signal. */
  signal: Promise<string>;
  config: ProcessConfig;
}

/** Waits for the start, a signal and the drain. Returns the exit status. */
async function runToEnd(
  { start, signal, config, log, registry }: Life,
): Promise<number> {
  let isStopping = false;
  let failure = "start_failed";
  try {
    // A signal also ends a start that still waits for Redis or NATS.
    const service = await Promise.race([start(), signal]);
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
    return EXIT_OK;
  } catch (error) {
    log.error(failure, { error });
    return EXIT_FAILED;
  }
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
