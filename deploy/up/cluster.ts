/** The processes of one launcher. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { monotonicNow } from "@gateway/shared/process/clock";
import { errorMessage } from "@gateway/shared/process/env";
import { settlesWithin } from "@gateway/shared/process/lifecycle/serve";
import { parseJson } from "@gateway/shared/upstream/json";
import { z } from "zod";
import { appendToLog } from "./files.ts";
import { ROOT } from "./options.ts";
import { LOOPBACK } from "./ports.ts";
import type { ProcessState } from "./state.ts";
import { EXIT, type Output, UpError } from "./terminal.ts";

/** A command to run. The environment is complete: nothing is inherited. */
export interface Program {
  file: string;
  args: string[];
  env: Readonly<Record<string, string>>;
  cwd: string;
}

/** A process to keep running. */
export interface Unit {
  /** Unique, for example `chat-worker-2`. */
  name: string;
  service: string;
  program: Program;
  /** Its output contains this once it serves. Absent: it logs the event `ready`. */
  readyText?: string;
}

/** A unit whose process is kept running. */
interface UnitProcess extends Unit {
  /** The path of its log. */
  log: string;
  /** Resolves when it is ready for the first time, rejects when it ends before. */
  first: PromiseWithResolvers<void>;
  /** Resolves when it is not restarted any more. */
  finished: Promise<void>;
  isReady: boolean;
  child?: Deno.ChildProcess | undefined;
  opsPort?: number | undefined;
  /** The last lines that were printed before it was ready. */
  lastLines: string[];
}

const RESTART_MS_MIN = 200;
const RESTART_MS_MAX = 10_000;
/** After running this long, a process restarts without a longer pause. */
const HEALTHY_MS = 30_000;
/** How long to wait for the output to end: a grandchild may keep it open. */
const LAST_OUTPUT_MS = 500;
const LAST_LINES = 20;
const TEXT_CHARS_MAX = 300;
/** The lines that the launcher reads; the log file gets all lines. */
const EVENT_LINE = /"level":"(?:warn|error)"|"event":"(?:ready|setup_link)"/;
const EVENT = z.looseObject({
  level: z.string(),
  event: z.string(),
  opsPort: z.number().optional(),
});
/**
 * Expected while the launcher itself warns of the simulator and creates the first key.
 */
const EXPECTED_AT_START = ["no_real_model", "key_store"];

/**
 * All processes of one launcher, restarted when they die. None outlives it, even if it
 * is killed with -9.
 */
export class Cluster {
  isReady = false;
  /** One-time link that creates the first owner; null when there is one. */
  setupUrl: string | null = null;
  /** The processes, in the order in which they were started. */
  readonly #units: UnitProcess[] = [];
  readonly #stopping = new AbortController();
  /**
   * Ends the processes when the launcher is killed. Only the launcher holds its
   * standard input.
   */
  readonly #watcher;
  readonly #watcherEnded: Promise<unknown>;

