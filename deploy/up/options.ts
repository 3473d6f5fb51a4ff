import { resolve } from "node:path";
import { EXIT, UpError } from "./up_error.ts";

/** What the operator asked for. Paths are absolute. */
export interface UpOptions {
  workers: number;
  edges: number;
  /** Address the edges and the console listen on. */
  host: string;
  /** Port of the first edge. 0: any free one. */
  port: number;
  /** Port of the console. 0: any free one. */
  consolePort: number;
  /** Redis data and the first key: survives. */
  dataDir: string;
  /** State and logs of this run: can be thrown away. */
  runDir: string;
  /** The list of models. Absent: what the services fall back to. */
  modelsFile?: string;
  /** Print nothing but warnings and errors. */
  quiet: boolean;
}

/** Where relative paths and the default directories start. */
export interface OptionBases {
  /** Root of the repository. */
  root: string;
  /** Where the operator typed the command. */
  cwd: string;
  /** Value of `MODELS_FILE`, unless `--models` says otherwise. */
  modelsFile?: string | undefined;
}

const INSTANCES_MAX = 64;
const PORT_MAX = 65_535;

/** The text of `--help`. */
export const USAGE = `Starts the gateway on this machine; Ctrl-C stops it.

Usage: deno task up [options]

  --workers N        chat-worker processes, 1 to ${INSTANCES_MAX} (1)
  --edges N          edge-auth processes, 1 to ${INSTANCES_MAX} (1)
  --port P           port of the first edge, 0 = any free port (8080);
                     further edges take any free port
  --console-port P   port of the web console, 0 = any free port (8081)
  --host ADDRESS     address to listen on (127.0.0.1)
  --models FILE      list of models and their backends (MODELS_FILE)
  --data-dir DIR     what must survive: keys, usage (.data)
  --run-dir DIR      up.json and logs of this run (.run)
  --quiet, -q        print warnings and errors only
  --help, -h         print this

Environment:
  NATS_URL, REDIS_URL   use these servers instead of private ones, with
                        NATS_USER, REDIS_CA_FILE and so on
  UPSTREAM_BASE_URL, UPSTREAM_API_KEY, UPSTREAM_MODEL,
  UPSTREAM_DIALECT, UPSTREAM_FIRST_TOKEN_SECONDS
                        an OpenAI-compatible server to answer with
  LOG_LEVEL, SLOTS, DRAIN_SECONDS and all else the services read is passed on
`;

type Setter = (draft: Draft, value: string) => string | undefined;

interface Draft extends UpOptions {
  help: boolean;
}

const VALUE_OPTIONS: { [name: string]: Setter } = {
  "--workers": (d, v) => readNumber(v, 1, INSTANCES_MAX, (n) => d.workers = n),
  "--edges": (d, v) => readNumber(v, 1, INSTANCES_MAX, (n) => d.edges = n),
  "--port": (d, v) => readNumber(v, 0, PORT_MAX, (n) => d.port = n),
  "--console-port": (d, v) =>
    readNumber(v, 0, PORT_MAX, (n) => d.consolePort = n),
  "--host": (d, v) => readText(v, (text) => d.host = text),
  "--models": (d, v) => readText(v, (text) => d.modelsFile = text),
  "--data-dir": (d, v) => readText(v, (text) => d.dataDir = text),
  "--run-dir": (d, v) => readText(v, (text) => d.runDir = text),
};

const FLAGS: { [name: string]: (draft: Draft) => void } = {
  "--help": (d) => d.help = true,
  "-h": (d) => d.help = true,
  "--quiet": (d) => d.quiet = true,
  "-q": (d) => d.quiet = true,
};

/**
 * Reads the command line: `["--workers", "3", "--port=0"]`. Answers `"help"`
 * when help was asked for, whatever else stands there.
 *
 * Throws an {@link UpError} that names every mistake at once.
 */
export function parseOptions(
  args: readonly string[],
  bases: OptionBases,
): UpOptions | "help" {
  const draft: Draft = { ...defaults(bases), help: false };
  const mistakes: string[] = [];
  const seen = new Set<string>();
  for (let i = 0; i < args.length; i++) {
    const { name, value } = splitOption(args[i] ?? "");
    if (seen.has(name)) mistakes.push(`${name} is given twice`);
    seen.add(name);
    const setFlag = FLAGS[name];
    const setValue = VALUE_OPTIONS[name];
    if (setFlag) {
      if (value === undefined) setFlag(draft);
      else mistakes.push(`${name} takes no value`);
    } else if (setValue) {
      // The next word is the value, unless it is clearly the next option.
      const text = value ?? (args[i + 1]?.startsWith("--") ? "" : args[++i]);
      const mistake = setValue(draft, text ?? "");
      if (mistake) mistakes.push(`${name} ${mistake}`);
    } else {
      mistakes.push(describeUnknown(name));
    }
  }
  const { help, ...options } = draft;
  if (help) return "help";
  if (options.port !== 0 && options.port === options.consolePort) {
    mistakes.push(`--port and --console-port are both ${options.port}`);
  }
  if (mistakes.length > 0) throw usageError(mistakes);
  return absolutePaths(options, bases.cwd);
}

function defaults({ root, modelsFile }: OptionBases): UpOptions {
  return {
    workers: 1,
    edges: 1,
    host: "127.0.0.1",
    port: 8080,
    consolePort: 8081,
    dataDir: resolve(root, ".data"),
    runDir: resolve(root, ".run"),
    ...(modelsFile ? { modelsFile } : {}),
    quiet: false,
  };
}

function absolutePaths(options: UpOptions, cwd: string): UpOptions {
  return {
    ...options,
    dataDir: resolve(cwd, options.dataDir),
    runDir: resolve(cwd, options.runDir),
    ...(options.modelsFile === undefined
      ? {}
      : { modelsFile: resolve(cwd, options.modelsFile) }),
  };
}

function splitOption(word: string): { name: string; value?: string } {
  const at = word.indexOf("=");
  if (!word.startsWith("--") || at < 0) return { name: word };
  return { name: word.slice(0, at), value: word.slice(at + 1) };
}

function readNumber(
  text: string,
  min: number,
  max: number,
  set: (value: number) => void,
): string | undefined {
  const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
  if (!(value >= min && value <= max)) {
    return `must be a whole number from ${min} to ${max}, got "${text}"`;
  }
  set(value);
}

function readText(
  text: string,
  set: (value: string) => void,
): string | undefined {
  if (text === "") return "needs a value";
  set(text);
}

function describeUnknown(name: string): string {
  if (!name.startsWith("-")) return `Unexpected word "${name}"`;
  const close = [...Object.keys(VALUE_OPTIONS), ...Object.keys(FLAGS)]
    .find((known) => known.length > 2 && isClose(known, name));
  const hint = close ? `, did you mean ${close}?` : "";
  return `Unknown option "${name}"${hint}`;
}

/** True when one is the start of the other, or they differ in at most two places. */
function isClose(known: string, typed: string): boolean {
  if (typed.length > 3 && known.startsWith(typed)) return true;
  if (typed.startsWith(known)) return true;
  if (Math.abs(known.length - typed.length) > 1) return false;
  const letters = [...known];
  for (const letter of typed) {
    const at = letters.indexOf(letter);
    if (at >= 0) letters.splice(at, 1);
  }
  return letters.length <= 1;
}

function usageError(mistakes: readonly string[]): UpError {
  return new UpError(
    `${mistakes.join("\n")}\nSee: npx -y deno task up --help`,
    EXIT.usage,
  );
}
