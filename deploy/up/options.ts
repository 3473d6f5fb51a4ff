import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { errorMessage } from "@gateway/shared/process/env";
import { didYouMean } from "@gateway/shared/process/error_text";
import { EXIT, UpError } from "./terminal.ts";

/** The options of the command, see {@link USAGE}. Paths are absolute. */
export type UpOptions = ReturnType<typeof parseOptions>;

export const ROOT = resolve(import.meta.dirname ?? ".", "../..");

const INSTANCES = [1, 64] as const;
const PORTS = [0, 65_535] as const;

export const USAGE = `Starts the gateway on this machine; Ctrl-C stops it.

Usage: deno task up [options]

  --workers N        chat-worker processes, 1 to ${INSTANCES[1]} (1)
  --media-workers N  media-worker processes, 1 to 64 (1), if models need them
  --edges N          edge-auth processes, 1 to ${INSTANCES[1]} (1)
  --port P           port of the first edge, 0 = any free port (8080);
                     further edges take any free port
  --console-port P   port of the web console, 0 = any free port (8081)
  --host ADDRESS     address to listen on (127.0.0.1)
  --models FILE      list of models and their backends (MODELS_FILE)
  --data-dir DIR     data that must survive: keys, usage (.data)
  --run-dir DIR      up.json and logs of this run (.run)
  --quiet, -q        print warnings and errors only
  --version          print the version
  --help, -h         print this

Environment:
  NATS_URL, REDIS_URL   use these servers instead of private ones, with
                        NATS_USER, REDIS_CA_FILE and so on
  UPSTREAM_BASE_URL, UPSTREAM_API_KEY, UPSTREAM_MODEL,
  UPSTREAM_DIALECT, UPSTREAM_FIRST_TOKEN_SECONDS
                        an OpenAI-compatible model server; without one and
                        without a list of models, a simulator answers
  LOG_LEVEL, SLOTS, DRAIN_SECONDS and all other variables of the services`;

const text = (fallback: string) =>
  ({ type: "string", default: fallback }) as const;
const OPTIONS = {
  workers: text("1"),
  "media-workers": text("1"),
  edges: text("1"),
  port: text("8080"),
  "console-port": text("8081"),
  host: text("127.0.0.1"),
  models: text(""),
  "data-dir": text(""),
  "run-dir": text(""),
  quiet: { type: "boolean", short: "q" },
  version: { type: "boolean" },
  help: { type: "boolean", short: "h" },
} as const;

/** Reads the command line, with paths relative to `cwd`. Throws an {@link UpError} for all mistakes at once. */
export function parseOptions(args: readonly string[], cwd: string) {
  const values = readWords(args);
  const mistakes: string[] = [];
  const number = (
    name: "workers" | "media-workers" | "edges" | "port" | "console-port",
    [min, max]: readonly [number, number],
  ) => {
    const given = values[name];
    const value = /^\d{1,9}$/.test(given) ? Number(given) : NaN;
    if (!(value >= min && value <= max)) {
      mistakes.push(
        `--${name} must be a whole number from ${min} to ${max}, got "${given}"`,
      );
    }
    return value;
  };
  const options = {
    workers: number("workers", INSTANCES),
    mediaWorkers: number("media-workers", INSTANCES),
    edges: number("edges", INSTANCES),
    host: values.host,
    port: number("port", PORTS),
    consolePort: number("console-port", PORTS),
    dataDir: resolve(cwd, values["data-dir"] || `${ROOT}/.data`),
    runDir: resolve(cwd, values["run-dir"] || `${ROOT}/.run`),
    models: values.models,
    isQuiet: values.quiet === true,
    isVersion: values.version === true,
    isHelp: values.help === true,
  };
  if (options.port !== 0 && options.port === options.consolePort) {
    mistakes.push(
      `--port and --console-port are both ${options.port}: give two different ports, or 0 for any free one`,
    );
  }
  if (mistakes.length > 0) throw usageError(mistakes.join("\n"));
  return options;
}

function readWords(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS }).values;
  } catch (error) {
    throw usageError(wordsMistake(errorMessage(error)));
  }
}

/** What `parseArgs` says, without its advice for options of other programs. */
function wordsMistake(message: string): string {
  const [what = ""] = message.split(/\. (?=To )|\.\n/);
  const [, given] = /^Unknown option '(--[^']+)'/.exec(what) ?? [];
  const names = Object.keys(OPTIONS).map((name) => `--${name}`);
  return given === undefined
    ? what.replace(
      "argument is ambiguous",
      "needs a value before the next option",
    )
    : what + didYouMean(given, names);
}

function usageError(text: string): UpError {
  return new UpError(`${text}\nSee: npx -y deno task up --help`, EXIT.usage);
}
