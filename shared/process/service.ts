/** The life cycle of every service process, from its configuration to its exit. */
import { VERSION, versionLine } from "../version.ts";
import { wallNow } from "./clock.ts";
import { ConfigError, EXIT_CONFIG } from "./env.ts";
import * as logs from "./log.ts";

const EXIT_OK = 0;
const EXIT_FAILED = 1;

export interface RunningService {
  ready: logs.LogFields;
  stop(): Promise<void>;
}

/**
 * Runs a service until SIGTERM or SIGINT, which drain it; a second signal ends it at
 * once. Ends the process with status 0 after a drain, 78 for configuration mistakes,
 * 1 for everything else. With `--version` it only prints the version.
 */
export async function runService<
  Config extends { logLevel: logs.LogLevel; logSample?: number },
>(
  { name, readConfig, start }: {
    name: string;
    /** Throws {@link ConfigError}. */
    readConfig: () => Config;
    start: (config: Config, log: logs.Log) => Promise<RunningService>;
  },
): Promise<never> {
  if (Deno.args.includes("--version")) {
    print(Deno.stdout, versionLine(name));
    Deno.exit(EXIT_OK);
  }
  const signal = firstSignal();
  const config = configOrExit(readConfig);
  const writer = logs.createLineWriter(
    Deno.stdout,
    (count) => log.warn("log_lines_dropped", { count }),
  );
  const log = logs.createLog({
    service: name,
    level: config.logLevel,
    sample: config.logSample,
    now: wallNow,
    write: writer.write,
  });
  let failure = "start_failed";
  let code = EXIT_OK;
  try {
    // A signal also ends a start that still waits for Redis or NATS.
    const service = await Promise.race([start(config, log), signal]);
    if (typeof service !== "string") {
      log.notice("ready", { version: VERSION, ...service.ready });
      log.info("stopping", { signal: await signal });
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
