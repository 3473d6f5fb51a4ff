/**
 * The life cycle of a service process: configuration, start, ready, signal, drain,
 * exit. It is the same for all services.
 */
import { wallNow } from "./clock.ts";
import { ConfigError, EXIT_CONFIG } from "./env.ts";
import {
  createLineWriter,
  createLog,
  type Log,
  type LogFields,
  type LogLevel,
} from "./log.ts";

/** Exit codes, after sysexits.h. */
const EXIT_OK = 0;
const EXIT_FAILED = 1;
const SIGNALS = ["SIGTERM", "SIGINT"] as const;

/** A service that has started. */
export interface RunningService {
  /** What the `ready` line says: ports and ids. */
  ready: LogFields;
  /** Finishes running work and releases everything. */
  stop(): Promise<void>;
}

export interface ServiceOptions<Config extends { logLevel: LogLevel }> {
  name: string;
  /** Throws {@link ConfigError}. */
  readConfig: () => Config;
  start: (config: Config, log: Log) => Promise<RunningService>;
}

/**
 * Runs a service until it is told to stop. SIGTERM and SIGINT drain it; a second
 * one ends it at once. Ends the process: 0 after a drain, 78 for configuration
 * mistakes, 1 for everything else.
 */
export async function runService<Config extends { logLevel: LogLevel }>(
  options: ServiceOptions<Config>,
): Promise<never> {
  const signal = nextSignal();
  const config = configOrExit(options);
  const writer = createLineWriter(Deno.stdout);
  const log = createLog({
    service: options.name,
    level: config.logLevel,
    now: wallNow,
    write: writer.write,
  });
  const code = await live(options, config, log, signal);
  await writer.flush();
  Deno.exit(code);
}

async function live<Config extends { logLevel: LogLevel }>(
  options: ServiceOptions<Config>,
  config: Config,
  log: Log,
  signal: Promise<string>,
): Promise<number> {
  let service: RunningService;
  try {
    service = await options.start(config, log);
  } catch (error) {
    log.error("start_failed", { error });
    return EXIT_FAILED;
  }
  log.notice("ready", service.ready);
  log.info("stopping", { signal: await signal });
  exitOnSignals();
  try {
    await service.stop();
  } catch (error) {
    log.error("stop_failed", { error });
    return EXIT_FAILED;
  }
  log.info("stopped");
  return EXIT_OK;
}

function configOrExit<Config extends { logLevel: LogLevel }>(
  options: ServiceOptions<Config>,
): Config {
  try {
    return options.readConfig();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    Deno.stderr.writeSync(new TextEncoder().encode(`${error.message}\n`));
    Deno.exit(EXIT_CONFIG);
  }
}

/** Resolves with the first signal that asks to stop. */
function nextSignal(): Promise<string> {
  return new Promise((resolve) => {
    for (const name of SIGNALS) {
      Deno.addSignalListener(name, () => resolve(name));
    }
  });
}

/** A second signal ends the process at once. */
function exitOnSignals(): void {
  for (const name of SIGNALS) {
    Deno.addSignalListener(name, () => Deno.exit(EXIT_FAILED));
  }
}
