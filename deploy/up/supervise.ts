import type { MonotonicNow } from "@gateway/shared/process/clock";
import { type LogFile, parseRecord } from "./files.ts";
import { EXIT, messageOf, UpError } from "./up_error.ts";
import { sleep, within } from "./wait.ts";

/** What the parts of a cluster are called, also in `up.json`. */
export type ServiceName =
  | "edge-auth"
  | "chat-worker"
  | "key-admin"
  | "model-simulator"
  | "nats"
  | "redis";

/** What to run. The environment is complete: nothing is inherited. */
export interface Program {
  file: string;
  args: readonly string[];
  env: Readonly<Record<string, string>>;
  cwd: string;
}

/** One process to keep running. */
export interface Unit {
  /** Unique, for example `chat-worker-2`. */
  name: string;
  service: ServiceName;
  /** Called for each start, so that a restart can keep the port of the first. */
  program(): Program;
  /** Its output says this once it serves. Absent: it logs the event `ready`. */
  readyText?: string;
  /** How long a start may take. */
  readyMs: number;
}

/** The ports of a service's `ready` event; 0 where it names none. */
export interface Ready {
  port: number;
  opsPort: number;
}

/** The members of one JSON log line of a service. */
export type ServiceEvent = Readonly<Record<string, unknown>>;

export interface SuperviseDeps {
  now: MonotonicNow;
  log: LogFile;
  /** A process of this unit began, ended or became ready. */
  onChange(): void;
  /** Something the operator should know: a death, a restart. */
  warn(text: string): void;
  /** A warning, an error or a `setup_link`. */
  onEvent(event: ServiceEvent): void;
}

/** A unit under supervision. */
export interface Supervised {
  readonly unit: Unit;
  /** Resolves when it is ready for the first time; rejects with an {@link UpError} when it keeps dying before that. */
  readonly firstReady: Promise<Ready>;
  /** Of the process that runs now, if one does. */
  pid(): number | undefined;
  /** Of the last process that became ready. */
  ready(): Ready | undefined;
  /** Stops it for good: SIGTERM, and SIGKILL after `graceMs` or when `hurry` aborts. */
  stop(graceMs: number, hurry?: AbortSignal): Promise<void>;
}

/** A first start that fails this often is given up. */
const START_ATTEMPTS_MAX = 3;
const RESTART_MS_MIN = 200;
const RESTART_MS_MAX = 10_000;
/** After this long a process counts as healthy, and its next death as the first. */
const HEALTHY_MS = 30_000;
/** A grandchild may hold the output open. */
const LAST_OUTPUT_MS = 500;
const TAIL_CHARS = 4_096;
const TAIL_LINES = 20;
/** The lines that matter here; all go to the log file. */
const EVENT = /"level":"(?:warn|error)"|"event":"(?:ready|setup_link)"/;