  /** `stateFile` is removed when the launcher dies without doing so itself. */
  constructor(
    readonly out: Output,
    readonly logsDir: string,
    stateFile: string,
  ) {
    // In its own session, neither Ctrl-C nor the end of the terminal reaches it.
    this.#watcher = spawn("sh", [`${ROOT}/deploy/up/watch.sh`, stateFile], {
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
    });
    this.#watcherEnded = once(this.#watcher, "exit");
    // A write fails if the watcher was killed; the launcher continues without it.
    this.#watcher.stdin.on("error", () => {});
  }

  /**
   * Resolves when it is ready; rejects with an {@link UpError} when it ends before or
   * the cluster is stopping.
   */
  async start(unit: Unit): Promise<void> {
    const process: UnitProcess = {
      ...unit,
      log: `${this.logsDir}/${unit.name}.log`,
      first: Promise.withResolvers(),
      finished: Promise.resolve(),
      isReady: false,
      lastLines: [],
    };
    this.#units.push(process);
    process.finished = this.#keepRunning(process);
    await process.first.promise;
  }

  /**
   * By service: the pids, none for a server that was given, and the URLs of health,
   * readiness and metrics.
   */
  describe(): ProcessState {
    const pids: ProcessState["pids"] = { nats: [], redis: [] };
    const ops_urls: ProcessState["ops_urls"] = {};
    for (const { service, child, opsPort } of this.#units) {
      const { [service]: running = [] } = pids;
      if (child !== undefined) running.push(child.pid);
      pids[service] = running;
      if (opsPort === undefined) continue;
      const { [service]: urls = [] } = ops_urls;
      urls.push(`http://${LOOPBACK}:${opsPort}`);
      ops_urls[service] = urls;
    }
    return { pids, ops_urls };
  }

  /**
   * Stops everything in reverse order of the start: SIGTERM, and SIGKILL after
   * `graceMs`.
   */
  async stop(graceMs: number): Promise<void> {
    this.#stopping.abort();
    const services = Map.groupBy(this.#units, ({ service }) => service);
    for (const group of [...services.values()].reverse()) {
      await Promise.all(group.map(async (process) => {
        send(process, "SIGTERM");
        // A stopped process handles SIGTERM only after SIGCONT.
        send(process, "SIGCONT");
        await settlesWithin(process.finished, graceMs);
        send(process, "SIGKILL");
        await process.finished;
      }));
    }
    // No group is left that the watcher could end.
    this.#watcher.stdin.end("\n");
    await this.#watcherEnded;
  }

  /**
   * Restarts a process when it dies, with growing pauses, unless it was never ready.
   */
  async #keepRunning(process: UnitProcess): Promise<void> {
    const { signal } = this.#stopping;
    const { name, first } = process;
    let pauseMs = RESTART_MS_MIN;
    while (!signal.aborted) {
      const startedAtMs = monotonicNow();
      const { how, code } = await this.#runOnce(process);
      if (signal.aborted) break;
      if (!process.isReady) return first.reject(failureOf(process, how, code));
      if (monotonicNow() - startedAtMs >= HEALTHY_MS) pauseMs = RESTART_MS_MIN;
      this.out.warn(`${name} ${how}; restarting it in ${pauseMs / 1_000} s`);
      await sleep(pauseMs, signal);
      pauseMs = Math.min(2 * pauseMs, RESTART_MS_MAX);
    }
    first.reject(new UpError(`${name} was stopped`));
  }

  /**
   * Runs the process until it ends. `how` completes a sentence that begins with the
   * unit's name.
   */
  async #runOnce(process: UnitProcess): Promise<{ how: string; code: number }> {
    const { file, ...program } = process.program;
    const command = new Deno.Command(file, {
      ...program,
      clearEnv: true,
      // In its own session, so that Ctrl-C does not reach it.
      detached: true,
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    });
    let child: Deno.ChildProcess;
    try {
      child = command.spawn();
    } catch (error) {
      // The program is missing or not executable, or there is no memory.
      const how = `cannot be started: ${errorMessage(error)}`;
      return { how, code: EXIT.failed };
    }
    this.#setChild(process, child);
    const { stdout, stderr, status } = child;
    const copied = [stdout, stderr].map((each) => this.#copy(each, process));
    const { code, signal } = await status;
    await settlesWithin(Promise.all(copied), LAST_OUTPUT_MS);
    this.#setChild(process, undefined);
    return {
      how: signal ? `was ended by ${signal}` : `ended with exit code ${code}`,
      code,
    };
  }

  /** Tells the watcher which processes run now. Each leads a group of its own. */
  #setChild(process: UnitProcess, child: Deno.ChildProcess | undefined): void {
    process.child = child;
    const groups = this.#units
      .flatMap(({ child }) => child ? `-${child.pid}` : []);
    this.#watcher.stdin.write(`${groups.join(" ")}\n`);
  }

  async #copy(
    output: ReadableStream<Uint8Array<ArrayBuffer>>,
    process: UnitProcess,
  ) {
    let rest = "";
    for await (const text of output.pipeThrough(new TextDecoderStream())) {
      try {
        appendToLog(process.log, text);
      } catch (error) {
        // A full disk must not stop a service.
        this.out.warn(`Cannot write ${process.log}: ${errorMessage(error)}`);
      }
      const lines = `${rest}${text}`.split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#readLine(line, process);
    }
    if (rest !== "") this.#readLine(rest, process);
  }

  #readLine(line: string, process: UnitProcess): void {
    const { name, readyText, child } = process;
    const event = EVENT_LINE.test(line)
      ? EVENT.safeParse(parseJson(line)).data
      : undefined;
    const isReady = readyText === undefined
      ? event?.event === "ready"
      : line.includes(readyText);
    if (isReady) {
      if (process.isReady) this.out.warn(`${name} is back (pid ${child?.pid})`);
      process.isReady = true;
      process.opsPort = event?.opsPort;
      process.first.resolve();
    } else if (event) this.#onEvent(name, event);
    // What matters of the logged events has been shown.
    if (process.isReady || line.startsWith("{")) return;
    process.lastLines = [...process.lastLines, line].slice(-LAST_LINES);
  }

  /**
   * Shows a warning or an error: `chat-worker warn: woke_up: This process stood still…
   * {"stalledMs":250}`.
   */
  #onEvent(name: string, logged: z.output<typeof EVENT>): void {
    const { level, event, message, time: _, service: _service, ...data } =
      logged;
    if (event === "setup_link") {
      this.setupUrl = String(data.url);
      if (!this.isReady) return;
      return this.out.say(`Console link for the first owner: ${data.url}`);
    }
    // During a stop, services warn about those that have stopped before them.
    const isExpected = this.#stopping.signal.aborted
      ? level === "warn"
      : !this.isReady && EXPECTED_AT_START.includes(event);
    if (isExpected) return;
    const kind = `${name} ${level}: ${event}`;
    const head = message === undefined ? kind : `${kind}: ${message}`;
    const details = JSON.stringify(
      data,
      (member, value) => member === "stack" ? undefined : value,
    );
    this.out.warn(`${head} ${details}`.slice(0, TEXT_CHARS_MAX), kind);
  }
}

function send({ child }: UnitProcess, name: Deno.Signal): void {
  try {
    child?.kill(name);
  } catch {
    // It has ended.
  }
}

function failureOf(
  { name, lastLines, log }: UnitProcess,
  how: string,
  code: number,
) {
  const message = [
    `${name} does not start: it ${how}`,
    ...lastLines.map((line) => `  ${line}`),
    `Its log: ${log}`,
  ].join("\n");
  return new UpError(message, code === EXIT.config ? code : EXIT.failed);
}

/** Resolves after `ms`, or at once when `signal` aborts. Never rejects. */
export function sleep(ms: number, signal: AbortSignal): Promise<undefined> {
  return delay(ms, undefined, { signal }).catch(() => undefined);
}
