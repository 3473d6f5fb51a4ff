import { setTimeout as delay } from "node:timers/promises";
import { monotonicNow } from "@gateway/shared/process/clock";
import { errorMessage } from "@gateway/shared/process/env";
import { settlesWithin } from "@gateway/shared/process/serve";
import * as z from "zod";
import type { LogFile } from "./files.ts";
import { EXIT, UpError } from "./terminal.ts";

/** A command to run. The environment is complete: nothing is inherited. */
export interface Program {
  file: string;
  args: string[];
  env: Readonly<Record<string, string>>;
  cwd: string;
}

export interface Unit {
  /** Unique, for example `chat-worker-2`. */
  name: string;
  service: string;
  program: Program;
  /** Its output contains this once it serves. Absent: it logs the event `ready`. */
  readyText?: string;
}

/** A line that a service logged: an event with its data. */
export type ServiceEvent = z.output<typeof EVENT>;

const RESTART_MS_MIN = 200;
const RESTART_MS_MAX = 10_000;
/** After running this long, a process restarts without a longer pause. */
const HEALTHY_MS = 30_000;
/** How long to wait for the output to end: a grandchild may keep it open. */
const LAST_OUTPUT_MS = 500;
const LAST_LINES = 20;
/** The lines that the launcher reads; the log file gets all lines. */
const EVENT_LINE = /"level":"(?:warn|error)"|"event":"(?:ready|setup_link)"/;
const EVENT = z.looseObject({
  level: z.string(),
  event: z.string(),
  opsPort: z.number().optional(),
});

/** Keeps a process running: restarts it when it dies, with growing pauses. */
export class Supervised {
  isReady = false;
  opsPort: number | undefined;
  readonly #first = Promise.withResolvers<void>();
  /** Resolves when the process is ready for the first time; rejects with an {@link UpError} when it ends before. */
  readonly firstReady: Promise<void> = this.#first.promise;
  readonly #stopping = new AbortController();
  readonly #finished: Promise<void>;
  /** The last lines that were printed before it was ready. */
  #lastLines: string[] = [];
  #child: Deno.ChildProcess | undefined;

  /**
   * `onChange` is called when a process of the unit starts or ends, `onEvent` for a
   * warning, an error or a `setup_link` that it logs, `warn` when it dies or is back.
   */
  constructor(
    readonly unit: Unit,
    readonly log: LogFile,
    readonly warn: (text: string) => void,
    readonly onChange: () => void,
    readonly onEvent: (event: ServiceEvent) => void,
  ) {
    // It may reject when no caller awaits it any more.
    this.firstReady.catch(() => {});
    // The callbacks need this object, so they begin after the constructor.
    this.#finished = Promise.resolve().then(() => this.#keepRunning());
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Stops the process for good: SIGTERM, and SIGKILL after `graceMs`. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping.abort();
    this.#signal("SIGTERM");
    // A stopped process handles SIGTERM only after SIGCONT.
    this.#signal("SIGCONT");
    await settlesWithin(this.#finished, graceMs);
    this.#signal("SIGKILL");
    await this.#finished;
  }

  #signal(name: Deno.Signal): void {
    try {
      this.#child?.kill(name);
    } catch {
      // It has ended.
    }
  }

  async #keepRunning(): Promise<void> {
    const { signal } = this.#stopping;
    const { name } = this.unit;
    let pauseMs = RESTART_MS_MIN;
    while (!signal.aborted) {
      const startedAtMs = monotonicNow();
      const { how, code } = await this.#runOnce();
      if (signal.aborted) break;
      if (!this.isReady) {
        return this.#first.reject(this.#failure(how, code));
      }
      if (monotonicNow() - startedAtMs >= HEALTHY_MS) pauseMs = RESTART_MS_MIN;
      this.warn(`${name} ${how}; restarting it in ${pauseMs / 1_000} s`);
      await sleep(pauseMs, signal);
      pauseMs = Math.min(2 * pauseMs, RESTART_MS_MAX);
    }
    this.#first.reject(new UpError(`${name} was stopped`));
  }

  /** Runs the process until it ends. `how` completes a sentence that begins with the unit's name. */
  async #runOnce(): Promise<{ how: string; code: number }> {
    const { file, ...program } = this.unit.program;
    const command = new Deno.Command(file, {
      ...{ ...program, clearEnv: true },
      // In its own session, so that Ctrl-C does not reach it.
      detached: true,
      ...{ stdin: "null", stdout: "piped", stderr: "piped" },
    });
    try {
      this.#child = command.spawn();
    } catch (error) {
      // The program is missing or not executable, or there is no memory.
      const how = `cannot be started: ${errorMessage(error)}`;
      return { how, code: EXIT.failed };
    }
    this.onChange();
    const { stdout, stderr, status } = this.#child;
    const copied = [this.#copy(stdout), this.#copy(stderr)];
    const { code, signal } = await status;
    await settlesWithin(Promise.all(copied), LAST_OUTPUT_MS);
    this.#child = undefined;
    this.onChange();
    return {
      how: signal ? `was ended by ${signal}` : `ended with exit code ${code}`,
      code,
    };
  }

  async #copy(output: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const bytes of output) {
      this.log.write(bytes);
      const text = rest + decoder.decode(bytes, { stream: true });
      const lines = text.split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#readLine(line);
    }
    if (rest !== "") this.#readLine(rest);
  }

  #readLine(line: string): void {
    const { unit: { name, readyText }, pid } = this;
    const event = EVENT_LINE.test(line) ? parseEvent(line) : undefined;
    const isReady = readyText === undefined
      ? event?.event === "ready"
      : line.includes(readyText);
    if (isReady) {
      if (this.isReady) this.warn(`${name} is back (pid ${pid})`);
      this.isReady = true;
      this.opsPort = event?.opsPort;
      this.#first.resolve();
    } else if (event) this.onEvent(event);
    // What matters of the logged events has been shown.
    if (this.isReady || line.startsWith("{")) return;
    this.#lastLines = [...this.#lastLines, line].slice(-LAST_LINES);
  }

  #failure(how: string, code: number): UpError {
    const message = [
      `${this.unit.name} does not start: it ${how}`,
      ...this.#lastLines.map((line) => `  ${line}`),
      `Its log: ${this.log.path}`,
    ].join("\n");
    return new UpError(message, code === EXIT.config ? code : EXIT.failed);
  }
}

/** The event of a log line; `undefined` if the line is something else. */
function parseEvent(line: string): ServiceEvent | undefined {
  try {
    return EVENT.parse(JSON.parse(line));
  } catch {
    return undefined;
  }
}

/** Resolves after `ms`, or at once when `signal` aborts. Never rejects. */
export function sleep(ms: number, signal: AbortSignal): Promise<undefined> {
  return delay(ms, undefined, { signal }).catch(() => undefined);
}