/** Starts a unit and restarts it when it dies, with growing pauses. */
export function supervise(unit: Unit, deps: SuperviseDeps): Supervised {
  const stopping = new AbortController();
  const firstReady = Promise.withResolvers<Ready>();
  // Nobody may be waiting any more when it fails.
  firstReady.promise.catch(() => {});
  let child: Deno.ChildProcess | undefined;
  let ready: Ready | undefined;

  /** Runs it once; answers with how it ended, for people, and whether to try again. */
  const runOnce = async () => {
    let readyAtMs = Infinity;
    let isLate = false;
    const onReady = (ports: Ready) => {
      readyAtMs = deps.now();
      clearTimeout(timer);
      if (ready) deps.warn(`${unit.name} is back (pid ${running.pid})`);
      ready = ports;
      firstReady.resolve(ports);
      deps.onChange();
    };
    const onLine = (line: string) => {
      if (unit.readyText !== undefined) {
        if (line.includes(unit.readyText)) onReady({ port: 0, opsPort: 0 });
        return;
      }
      const event = EVENT.test(line) ? parseRecord(line) : undefined;
      if (event?.event === "ready") {
        onReady({
          port: Number(event.port ?? 0),
          opsPort: Number(event.opsPort ?? 0),
        });
      } else if (event) deps.onEvent(event);
    };
    const running = spawn(unit.program());
    child = running;
    const timer = setTimeout(() => {
      isLate = true;
      signal(running, "SIGKILL");
    }, unit.readyMs);
    deps.onChange();
    const tails = [running.stderr, running.stdout].map((output) =>
      readLines(output, deps.log, onLine)
    );
    const { code, signal: killedBy } = await running.status;
    await within(Promise.all(tails.map(({ done }) => done)), LAST_OUTPUT_MS);
    clearTimeout(timer);
    child = undefined;
    deps.onChange();
    return {
      what: isLate
        ? `was not ready after ${unit.readyMs / 1_000} s`
        : killedBy
        ? `was ended by ${killedBy}`
        : `ended with exit code ${code}`,
      isConfig: code === EXIT.config,
      isHealthy: deps.now() - readyAtMs >= HEALTHY_MS,
      // What was killed did not see it coming: its last line is about something else.
      tail: killedBy && !isLate
        ? []
        : tails.map(({ lines }) => lines()).find(({ length }) => length > 0) ??
          [],
    };
  };

  const keepRunning = async () => {
    for (let failures = 1; !stopping.signal.aborted; failures++) {
      const ending = await runOnce().catch((error) => ({
        // The program itself: gone, not executable, no memory.
        what: `cannot be started: ${messageOf(error)}`,
        isConfig: false,
        isHealthy: false,
        tail: [],
      }));
      if (stopping.signal.aborted) break;
      const { what, isConfig, tail } = ending;
      if (ending.isHealthy) failures = 1;
      if (!ready && (isConfig || failures >= START_ATTEMPTS_MAX)) {
        firstReady.reject(
          new UpError(
            [
              isConfig
                ? `${unit.name} found a mistake in its configuration`
                : `${unit.name} does not start: it ${what}`,
              ...tail.map((line) => `  ${line}`),
              `Its log: ${deps.log.path}`,
            ].join("\n"),
            isConfig ? EXIT.config : EXIT.failed,
          ),
        );
        return;
      }
      const pauseMs = Math.min(
        RESTART_MS_MIN * 2 ** (failures - 1),
        RESTART_MS_MAX,
      );
      const last = tail.length > 0 ? `: ${tail.at(-1)}` : "";
      deps.warn(
        `${unit.name} ${what}, starting it again in ${
          pauseMs / 1_000
        } s${last}`,
      );
      await sleep(pauseMs, stopping.signal);
    }
    firstReady.reject(new UpError(`${unit.name} was stopped`));
  };
  // Not before the caller has what this returns.
  const finished = Promise.resolve().then(keepRunning);

  return {
    unit,
    firstReady: firstReady.promise,
    pid: () => child?.pid,
    ready: () => ready,
    async stop(graceMs, hurry = new AbortController().signal) {
      stopping.abort();
      signal(child, "SIGTERM");
      // A frozen process gets SIGTERM only when it is thawed.
      signal(child, "SIGCONT");
      const over = new AbortController();
      const patience = AbortSignal.any([over.signal, hurry]);
      await Promise.race([finished, sleep(graceMs, patience)]);
      over.abort();
      signal(child, "SIGKILL");
      await finished;
    },
  };
}

/** A process of its own session, so that Ctrl-C does not reach it. */
function spawn({ file, args, env, cwd }: Program) {
  return new Deno.Command(file, {
    args: [...args],
    env: { ...env },
    clearEnv: true,
    cwd,
    detached: true,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

/** Sends a signal; a process that has ended is fine. */
function signal(child: Deno.ChildProcess | undefined, name: Deno.Signal): void {
  try {
    // A killed process cannot end its own children; other signals it passes on.
    if (child && name === "SIGKILL") Deno.kill(-child.pid, name);
    else child?.kill(name);
  } catch (error) {
    // It has ended, which Deno says in two ways.
    const hasEnded = error instanceof TypeError ||
      error instanceof Deno.errors.NotFound;
    if (!hasEnded) throw error;
  }
}

/** Copies an output to the log, line by line to `onLine`, and remembers its last lines. */
function readLines(
  output: ReadableStream<Uint8Array>,
  log: LogFile,
  onLine: (line: string) => void,
) {
  let recent = "";
  const read = async () => {
    const decoder = new TextDecoder();
    let rest = "";
    // A slow disk slows the writer down: nothing piles up here.
    for await (const bytes of output) {
      const text = decoder.decode(bytes, { stream: true });
      recent = (recent + text).slice(-TAIL_CHARS);
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      lines.forEach(onLine);
      await log.write(bytes);
    }
  };
  return {
    done: read(),
    lines: () =>
      recent.trim() === "" ? [] : recent.trim().split("\n").slice(-TAIL_LINES),
  };
}
