/** The command line of `deno task up`. */
import { resolve } from "node:path";
import { versionLine } from "@gateway/shared/version";
import { Command, CommanderError, InvalidArgumentError } from "commander";
import { EXIT, UpError } from "./terminal.ts";

/** What to start, and where. Paths of directories are absolute. */
export interface UpOptions {
  workers: number;
  mediaWorkers: number;
  edges: number;
  port: number;
  consolePort: number;
  host: string;
  models?: string;
  dataDir: string;
  runDir: string;
  quiet?: true;
}

/** The folder of the repository. */
export const ROOT = resolve(import.meta.dirname ?? ".", "../..");

const NOTES = `
1 to 64 processes of each kind; media workers only if a model needs them.
Port 0 is any free port, which further edges take anyway.

Environment:
  NATS_URL, REDIS_URL   use these servers instead of private ones, with
                        NATS_USER, REDIS_CA_FILE and so on
  UPSTREAM_BASE_URL, UPSTREAM_API_KEY, UPSTREAM_MODEL,
  UPSTREAM_DIALECT, UPSTREAM_FIRST_TOKEN_SECONDS
                        an OpenAI-compatible model server; without one and
                        without a list of models, a simulator answers
  LOG_LEVEL, SLOTS, DRAIN_SECONDS and all other variables of the services`;

const wholeNumber = (min: number, max: number) => (text: string) => {
  const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
  if (value >= min && value <= max) return value;
  const range = `Must be a whole number from ${min} to ${max}`;
  throw new InvalidArgumentError(range);
};
const instances = wholeNumber(1, 64);
const port = wholeNumber(0, 65_535);

/**
 * Reads the command line, with paths relative to `cwd`. Returns the text that `--help`
 * or `--version` asks for; throws an {@link UpError}.
 */
export function parseOptions(args: readonly string[], cwd: string) {
  const path = (text: string) => resolve(cwd, text);
  let printed = "";
  const print = (text: string) => {
    printed += text;
  };
  const command = new Command("deno task up")
    .description("Starts the gateway on this machine; Ctrl-C stops it.")
    .option("--workers <n>", "chat-worker processes", instances, 1)
    .option("--media-workers <n>", "media-worker processes", instances, 1)
    .option("--edges <n>", "edge-auth processes", instances, 1)
    .option("--port <port>", "port of the first edge", port, 8080)
    .option("--console-port <port>", "port of the web console", port, 8081)
    .option("--host <address>", "address to listen on", "127.0.0.1")
    .option("--models <file>", "list of models and backends (MODELS_FILE)")
    .option("--data-dir <dir>", "keys and usage", path, `${ROOT}/.data`)
    .option("--run-dir <dir>", "up.json and logs", path, `${ROOT}/.run`)
    .option("-q, --quiet", "print warnings and errors only")
    .version(versionLine("gateway"), "--version", "print the version")
    .addHelpText("after", NOTES)
    .showHelpAfterError("See: npx -y deno task up --help")
    .exitOverride().configureOutput({ writeOut: print, writeErr: print });
  try {
    const options = command.parse(args, { from: "user" }).opts<UpOptions>();
    if (options.port !== 0 && options.port === options.consolePort) {
      command.error(
        `error: --port and --console-port are both ${options.port}: give two different ports, or 0 for any free one`,
      );
    }
    return options;
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return printed.trimEnd();
    throw new UpError(printed.trimEnd(), EXIT.usage);
  }
}
